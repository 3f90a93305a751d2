// Package mapfile maps model files into memory for reading.
package mapfile

import (
	"fmt"
	"math"
	"os"
)

// File is a regular file whose bytes are readable as a slice.
type File struct {
	Data   []byte // the whole file; empty after Close
	mapped bool   // Data is a mapping and not a copy
}

// Open maps a file, or reads it where mapping is not supported. Only regular files are taken: a pipe or a device could
// block for ever or have no end.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is a %s, want a regular file", path, kind(info.Mode()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The size of the file that was opened: the name may have moved on since Stat.
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	size := info.Size()
	if size > math.MaxInt {
		return nil, fmt.Errorf("%s: has %d bytes, this system addresses %d", path, size, math.MaxInt)
	}
	if size == 0 {
		return &File{}, nil
	}
	data, mapped, err := mapBytes(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("%s: map %d bytes: %w", path, size, err)
	}
	return &File{Data: data, mapped: mapped}, nil
}

func kind(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&os.ModeNamedPipe != 0:
		return "pipe"
	case m&os.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// Release drops the resident pages that lie wholly inside part, a piece of Data. Its content stays readable.
func (f *File) Release(part []byte) {
	if f.mapped && len(part) > 0 {
		releasePages(part)
	}
}

// Close unmaps the file.
func (f *File) Close() error {
	data, mapped := f.Data, f.mapped
	f.Data, f.mapped = nil, false
	if !mapped {
		return nil
	}
	return unmapBytes(data)
}

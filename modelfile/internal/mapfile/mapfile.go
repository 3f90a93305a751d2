// Package mapfile maps model files into memory for reading.
package mapfile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"os"
	"time"
	"unsafe"

	"quickdraft/machine"
)

// File is a regular file whose bytes are readable as a slice.
type File struct {
	Data     []byte    // the whole file; empty after Close
	Path     string    // as Open was told
	Name     string    // last element of its path
	Modified time.Time // when it was opened
	mapped   bool      // Data is a mapping and not a copy
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
		return &File{Path: path, Name: info.Name(), Modified: info.ModTime()}, nil
	}
	data, mapped, err := mapBytes(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("%s: map %d bytes: %w", path, size, err)
	}
	return &File{Data: data, Path: path, Name: info.Name(), Modified: info.ModTime(), mapped: mapped}, nil
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

// Explain returns a *machine.ChangedError when a file is mapped at addr, where a read failed, and nil when none is.
func Explain(files []*File, addr uintptr) error {
	for _, f := range files {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(f.Data)))
		if f.mapped && addr-start < uintptr(len(f.Data)) {
			return &machine.ChangedError{File: f.Path}
		}
	}
	return nil
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

// Fingerprint reads so many pieces of what follows a file's header, evenly spread, the first and the last bytes among them: 64
// pages are read from a disk in some milliseconds, and a file with other weights has others in all of them.
const (
	samples     = 64
	sampleBytes = 4096
)

// Fingerprint hashes what tells one state of a model's files from another without reading all of them: the name, size and
// time of each, the first headBytes[i] bytes of file i and samples of the rest. It must be called before Close.
func Fingerprint(files []*File, headBytes []int) (sum [sha256.Size]byte) {
	h := sha256.New()
	for i, f := range files {
		var sizes []byte
		for _, v := range []int64{int64(len(f.Name)), int64(len(f.Data)), f.Modified.UnixNano(), int64(headBytes[i])} {
			sizes = binary.LittleEndian.AppendUint64(sizes, uint64(v))
		}
		h.Write(sizes)
		h.Write([]byte(f.Name))
		h.Write(f.Data[:headBytes[i]])
		sample(h, f.Data[headBytes[i]:])
	}
	h.Sum(sum[:0])
	return sum
}

// sample writes samples of data, or all of it where that is not more.
func sample(h hash.Hash, data []byte) {
	last := len(data) - sampleBytes // where the last one begins
	if last < samples*sampleBytes {
		h.Write(data)
		return
	}
	for i := range samples {
		at := int(int64(last) * int64(i) / (samples - 1))
		h.Write(data[at : at+sampleBytes])
	}
}

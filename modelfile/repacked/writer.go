package repacked

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"quickdraft/internal/disk"
)

// Writer makes a file under a temporary name beside the final one.
type Writer struct {
	path     string
	key      Key
	file     *disk.File
	at       int64 // where the next section begins
	sections []Section
}

// Create begins the file that Commit will put at path, making its folder when there is none, and removes what killed
// processes left of earlier attempts.
func Create(path string, key Key) (*Writer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := disk.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, key: key, file: f, at: alignment}, nil
}

// Add appends a section and writes its tiles, several chunks at a time. After an error only Abort may follow.
func (w *Writer) Add(s Section) error {
	if len(s.Name) > 1<<16-1 || len(w.sections) == maxSections {
		return fmt.Errorf("%s: section %.80q: want a name of at most %d bytes and at most %d sections", w.path, s.Name, 1<<16-1, maxSections)
	}
	s.at, s.size = uint64(w.at), uint64(len(s.Tiles))
	s.sums = make([]uint32, (len(s.Tiles)+chunkBytes-1)/chunkBytes)
	var failed atomic.Pointer[error]
	parallel(len(s.sums), func(i int) {
		part := chunk(s.Tiles, i)
		s.sums[i] = crc(part)
		if failed.Load() != nil {
			return
		}
		if _, err := w.file.WriteAt(part, w.at+int64(i)*chunkBytes); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return fmt.Errorf("%s: %w", w.path, *err)
	}
	w.at += (int64(len(s.Tiles)) + alignment - 1) / alignment * alignment
	s.Tiles = nil
	w.sections = append(w.sections, s)
	return nil
}

// Commit writes table and header and gives the file its name. Without an error the file is complete.
func (w *Writer) Commit() error {
	defer w.Abort()
	var table []byte
	for _, s := range w.sections {
		table = le.AppendUint16(table, uint16(len(s.Name)))
		table = append(table, s.Name...)
		table = le.AppendUint32(table, uint32(s.Type))
		for _, v := range []uint64{uint64(s.Rows), uint64(s.Cols), s.at, s.size} {
			table = le.AppendUint64(table, v)
		}
		for _, sum := range s.sums {
			table = le.AppendUint32(table, sum)
		}
	}
	h := append([]byte(magic), make([]byte, 0, headerBytes)...)
	h = le.AppendUint32(h, version)
	h = le.AppendUint32(h, uint32(len(w.sections)))
	h = append(h, w.key[:]...)
	h = le.AppendUint64(h, uint64(w.at))
	h = le.AppendUint64(h, uint64(len(table)))
	h = le.AppendUint32(h, crc(table))
	h = le.AppendUint32(h, crc(h))
	if _, err := w.file.WriteAt(table, w.at); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	if _, err := w.file.WriteAt(h, 0); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return w.file.CommitUnsynced() // Open finds what a power failure damaged, and a sync costs as much as packing
}

// Abort removes what was written; after Commit it does nothing.
func (w *Writer) Abort() error { return w.file.Abort() }

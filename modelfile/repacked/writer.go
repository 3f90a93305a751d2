package repacked

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// abandonedAfter is the age from which an unfinished file belongs to a process that was killed.
const abandonedAfter = time.Hour

// Writer makes a file under a temporary name beside the final one.
type Writer struct {
	path     string
	key      Key
	tmp      *os.File
	at       int64 // where the next section begins
	sections []Section
}

// Create begins the file that Commit will put at path, making its folder when there is none, and removes what killed
// processes left of earlier attempts.
func Create(path string, key Key) (*Writer, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pattern := "." + filepath.Base(path) + ".*.tmp"
	if old, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil {
		for _, name := range old {
			if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > abandonedAfter {
				os.Remove(name)
			}
		}
	}
	tmp, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, key: key, tmp: tmp, at: alignment}, nil
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
		if _, err := w.tmp.WriteAt(part, w.at+int64(i)*chunkBytes); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	w.at += (int64(len(s.Tiles)) + alignment - 1) / alignment * alignment
	s.Tiles = nil
	w.sections = append(w.sections, s)
	return nil
}

// Commit writes table and header and gives the file its name. Without an error the file is complete.
func (w *Writer) Commit() (err error) {
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
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
	if _, err = w.tmp.WriteAt(table, w.at); err != nil {
		return err
	}
	if _, err = w.tmp.WriteAt(h, 0); err != nil {
		return err
	}
	if err = w.tmp.Chmod(0o644); err != nil {
		return err
	}
	if err = w.tmp.Close(); err != nil {
		return err
	}
	return os.Rename(w.tmp.Name(), w.path)
}

// Abort removes what was written.
func (w *Writer) Abort() error {
	if err := w.tmp.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return os.Remove(w.tmp.Name())
}

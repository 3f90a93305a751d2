package model

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"quickdraft/modelfile/repacked"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// packVersion numbers what loaders do to matrices before they are packed: which rows and in which order. Raise it when a
// build function packs other rows under the same name.
const packVersion = 1

// errTilesDiffer says that a file of tiles holds other matrices than the ones a build function asks for.
var errTilesDiffer = errors.New("the file of tiles holds other matrices")

// tileStore is the file that keeps a checkpoint's packed matrices for the next start: it is read when there is a good one
// and written otherwise. A nil store does nothing. Trouble with it costs a note and never the model.
type tileStore struct {
	path string
	key  repacked.Key
	note func(string)
	told bool

	in   *repacked.File
	next int // section of in
	out  *repacked.Writer
}

// openStore opens the file of a checkpoint, or begins it.
func openStore(o *Options, w weights) *tileStore {
	if o.TilesDir == "" || o.F32 {
		return nil
	}
	source, ok := w.fingerprint()
	name, err := repacked.FileName(w.fileOf(""))
	if !ok || err != nil {
		return nil
	}
	s := &tileStore{path: filepath.Join(o.TilesDir, name), key: tilesKey(source, quant.LayoutVersion, packVersion), note: o.Note}
	s.in, err = repacked.Open(s.path, s.key)
	if err == nil {
		return s
	}
	if s.create(); errors.Is(err, repacked.ErrDamaged) {
		s.warn("%v; it is made again", err)
	}
	return s
}

// tilesKey is another one wherever the files, the layout of tiles or what is packed differ.
func tilesKey(source [sha256.Size]byte, layout, pack uint32) repacked.Key {
	versions := binary.LittleEndian.AppendUint32(source[:], layout)
	return sha256.Sum256(binary.LittleEndian.AppendUint32(versions, pack))
}

// warn reports the first trouble in one line.
func (s *tileStore) warn(format string, args ...any) {
	if s.note != nil && !s.told {
		s.note(fmt.Sprintf(format, args...))
	}
	s.told = true
}

func (s *tileStore) create() {
	out, err := repacked.Create(s.path, s.key)
	if err != nil {
		s.warn("repacked weights are not kept for the next start: %v", err)
		return
	}
	s.out = out
}

// take returns the next matrix of the file, or nil when it has to be packed.
func (s *tileStore) take(t rawTensor) (*tensor.Mat, error) {
	if s == nil || s.in == nil {
		return nil, nil
	}
	if s.next == len(s.in.Sections) {
		return nil, errTilesDiffer
	}
	e := &s.in.Sections[s.next]
	s.next++
	if e.Name != t.name || e.Type != t.typ || e.Rows != t.rows || e.Cols != t.cols {
		return nil, errTilesDiffer
	}
	m, err := tensor.NewMatTiles(t.name, t.typ, t.rows, t.cols, e.Tiles)
	if err != nil {
		return nil, errTilesDiffer
	}
	return m, nil
}

// put keeps a matrix for the next start.
func (s *tileStore) put(m *tensor.Mat) {
	if s == nil || s.out == nil {
		return
	}
	if err := s.out.Add(repacked.Section{Name: m.Name, Type: m.Type, Rows: m.Rows, Cols: m.Cols, Tiles: m.Tiles}); err != nil {
		s.abort(err)
	}
}

func (s *tileStore) abort(err error) {
	s.warn("repacked weights are not kept for the next start: %v", err)
	s.out.Abort()
	s.out = nil
}

// finish ends the loading. It reports whether the matrices must be loaded again, because the file's differ: the store
// then is one that packs and writes.
func (s *tileStore) finish(err error) (again bool) {
	if s == nil {
		return false
	}
	differs := errors.Is(err, errTilesDiffer) || err == nil && s.in != nil && s.next != len(s.in.Sections)
	switch {
	case differs:
		s.close()
		s.create()
		return true
	case s.out != nil && err != nil:
		s.out.Abort()
	case s.out != nil:
		if err := s.out.Commit(); err != nil {
			s.warn("repacked weights are not kept for the next start: %v", err)
		}
	}
	s.out = nil
	return false
}

// explain returns the error of a failed read at addr, if the file is mapped there.
func (s *tileStore) explain(addr uintptr) error {
	if s == nil || s.in == nil {
		return nil
	}
	return s.in.Explain(addr)
}

// close unmaps the tiles and drops a file that is not complete.
func (s *tileStore) close() {
	if s == nil {
		return
	}
	if s.in != nil {
		s.in.Close()
	}
	if s.out != nil {
		s.out.Abort()
	}
	s.in, s.out = nil, nil
}

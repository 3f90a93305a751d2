package gguf

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime/debug"

	"quickdraft/machine"
	"quickdraft/modelfile/internal/mapfile"
)

// maxParts bounds the number of files of one split model.
const maxParts = 1024

const (
	splitCountKey   = "split.count"
	splitNumberKey  = "split.no"
	splitTensorsKey = "split.tensors.count"
)

// splitName matches the name of one part: prefix, its number from 1, and the number of parts, five digits each.
var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Open maps a model file. A file named like model-00001-of-00003.gguf that says it is the first part of a split model
// brings the other parts along: the metadata is the first part's, the tensors are those of all.
//
// Besides what makes a file unreadable, Open refuses more tokens than embedding rows and begin- and end-of-sequence ids
// outside the vocabulary. Its errors are *Error, or *fs.PathError for what the system refuses.
func Open(path string) (*File, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	maps := mappings{files: []*mapfile.File{m}}
	f, err := maps.parse(path)
	if err != nil {
		return nil, errors.Join(err, maps.close())
	}
	f.close, f.release, f.fingerprint, f.explain = maps.close, maps.release, maps.fingerprint, maps.explain
	return f, nil
}

// parse reads the first file and maps and reads the others that it names.
func (ms *mappings) parse(path string) (f *File, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, ms.explain)
	if f, err = parsePart(path, ms.files[0].Data); err != nil {
		return nil, err
	}
	ms.headBytes = []int{f.headBytes}
	if err := f.joinParts(ms); err != nil {
		return nil, err
	}
	return f, f.checkVocabulary()
}

// mappings are the mapped files of one model.
type mappings struct {
	files     []*mapfile.File
	headBytes []int // of each file before its tensor data
}

func (ms *mappings) close() error {
	var errs []error
	for _, m := range ms.files {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// release is the same for all mappings: the pages are found by address.
func (ms *mappings) release(data []byte) { ms.files[0].Release(data) }

func (ms *mappings) explain(addr uintptr) error { return mapfile.Explain(ms.files, addr) }

func (ms *mappings) fingerprint() [sha256.Size]byte {
	return mapfile.Fingerprint(ms.files, ms.headBytes)
}

// joinParts adds the tensors of the further parts of a split model to its first part.
func (f *File) joinParts(maps *mappings) error {
	count, err := f.splitValue(splitCountKey, maxParts)
	if err != nil || count <= 1 {
		return err
	}
	number, err := f.splitValue(splitNumberKey, count-1)
	if err != nil {
		return err
	}
	base := filepath.Base(f.path)
	name := splitName.FindStringSubmatch(base)
	if name == nil || name[3] != fmt.Sprintf("%05d", count) || name[2] != fmt.Sprintf("%05d", number+1) {
		return f.KeyError(splitCountKey, "parts make the model, so this file's name must end in -%05d-of-%05d.gguf", number+1, count)
	}
	part := func(i int) string {
		return filepath.Join(filepath.Dir(f.path), fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count))
	}
	if number != 0 {
		return f.KeyError(splitNumberKey, "is not the first part, 0: open %s", part(0))
	}
	for i := 1; i < count; i++ {
		if err := f.joinPart(part(i), i, count, maps); err != nil {
			return err
		}
	}
	want, err := f.splitValue(splitTensorsKey, maxTensors)
	if err == nil && want > 0 && want != len(f.tensors) {
		err = f.KeyError(splitTensorsKey, "tensors are claimed, but the parts hold %d", len(f.tensors))
	}
	return err
}

// joinPart opens part i (from 0) and takes over its tensors.
func (f *File) joinPart(path string, i, count int, maps *mappings) error {
	m, err := mapfile.Open(path)
	if err != nil {
		return fmt.Errorf("%s: part %d of %d: %w", f.path, i+1, count, err)
	}
	maps.files = append(maps.files, m)
	f.further = append(f.further, path)
	g, err := parsePart(path, m.Data)
	if err != nil {
		return err
	}
	maps.headBytes = append(maps.headBytes, g.headBytes)
	for _, of := range []struct {
		key  string
		want int
	}{{splitNumberKey, i}, {splitCountKey, count}} {
		if v, ok := g.Uint(of.key); !ok || v != uint64(of.want) {
			return g.KeyError(of.key, "is missing or not that of this part, want %d", of.want)
		}
	}
	if len(f.tensors)+len(g.tensors) > maxTensors {
		return &Error{File: path, Offset: -1, Value: len(g.tensors),
			Reason: fmt.Sprintf("tensors bring the model above %d", maxTensors)}
	}
	for _, t := range g.tensors {
		if _, dup := f.byName[t.Name]; dup {
			return g.TensorError(t.Name, "the tensor is in an earlier part already")
		}
		f.byName[t.Name] = t
	}
	f.tensors = append(f.tensors, g.tensors...)
	return nil
}

// splitValue returns one of the split keys, 0 when it is absent.
func (f *File) splitValue(key string, limit int) (int, error) {
	v, ok := f.meta[key]
	if !ok {
		return 0, nil
	}
	n, ok := v.Uint()
	if !ok || n > uint64(limit) {
		return 0, f.KeyError(key, "is not an integer from 0 to %d", limit)
	}
	return int(n), nil
}

// Package gguf reads and writes GGUF model files, versions 2 and 3.
//
// A file is, little-endian throughout:
//
//	"GGUF" | version u32 | tensor count u64 | key count u64
//	keys:    name string | kind u32 | value         string: length u64, bytes; array: kind u32, count u64, elements
//	tensors: name string | dimension count u32 | dimensions u64 each | type u32 | offset u64
//	padding to general.alignment (32 when absent)
//	tensor data, each at its offset from here, a multiple of the alignment
//
// Open maps the file: metadata scalars are copied, strings and arrays are decoded when asked for, tensor data is never
// copied. Every length is checked against the bytes that are left before it is used.
package gguf

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// File is an opened model: its metadata in file order and its tensors. All methods but Close may be called from several
// goroutines at once. Nothing of it may be used after Close.
type File struct {
	path    string
	further []string // paths of the other parts of a split model
	version uint32
	keys    []string
	meta    map[string]Value
	tensors []*Tensor
	byName  map[string]*Tensor
	close   func() error      // nil for Parse
	release func(data []byte) // nil for Parse

	headBytes   int                            // of this file before its tensor data
	fingerprint func() (sum [sha256.Size]byte) // nil for Parse
	explain     func(addr uintptr) error       // nil for Parse
}

// Tensor is one named matrix or vector of a file.
type Tensor struct {
	Name string
	Type Type
	Dims []int  // innermost first: Dims[0] is the length of a row
	Data []byte // the blocks, row after row; aliases the mapped file
	file string // the part it is in
	at   int    // byte of the file where it is described
}

// File returns the path of the file or part that holds the tensor, or the name given to Parse.
func (t *Tensor) File() string { return t.file }

// Cols returns the length of a row.
func (t *Tensor) Cols() int { return t.Dims[0] }

// Rows returns the number of rows: the product of all dimensions but the first.
func (t *Tensor) Rows() int {
	rows := 1
	for _, d := range t.Dims[1:] {
		rows *= d
	}
	return rows
}

// Path returns the path that was opened.
func (f *File) Path() string { return f.path }

// Paths returns the files that the model is read from: more than one where it is split.
func (f *File) Paths() []string { return append([]string{f.path}, f.further...) }

// Version returns the format version, 2 or 3.
func (f *File) Version() int { return int(f.version) }

// Keys returns the metadata keys in file order.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Value returns a metadata value.
func (f *File) Value(key string) (Value, bool) {
	v, ok := f.meta[key]
	return v, ok
}

// String returns a string; false when the key is absent or of another kind.
func (f *File) String(key string) (string, bool) {
	v, ok := f.meta[key]
	s, is := v.Text()
	return s, ok && is
}

// Uint returns a non-negative integer of any kind; false when the key is absent or something else.
func (f *File) Uint(key string) (uint64, bool) {
	v, ok := f.meta[key]
	u, is := v.Uint()
	return u, ok && is
}

// Int returns an integer of any kind; false when the key is absent or something else.
func (f *File) Int(key string) (int64, bool) {
	v, ok := f.meta[key]
	i, is := v.Int()
	return i, ok && is
}

// Float returns a float or integer as float64; false when the key is absent or something else.
func (f *File) Float(key string) (float64, bool) {
	v, ok := f.meta[key]
	x, is := v.Float()
	return x, ok && is
}

// Bool returns a bool; false, false when the key is absent or of another kind.
func (f *File) Bool(key string) (value, ok bool) {
	v, ok := f.meta[key]
	b, is := v.Bool()
	return b, ok && is
}

// Strings returns an array of strings; nil when the key is absent or something else. The strings share one copy of the
// file's bytes, so they outlive Close.
func (f *File) Strings(key string) []string {
	v, ok := f.meta[key]
	if !ok || v.kind != KindArray || v.elem != KindString {
		return nil
	}
	text := string(v.raw)
	all := make([]string, 0, v.n)
	off := 0
	for e := range v.All() {
		off += 8
		all = append(all, text[off:off+len(e.raw)])
		off += len(e.raw)
	}
	return all
}

// Ints returns an array of integers of any kind; nil when the key is absent, something else, or an element does not fit.
func (f *File) Ints(key string) []int64 {
	return collect(f.meta[key], func(e Value) (int64, bool) { return e.Int() })
}

// Floats returns an array of floats or integers as float32; nil when the key is absent or something else.
func (f *File) Floats(key string) []float32 {
	return collect(f.meta[key], func(e Value) (float32, bool) {
		x, ok := e.Float()
		return float32(x), ok
	})
}

// Bools returns an array of bools; nil when the key is absent or something else.
func (f *File) Bools(key string) []bool {
	return collect(f.meta[key], func(e Value) (bool, bool) { return e.Bool() })
}

func collect[T any](v Value, get func(Value) (T, bool)) []T {
	if v.kind != KindArray || v.elem == KindString || v.elem == KindArray {
		return nil
	}
	all := make([]T, 0, v.n)
	for e := range v.All() {
		x, ok := get(e)
		if !ok {
			return nil
		}
		all = append(all, x)
	}
	return all
}

// Tensor returns a tensor by name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	t, ok := f.byName[name]
	return t, ok
}

// Tensors returns all tensors in file order, parts of a split file one after the other.
func (f *File) Tensors() []*Tensor { return slices.Clone(f.tensors) }

// KeyError makes an *Error about a key, with its place and value where the file has it.
func (f *File) KeyError(key, reason string, args ...any) error {
	e := &Error{File: f.path, Key: key, Offset: -1, Reason: fmt.Sprintf(reason, args...)}
	if v, ok := f.meta[key]; ok {
		e.Offset = int64(v.at)
		if v.kind != KindArray {
			e.Value = v.Any()
		}
	}
	return e
}

// TensorError makes an *Error about a tensor, with its place where the file has it.
func (f *File) TensorError(name, reason string, args ...any) error {
	e := &Error{File: f.path, Tensor: name, Offset: -1, Reason: fmt.Sprintf(reason, args...)}
	if t, ok := f.byName[name]; ok {
		e.File, e.Offset = t.file, int64(t.at)
	}
	return e
}

// Release tells the system that the pages of a tensor are not needed soon, so that they stop counting as this process's
// memory. Its Data stays valid and is read from the file again when used. It does nothing where that is not supported.
func (f *File) Release(t *Tensor) {
	if f.release != nil && f.byName[t.Name] == t {
		f.release(t.Data)
	}
}

// Fingerprint identifies the state of the opened files by their names, sizes, times, headers and samples of their tensor data.
// It reports false for a file that was parsed from memory.
func (f *File) Fingerprint() (sum [sha256.Size]byte, ok bool) {
	if f.fingerprint == nil {
		return sum, false
	}
	return f.fingerprint(), true
}

// Explain returns a *machine.ChangedError when one of the opened files is mapped at addr, where a read failed, and nil otherwise.
func (f *File) Explain(addr uintptr) error {
	if f.explain == nil {
		return nil
	}
	return f.explain(addr)
}

// Close unmaps the file. Tensor data and unread values are gone afterwards.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	done := f.close
	f.close, f.release, f.fingerprint, f.explain = nil, nil, nil, nil
	f.keys, f.meta, f.tensors, f.byName = nil, nil, nil, nil
	return done()
}

package gguf

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzParse feeds the reader arbitrary bytes: it must return a *Error or a file whose every value and tensor can be read,
// and which is the same after being written and read again.
func FuzzParse(f *testing.F) {
	f.Add(bytesOf(f, sample()))
	small := NewWriter()
	small.Set("general.architecture", "llama")
	small.Set("split.count", uint16(1))
	small.AddTensor("output_norm.weight", TypeF32, []int{2}, ramp(8))
	f.Add(bytesOf(f, small))
	small.version = 2
	f.Add(bytesOf(f, small))
	for _, c := range hostileFiles() {
		if len(c.data) < 1<<12 {
			f.Add([]byte(c.data))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz.gguf", data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.File != "fuzz.gguf" || e.Reason == "" || e.Offset > int64(len(data)) {
				t.Fatalf("error without file, place or reason: %#v", err)
			}
			return
		}
		useAll(file)
		rewritten := rewrite(file)
		var b bytes.Buffer
		if _, err := rewritten.WriteTo(&b); err != nil {
			t.Fatalf("a file that can be read cannot be written: %v", err)
		}
		again, err := Parse("again.gguf", b.Bytes())
		if err != nil {
			t.Fatalf("a file that was written cannot be read: %v", err)
		}
		var b2 bytes.Buffer
		if _, err := rewrite(again).WriteTo(&b2); err != nil || !bytes.Equal(b.Bytes(), b2.Bytes()) {
			t.Fatalf("the second copy differs from the first: %v", err)
		}
	})
}

// rewrite puts all of a file into a Writer.
func rewrite(f *File) *Writer {
	w := NewWriter()
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		w.Set(key, v)
	}
	for _, t := range f.Tensors() {
		w.AddTensor(t.Name, t.Type, t.Dims, t.Data)
	}
	return w
}

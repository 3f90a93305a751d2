package gguf

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"unicode/utf8"

	"quickdraft/internal/disk"
)

// Writer collects metadata and tensors and writes them as a version 3 file. The first thing that is wrong is kept and
// returned by WriteTo and WriteFile.
type Writer struct {
	version uint32
	keys    []string
	meta    map[string]Value
	tensors []pending
	names   map[string]bool
	err     error
}

// pending is a tensor to be written.
type pending struct {
	name  string
	typ   Type
	dims  []int
	size  int64
	write func(io.Writer) error
}

// NewWriter returns an empty Writer.
func NewWriter() *Writer {
	return &Writer{version: 3, meta: map[string]Value{}, names: map[string]bool{}}
}

// Set gives a key its value: a Value, a fixed-size integer, a float, a bool, a string, or a slice of these. A key that
// is set again keeps its place.
func (w *Writer) Set(key string, value any) {
	v, ok := ValueOf(value)
	switch {
	case !ok:
		w.fail(fmt.Errorf("gguf: key %s: a %T is not a metadata value", quote(key), value))
	case key == "" || len(key) > maxNameBytes || !utf8.ValidString(key):
		w.fail(fmt.Errorf("gguf: key %s: is not a name, want 1 to %d bytes of UTF-8", quote(key), maxNameBytes))
	default:
		if _, there := w.meta[key]; !there {
			w.keys = append(w.keys, key)
		}
		w.meta[key] = v
	}
}

// AddTensor adds a tensor with dims innermost first; data holds its blocks and is not copied.
func (w *Writer) AddTensor(name string, typ Type, dims []int, data []byte) {
	w.AddTensorFunc(name, typ, dims, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// AddTensorFunc adds a tensor whose blocks are produced by write when the file is written; it must write exactly the
// bytes that typ and dims ask for. WriteTo calls the functions in the order of their tensors.
func (w *Writer) AddTensorFunc(name string, typ Type, dims []int, write func(io.Writer) error) {
	size, err := tensorBytes(name, typ, dims)
	if err == nil && w.names[name] {
		err = fmt.Errorf("gguf: tensor %s: is added twice", quote(name))
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.names[name] = true
	w.tensors = append(w.tensors, pending{name, typ, append([]int(nil), dims...), size, write})
}

func tensorBytes(name string, typ Type, dims []int) (int64, error) {
	switch {
	case name == "" || len(name) > maxNameBytes || !utf8.ValidString(name):
		return 0, fmt.Errorf("gguf: tensor %s: is not a name, want 1 to %d bytes of UTF-8", quote(name), maxNameBytes)
	case !typ.Known():
		return 0, fmt.Errorf("gguf: tensor %s: %s is not a known type, want one of %s", quote(name), typ, typeNames())
	case len(dims) == 0 || len(dims) > maxDims:
		return 0, fmt.Errorf("gguf: tensor %s: has %d dimensions, want 1 to %d", quote(name), len(dims), maxDims)
	case dims[0]%typ.BlockSize() != 0:
		return 0, fmt.Errorf("gguf: tensor %s: %d columns do not fill blocks of %s, want a multiple of %d", quote(name), dims[0],
			typ, typ.BlockSize())
	}
	size := uint64(typ.BlockBytes())
	for i, d := range dims {
		n := uint64(max(d, 0))
		if i == 0 {
			n /= uint64(typ.BlockSize())
		}
		hi, lo := bits.Mul64(size, n)
		if d <= 0 || hi != 0 || lo > math.MaxInt64/2 {
			return 0, fmt.Errorf("gguf: tensor %s: dimensions %v are not positive or too large", quote(name), dims)
		}
		size = lo
	}
	return int64(size), nil
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// WriteFile writes the file under a temporary name beside path and renames it when it is complete and on disk.
// The error names path.
func (w *Writer) WriteFile(path string) error { return w.WriteFileContext(context.Background(), path) }

// WriteFileContext is WriteFile that leaves no file when ctx ends before all is written.
func (w *Writer) WriteFileContext(ctx context.Context, path string) error {
	f, err := disk.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := w.WriteTo(endable{ctx, f}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Commit()
}

// endable is a writer that fails once ctx has ended.
type endable struct {
	ctx context.Context
	io.Writer
}

// Write writes b unless ctx has ended.
func (e endable) Write(b []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.Writer.Write(b)
}

// WriteTo writes the file and returns the bytes written.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	align, err := w.alignment()
	if err != nil {
		return 0, err
	}
	buf := bufio.NewWriterSize(out, 1<<20)
	c := &counter{w: buf}
	if err := w.writeHeader(c, align); err != nil {
		return c.n, err
	}
	for _, t := range w.tensors {
		if err := c.pad(align); err != nil {
			return c.n, err
		}
		if err := t.writeData(c); err != nil {
			return c.n, fmt.Errorf("gguf: tensor %s: %w", quote(t.name), err)
		}
	}
	if err := c.pad(align); err != nil {
		return c.n, err
	}
	return c.n, buf.Flush()
}

func (w *Writer) alignment() (int64, error) {
	v, ok := w.meta[alignmentKey]
	if !ok {
		return defaultAlign, nil
	}
	align, ok := v.Uint()
	if !ok || !goodAlignment(align) {
		return 0, fmt.Errorf("gguf: key %q: %v %s", alignmentKey, v.Any(), wantAlignment)
	}
	return int64(align), nil
}

func (t *pending) writeData(c *counter) error {
	before := c.n
	c.limit = before + t.size
	err := t.write(c)
	c.limit = 0
	if err == nil && c.n-before != t.size {
		err = fmt.Errorf("%d bytes were written, %s %v takes %d", c.n-before, t.typ, t.dims, t.size)
	}
	return err
}

// writeHeader writes everything before the tensor data but the padding.
func (w *Writer) writeHeader(c *counter, align int64) error {
	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, w.version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.keys)))
	for _, key := range w.keys {
		v := w.meta[key]
		b = appendString(b, []byte(key))
		b = binary.LittleEndian.AppendUint32(b, uint32(v.kind))
		b = v.appendTo(b)
	}
	offset := int64(0)
	for _, t := range w.tensors {
		b = appendString(b, []byte(t.name))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.dims)))
		for _, d := range t.dims {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.typ))
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		offset += (t.size + align - 1) / align * align
	}
	_, err := c.Write(b)
	return err
}

func appendString(b, s []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendTo appends the value as a file stores it, without its kind.
func (v Value) appendTo(b []byte) []byte {
	switch {
	case v.kind == KindString:
		return appendString(b, v.raw)
	case v.kind == KindArray:
		b = binary.LittleEndian.AppendUint32(b, uint32(v.elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.n))
		return append(b, v.raw...)
	}
	b = binary.LittleEndian.AppendUint64(b, v.bits)
	return b[:len(b)-8+v.kind.size()]
}

// counter counts bytes and refuses those beyond limit, where one is set.
type counter struct {
	w     io.Writer
	n     int64
	limit int64
}

func (c *counter) Write(b []byte) (int, error) {
	if c.limit > 0 && int64(len(b)) > c.limit-c.n {
		return 0, fmt.Errorf("%d bytes more than its type and dimensions ask for are written", c.n+int64(len(b))-c.limit)
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func (c *counter) pad(align int64) error {
	_, err := c.Write(make([]byte, (align-c.n%align)%align))
	return err
}

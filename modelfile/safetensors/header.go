package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Tensor is one named matrix or vector of a checkpoint.
type Tensor struct {
	Name  string
	DType string // "F32", "F16" or "BF16"
	Shape []int  // outermost first, as PyTorch prints it: (rows, cols); empty for a single number
	Data  []byte // little-endian, row after row; aliases the mapped file
	file  string
}

// File returns the path of the file or shard that holds the tensor.
func (t *Tensor) File() string { return t.file }

// Cols returns the length of a row: the last dimension, 1 for a single number.
func (t *Tensor) Cols() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// Rows returns the number of rows: the product of all dimensions but the last.
func (t *Tensor) Rows() int {
	rows := 1
	for _, d := range t.Shape[:max(len(t.Shape)-1, 0)] {
		rows *= d
	}
	return rows
}

// Names of the element types. Weights come in the first three; integer tensors are buffers that no architecture reads,
// checked and then left out.
var (
	weightBytes = map[string]int{"F32": 4, "F16": 2, "BF16": 2}
	bufferBytes = map[string]int{"BOOL": 1, "I8": 1, "U8": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8, "U64": 8}
)

const (
	lengthBytes = 8 // of the header's length at the start of a file
	maxDims     = 8
	metadataKey = "__metadata__"
)

// entry is a tensor with the place of its bytes in the data section.
type entry struct {
	Tensor
	start, end int64
	weights    bool // not a buffer
}

// parseFile reads a whole safetensors file from memory:
//
//	header length u64, little-endian | header: JSON {name: {"dtype", "shape", "data_offsets": [start, end]}} | data
//
// name stands for the path in errors. Offsets count from the start of the data section; the tensors must fill it without
// gap or overlap. The entries refer to data, which must not change. They come in header order, buffers among them.
func parseFile(name string, data []byte) ([]entry, error) {
	header, body, err := splitHeader(name, data)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, m := range header.members {
		if m.key == metadataKey {
			if err := checkMetadata(header, m); err != nil {
				return nil, err
			}
			continue
		}
		e, err := parseEntry(header, m, int64(len(body)))
		if err != nil {
			return nil, err
		}
		e.Data = body[e.start:e.end:e.end]
		entries = append(entries, e)
	}
	return entries, checkLayout(name, entries, int64(len(body)))
}

// checkMetadata checks the notes that a header may carry: an object of strings, which nothing reads.
func checkMetadata(header *Object, m member) error {
	notes, ok := m.value.(*Object)
	if !ok {
		return header.Errorf(m.key, "is not an object of strings")
	}
	for _, note := range notes.members {
		if _, ok := note.value.(string); !ok {
			return notes.Errorf(note.key, "is not a string")
		}
	}
	return nil
}

// splitHeader parses the header and returns what follows it.
func splitHeader(name string, data []byte) (*Object, []byte, error) {
	if len(data) < lengthBytes {
		return nil, nil, &Error{File: name, Offset: 0, Value: len(data), Reason: "bytes are too few for the header's length, want 8 and the header"}
	}
	n := binary.LittleEndian.Uint64(data)
	data = data[lengthBytes:]
	if n > uint64(len(data)) {
		return nil, nil, &Error{File: name, Offset: 0, Value: n, Reason: fmt.Sprintf("is the header's length, but only %d bytes are left", len(data))}
	}
	if n > maxJSONBytes {
		return nil, nil, &Error{File: name, Offset: 0, Value: n, Reason: fmt.Sprintf("is the header's length, want at most %d", maxJSONBytes)}
	}
	if n == 0 || data[0] != '{' {
		return nil, nil, &Error{File: name, Offset: lengthBytes, Reason: `the header does not start with "{"`}
	}
	header, err := parseJSON(name, lengthBytes, data[:n], decode)
	return header, data[n:], err
}

// parseEntry reads a header entry and checks it by itself; room is the length of the data section.
func parseEntry(header *Object, m member, room int64) (entry, error) {
	e := entry{Tensor: Tensor{Name: m.key, file: header.file}}
	o, ok := m.value.(*Object)
	if !ok || m.key == "" {
		return e, header.Errorf(m.key, "is not the description of a tensor, want a name and {\"dtype\", \"shape\", \"data_offsets\"}")
	}
	fail := func(key, reason string, args ...any) error {
		v, there := o.Get(key)
		if !there {
			_, want, _ := strings.Cut(reason, ", want ")
			reason = "is missing, want " + want
		}
		return &Error{File: header.file, Tensor: m.key, Key: key, Offset: -1, Value: found(v, there), Reason: fmt.Sprintf(reason, args...)}
	}
	e.DType, ok, _ = o.String("dtype")
	size, isWeights := weightBytes[e.DType]
	if !isWeights {
		size = bufferBytes[e.DType]
	}
	if !ok || size == 0 {
		return e, fail("dtype", "is not a type that can be read, want F32, F16 or BF16")
	}
	e.weights = isWeights
	var count int64
	if e.Shape, count, ok = shape(o); !ok {
		return e, fail("shape", "is not a shape, want up to %d dimensions of at least 1 with a product below 2^63", maxDims)
	}
	ends, ok := integers(o, "data_offsets")
	if !ok || len(ends) != 2 || ends[0] < 0 || ends[1] < ends[0] || ends[1] > room {
		return e, fail("data_offsets", "are not two offsets, want [start, end] with start <= end <= %d, the bytes of data", room)
	}
	e.start, e.end = ends[0], ends[1]
	if want, have := uint64(count), uint64(e.end-e.start); have%uint64(size) != 0 || have/uint64(size) != want {
		return e, fail("data_offsets", "span %d bytes, but %s %v has %d numbers of %d bytes", have, e.DType, e.Shape, want, size)
	}
	return e, nil
}

// shape returns the dimensions and their product.
func shape(o *Object) (dims []int, count int64, ok bool) {
	list, ok := integers(o, "shape")
	if !ok || len(list) > maxDims {
		return nil, 0, false
	}
	product := uint64(1)
	for _, d := range list {
		hi, lo := bits.Mul64(product, uint64(d))
		if d <= 0 || hi != 0 || lo > math.MaxInt {
			return nil, 0, false
		}
		product = lo
		dims = append(dims, int(d))
	}
	return dims, int64(product), true
}

// integers returns an array of numbers that are written as integers.
func integers(o *Object, key string) ([]int64, bool) {
	list, ok, _ := o.Array(key)
	if !ok {
		return nil, false
	}
	all := make([]int64, len(list))
	for i, e := range list {
		if all[i], ok = e.(int64); !ok {
			return nil, false
		}
	}
	return all, true
}

// checkLayout checks that the tensors fill the data section from start to end.
func checkLayout(name string, entries []entry, size int64) error {
	inOrder := slices.SortedFunc(slices.Values(entries), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	end := int64(0)
	for _, e := range inOrder {
		if e.start != end {
			what := "overlaps the tensor before it"
			if e.start > end {
				what = "leaves a gap after the tensor before it"
			}
			return &Error{File: name, Tensor: e.Name, Key: "data_offsets", Offset: -1, Value: e.start,
				Reason: fmt.Sprintf("as start %s, which ends at %d", what, end)}
		}
		end = e.end
	}
	if end != size {
		return &Error{File: name, Offset: -1, Value: size, Reason: fmt.Sprintf("bytes of data are there, but the tensors end at %d", end)}
	}
	return nil
}

package gguf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// Limits on what a file may hold. Real models stay a factor of ten below them; a hostile file that keeps to them costs
// at most some tens of MiB and some tens of milliseconds.
const (
	maxKeys         = 1 << 16
	maxTensors      = 1 << 16
	maxDims         = 4
	maxDepth        = 4       // arrays inside arrays
	maxElements     = 1 << 21 // elements of one array
	maxStrings      = 1 << 21 // elements of string and array arrays in the whole file
	maxStringBytes  = 1 << 26
	maxNameBytes    = 1<<16 - 1 // one key or tensor name
	maxAllNameBytes = 1 << 24   // all of them
	maxAlignment    = 1 << 20
	minKeyBytes     = 8 + 1 + 4 + 1         // a key of one letter with a value of one byte
	minTensorBytes  = 8 + 1 + 4 + 8 + 4 + 8 // a tensor of one letter and one dimension
	defaultAlign    = 32
	alignmentKey    = "general.alignment"
)

// parser walks the bytes of one file once, front to back.
type parser struct {
	file      string
	data      []byte
	off       int
	key       string // the key being read, for errors
	tensor    string // the tensor being read, for errors
	strings   int    // elements counted against maxStrings
	nameBytes int    // bytes counted against maxAllNameBytes
}

func (p *parser) fail(at int, value any, reason string, args ...any) error {
	return &Error{File: p.file, Key: p.key, Tensor: p.tensor, Offset: int64(at), Value: value,
		Reason: fmt.Sprintf(reason, args...)}
}

func (p *parser) left() int { return len(p.data) - p.off }

func (p *parser) need(n int, what string) error {
	if p.left() < n {
		return p.fail(p.off, nil, "the file ends inside %s: %d bytes left, want %d", what, p.left(), n)
	}
	return nil
}

func (p *parser) u32(what string) (uint32, error) {
	if err := p.need(4, what); err != nil {
		return 0, err
	}
	p.off += 4
	return binary.LittleEndian.Uint32(p.data[p.off-4:]), nil
}

func (p *parser) u64(what string) (uint64, error) {
	if err := p.need(8, what); err != nil {
		return 0, err
	}
	p.off += 8
	return binary.LittleEndian.Uint64(p.data[p.off-8:]), nil
}

// str returns the bytes of a string, not copied.
func (p *parser) str(what string, limit int) ([]byte, error) {
	at := p.off
	n, err := p.u64(what)
	if err != nil {
		return nil, err
	}
	if n > uint64(p.left()) {
		return nil, p.fail(at, n, "is the length of %s, but only %d bytes are left", what, p.left())
	}
	if n > uint64(limit) {
		return nil, p.fail(at, n, "is the length of %s, want at most %d", what, limit)
	}
	p.off += int(n)
	return p.data[p.off-int(n) : p.off], nil
}

// name returns a copy of a key or tensor name.
func (p *parser) name(what string) (string, error) {
	at := p.off
	raw, err := p.str(what, maxNameBytes)
	if err != nil {
		return "", err
	}
	p.nameBytes += len(raw)
	switch {
	case len(raw) == 0:
		return "", p.fail(at, nil, "%s is empty", what)
	case !utf8.Valid(raw):
		return "", p.fail(at, string(raw), "%s is not valid UTF-8", what)
	case p.nameBytes > maxAllNameBytes:
		return "", p.fail(at, nil, "names take more than %d bytes in all", maxAllNameBytes)
	}
	return string(raw), nil
}

// header checks magic and version and returns the counts.
func (p *parser) header() (version uint32, nTensors, nKeys int, err error) {
	magic, err := p.u32("the magic number")
	if err != nil {
		return 0, 0, 0, err
	}
	if magic != 'G'|'G'<<8|'U'<<16|'F'<<24 {
		return 0, 0, 0, p.fail(0, string(p.data[:4]), `is not the magic number "GGUF"`)
	}
	if version, err = p.u32("the version"); err != nil {
		return 0, 0, 0, err
	}
	if version != 2 && version != 3 {
		hint := ""
		if v := bits.ReverseBytes32(version); v == 2 || v == 3 {
			hint = ": the file is big-endian"
		}
		return 0, 0, 0, p.fail(4, version, "is not a version that can be read, want 2 or 3%s", hint)
	}
	if nTensors, err = p.count("tensors", maxTensors, minTensorBytes); err != nil {
		return 0, 0, 0, err
	}
	if nKeys, err = p.count("keys", maxKeys, minKeyBytes); err != nil {
		return 0, 0, 0, err
	}
	if nTensors == 0 && nKeys == 0 {
		return 0, 0, 0, p.fail(8, nil, `the file has no keys and no tensors, want at least the key "general.architecture"`)
	}
	return version, nTensors, nKeys, nil
}

func (p *parser) count(what string, limit, minBytes int) (int, error) {
	at := p.off
	n, err := p.u64("the number of " + what)
	if err != nil {
		return 0, err
	}
	if n > uint64(limit) {
		return 0, p.fail(at, n, "%s are claimed, want at most %d", what, limit)
	}
	if n*uint64(minBytes) > uint64(p.left()) {
		return 0, p.fail(at, n, "%s are claimed, but only %d bytes are left", what, p.left())
	}
	return int(n), nil
}

// metadata reads the keys into f.
func (p *parser) metadata(f *File, nKeys int) error {
	f.keys = make([]string, 0, nKeys)
	f.meta = make(map[string]Value, nKeys)
	for i := range nKeys {
		p.key = ""
		at := p.off
		key, err := p.name(fmt.Sprintf("the name of key %d", i))
		if err != nil {
			return err
		}
		p.key = key
		if _, dup := f.meta[key]; dup {
			return p.fail(at, nil, "the key is there twice")
		}
		kind, err := p.kind("the value's kind")
		if err != nil {
			return err
		}
		valueAt := p.off
		value, err := p.value(kind, 0)
		if err != nil {
			return err
		}
		value.at = valueAt
		f.keys = append(f.keys, key)
		f.meta[key] = value
	}
	p.key = ""
	return nil
}

func (p *parser) kind(what string) (Kind, error) {
	at := p.off
	id, err := p.u32(what)
	if err != nil {
		return 0, err
	}
	if !Kind(id).known() {
		return 0, p.fail(at, id, "is not a kind of value, want 0 to %d", len(kinds)-1)
	}
	return Kind(id), nil
}

// value reads one value; depth counts the arrays around it.
func (p *parser) value(kind Kind, depth int) (Value, error) {
	switch kind {
	case KindString:
		raw, err := p.str("a string", maxStringBytes)
		return Value{kind: kind, raw: raw}, err
	case KindArray:
		return p.array(depth)
	}
	at, size := p.off, kind.size()
	if err := p.need(size, "a "+kind.String()); err != nil {
		return Value{}, err
	}
	p.off += size
	if kind == KindBool && p.data[at] > 1 {
		return Value{}, p.fail(at, p.data[at], "is not a bool, want 0 or 1")
	}
	return Value{kind: kind, bits: scalar(kind, p.data[at:])}, nil
}

func (p *parser) array(depth int) (Value, error) {
	at := p.off
	if depth == maxDepth {
		return Value{}, p.fail(at, nil, "arrays lie inside arrays more than %d deep", maxDepth)
	}
	elem, err := p.kind("the kind of an array's elements")
	if err != nil {
		return Value{}, err
	}
	count, err := p.u64("the length of an array")
	if err != nil {
		return Value{}, err
	}
	minBytes := max(elem.size(), 1)
	switch elem {
	case KindString:
		minBytes = 8
	case KindArray:
		minBytes = 12
	}
	if count > uint64(p.left()/minBytes) {
		return Value{}, p.fail(at+4, count, "%s elements are claimed, but only %d bytes are left", elem, p.left())
	}
	if count > maxElements {
		return Value{}, p.fail(at+4, count, "elements are in an array, want at most %d", maxElements)
	}
	v := Value{kind: KindArray, elem: elem, n: int(count)}
	start := p.off
	if err := p.elements(elem, v.n, depth); err != nil {
		return Value{}, err
	}
	v.raw = p.data[start:p.off:p.off]
	return v, nil
}

// elements walks over n elements of an array, checking each that can be wrong.
func (p *parser) elements(elem Kind, n, depth int) error {
	switch elem {
	case KindString, KindArray:
		if p.strings += n; p.strings > maxStrings {
			return p.fail(p.off, n, "more elements bring the file's arrays above %d strings", maxStrings)
		}
	case KindBool:
	default:
		p.off += n * elem.size()
		return nil
	}
	for range n {
		if _, err := p.value(elem, depth+1); err != nil {
			return err
		}
	}
	return nil
}

package gguf

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// Kind is the type of a metadata value, with the id that files carry.
type Kind uint32

// The metadata kinds of the format.
const (
	KindUint8 Kind = iota
	KindInt8
	KindUint16
	KindInt16
	KindUint32
	KindInt32
	KindFloat32
	KindBool
	KindString
	KindArray
	KindUint64
	KindInt64
	KindFloat64
)

// kinds holds each kind's name and its size in bytes; 0 where values differ in length.
var kinds = [...]struct {
	name string
	size int
}{
	KindUint8: {"uint8", 1}, KindInt8: {"int8", 1}, KindUint16: {"uint16", 2}, KindInt16: {"int16", 2},
	KindUint32: {"uint32", 4}, KindInt32: {"int32", 4}, KindFloat32: {"float32", 4}, KindBool: {"bool", 1},
	KindString: {"string", 0}, KindArray: {"array", 0}, KindUint64: {"uint64", 8}, KindInt64: {"int64", 8},
	KindFloat64: {"float64", 8},
}

// String returns the kind's name ("uint32"), or "kind 13" for an id the format does not have.
func (k Kind) String() string {
	if !k.known() {
		return fmt.Sprintf("kind %d", uint32(k))
	}
	return kinds[k].name
}

func (k Kind) known() bool { return int64(k) < int64(len(kinds)) }

// size returns the bytes of one value; 0 for strings and arrays.
func (k Kind) size() int { return kinds[k].size }

// Value is one metadata value. Scalars are held in it; strings and arrays refer to the file's bytes, so a Value of
// those kinds must not be used after File.Close.
type Value struct {
	kind Kind
	elem Kind   // arrays: kind of the elements
	n    int    // arrays: number of elements
	bits uint64 // scalars: the value's bits, sign-extended for signed integers
	raw  []byte // strings: the bytes; arrays: the elements as the file stores them
	at   int    // byte of the file where the value lies; 0 for one that is not a key's
}

// Kind returns the value's kind.
func (v Value) Kind() Kind { return v.kind }

// Elem returns the kind of an array's elements. It has no meaning for other kinds.
func (v Value) Elem() Kind { return v.elem }

// Len returns the number of elements of an array, the bytes of a string, and 0 for scalars.
func (v Value) Len() int {
	if v.kind == KindString {
		return len(v.raw)
	}
	return v.n
}

// Uint returns an integer of any kind that is not negative.
func (v Value) Uint() (uint64, bool) {
	switch v.kind {
	case KindUint8, KindUint16, KindUint32, KindUint64:
		return v.bits, true
	case KindInt8, KindInt16, KindInt32, KindInt64:
		return v.bits, int64(v.bits) >= 0
	}
	return 0, false
}

// Int returns an integer of any kind that fits int64.
func (v Value) Int() (int64, bool) {
	switch v.kind {
	case KindUint8, KindUint16, KindUint32, KindUint64:
		return int64(v.bits), int64(v.bits) >= 0
	case KindInt8, KindInt16, KindInt32, KindInt64:
		return int64(v.bits), true
	}
	return 0, false
}

// Float returns a float of either kind, or an integer as a float.
func (v Value) Float() (float64, bool) {
	switch v.kind {
	case KindFloat32:
		return float64(math.Float32frombits(uint32(v.bits))), true
	case KindFloat64:
		return math.Float64frombits(v.bits), true
	}
	if i, ok := v.Int(); ok {
		return float64(i), true
	}
	u, ok := v.Uint()
	return float64(u), ok
}

// Bool returns a bool.
func (v Value) Bool() (bool, bool) { return v.bits != 0, v.kind == KindBool }

// Text returns a copy of a string.
func (v Value) Text() (string, bool) { return string(v.raw), v.kind == KindString }

// All ranges over the elements of an array; over nothing for other kinds.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.kind != KindArray {
			return
		}
		raw := v.raw
		for range v.n {
			var e Value
			e, raw = next(v.elem, raw)
			if !yield(e) {
				return
			}
		}
	}
}

// Any returns the value as a Go value of the kind's own type (uint32, string, ...); an array as []any.
func (v Value) Any() any {
	switch v.kind {
	case KindUint8:
		return uint8(v.bits)
	case KindInt8:
		return int8(v.bits)
	case KindUint16:
		return uint16(v.bits)
	case KindInt16:
		return int16(v.bits)
	case KindUint32:
		return uint32(v.bits)
	case KindInt32:
		return int32(v.bits)
	case KindFloat32:
		return math.Float32frombits(uint32(v.bits))
	case KindBool:
		return v.bits != 0
	case KindString:
		return string(v.raw)
	case KindUint64:
		return v.bits
	case KindInt64:
		return int64(v.bits)
	case KindFloat64:
		return math.Float64frombits(v.bits)
	}
	all := make([]any, 0, v.n)
	for e := range v.All() {
		all = append(all, e.Any())
	}
	return all
}

// next takes one value of a kind off raw, which the reader has checked to hold it.
func next(kind Kind, raw []byte) (Value, []byte) {
	switch kind {
	case KindString:
		n := int(binary.LittleEndian.Uint64(raw))
		return Value{kind: kind, raw: raw[8 : 8+n]}, raw[8+n:]
	case KindArray:
		v := Value{kind: kind, elem: Kind(binary.LittleEndian.Uint32(raw)), n: int(binary.LittleEndian.Uint64(raw[4:]))}
		raw = raw[12:]
		rest := raw
		if size := v.elem.size(); size > 0 {
			rest = raw[v.n*size:]
		} else {
			for range v.n {
				_, rest = next(v.elem, rest)
			}
		}
		v.raw = raw[:len(raw)-len(rest)]
		return v, rest
	}
	size := kind.size()
	return Value{kind: kind, bits: scalar(kind, raw)}, raw[size:]
}

// scalar reads the bits of a number or bool, sign-extended for signed integers.
func scalar(kind Kind, raw []byte) uint64 {
	switch kind {
	case KindUint8, KindBool:
		return uint64(raw[0])
	case KindInt8:
		return uint64(int8(raw[0]))
	case KindUint16:
		return uint64(binary.LittleEndian.Uint16(raw))
	case KindInt16:
		return uint64(int16(binary.LittleEndian.Uint16(raw)))
	case KindUint32, KindFloat32:
		return uint64(binary.LittleEndian.Uint32(raw))
	case KindInt32:
		return uint64(int32(binary.LittleEndian.Uint32(raw)))
	}
	return binary.LittleEndian.Uint64(raw)
}

package gguf

import (
	"encoding/binary"
	"math"
)

// ValueOf makes a metadata value of a Go value: a fixed-size integer, a float, a bool, a string, a slice of these or of
// Values of one kind, or a Value, which is returned as it is. It reports false for anything else, int and uint included:
// files state the size of an integer, and readers elsewhere insist on it.
func ValueOf(x any) (Value, bool) {
	switch x := x.(type) {
	case Value:
		return x, true
	case string:
		return Value{kind: KindString, raw: []byte(x)}, true
	case []string:
		return arrayOf(KindString, x, func(b []byte, s string) []byte { return appendString(b, []byte(s)) }), true
	case []bool:
		return arrayOf(KindBool, x, func(b []byte, e bool) []byte { return append(b, byte(boolBits(e))) }), true
	case []Value:
		return arrayOfValues(x)
	}
	if kind, bits, ok := scalarOf(x); ok {
		return Value{kind: kind, bits: bits}, true
	}
	return numbersOf(x)
}

func scalarOf(x any) (Kind, uint64, bool) {
	switch x := x.(type) {
	case uint8:
		return KindUint8, uint64(x), true
	case int8:
		return KindInt8, uint64(x), true
	case uint16:
		return KindUint16, uint64(x), true
	case int16:
		return KindInt16, uint64(x), true
	case uint32:
		return KindUint32, uint64(x), true
	case int32:
		return KindInt32, uint64(x), true
	case uint64:
		return KindUint64, x, true
	case int64:
		return KindInt64, uint64(x), true
	case float32:
		return KindFloat32, uint64(math.Float32bits(x)), true
	case float64:
		return KindFloat64, math.Float64bits(x), true
	case bool:
		return KindBool, boolBits(x), true
	}
	return 0, 0, false
}

func numbersOf(x any) (Value, bool) {
	le := binary.LittleEndian
	switch x := x.(type) {
	case []uint8:
		return arrayOf(KindUint8, x, func(b []byte, e uint8) []byte { return append(b, e) }), true
	case []int8:
		return arrayOf(KindInt8, x, func(b []byte, e int8) []byte { return append(b, byte(e)) }), true
	case []uint16:
		return arrayOf(KindUint16, x, le.AppendUint16), true
	case []int16:
		return arrayOf(KindInt16, x, func(b []byte, e int16) []byte { return le.AppendUint16(b, uint16(e)) }), true
	case []uint32:
		return arrayOf(KindUint32, x, le.AppendUint32), true
	case []int32:
		return arrayOf(KindInt32, x, func(b []byte, e int32) []byte { return le.AppendUint32(b, uint32(e)) }), true
	case []uint64:
		return arrayOf(KindUint64, x, le.AppendUint64), true
	case []int64:
		return arrayOf(KindInt64, x, func(b []byte, e int64) []byte { return le.AppendUint64(b, uint64(e)) }), true
	case []float32:
		return arrayOf(KindFloat32, x, func(b []byte, e float32) []byte { return le.AppendUint32(b, math.Float32bits(e)) }), true
	case []float64:
		return arrayOf(KindFloat64, x, func(b []byte, e float64) []byte { return le.AppendUint64(b, math.Float64bits(e)) }), true
	}
	return Value{}, false
}

func arrayOf[T any](elem Kind, xs []T, add func([]byte, T) []byte) Value {
	v := Value{kind: KindArray, elem: elem, n: len(xs)}
	for _, x := range xs {
		v.raw = add(v.raw, x)
	}
	return v
}

func arrayOfValues(xs []Value) (Value, bool) {
	v := Value{kind: KindArray, n: len(xs)}
	for i, x := range xs {
		if i == 0 {
			v.elem = x.kind
		}
		if x.kind != v.elem {
			return Value{}, false
		}
		v.raw = x.appendTo(v.raw)
	}
	return v, true
}

func boolBits(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

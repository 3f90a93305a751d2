package gguf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// bytesOf writes what w holds.
func bytesOf(t testing.TB, w *Writer) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	return b.Bytes()
}

// everyKind has a value of each kind, arrays of each and arrays of arrays.
func everyKind() []struct {
	key   string
	value any
} {
	nested, _ := ValueOf([]Value{must([]int32{1, -2}), must([]string{"a", ""}), must([]bool{true})})
	deeper, _ := ValueOf([]Value{nested, must([]uint8{})})
	return []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"},
		{"u8", uint8(200)}, {"i8", int8(-100)}, {"u16", uint16(60000)}, {"i16", int16(-30000)},
		{"u32", uint32(4e9)}, {"i32", int32(-2e9)}, {"u64", uint64(1 << 63)}, {"i64", int64(-1 << 63)},
		{"f32", float32(1.5)}, {"f64", -2.25}, {"yes", true}, {"no", false}, {"empty", ""}, {"text", "h\x00\xffé"},
		{"u8s", []uint8{1, 255}}, {"i8s", []int8{-1, 1}}, {"u16s", []uint16{1, 65535}}, {"i16s", []int16{-1}},
		{"u32s", []uint32{1 << 31}}, {"i32s", []int32{-1, 7}}, {"u64s", []uint64{1 << 62}}, {"i64s", []int64{-5}},
		{"f32s", []float32{0.5, -0.5}}, {"f64s", []float64{0.25}}, {"bools", []bool{true, false}},
		{"strings", []string{"", "x", "longer \xf0"}}, {"none", []string{}},
		{"nested", nested}, {"deeper", deeper},
	}
}

func must(x any) Value {
	v, ok := ValueOf(x)
	if !ok {
		panic("not a metadata value")
	}
	return v
}

// sample is a small valid model with every kind of value and every type of tensor.
func sample() *Writer {
	w := NewWriter()
	for _, kv := range everyKind() {
		w.Set(kv.key, kv.value)
	}
	w.Set("tokenizer.ggml.tokens", []string{"<s>", "</s>", "a"})
	w.Set("tokenizer.ggml.eos_token_id", uint32(1))
	w.AddTensor("token_embd.weight", TypeF32, []int{4, 3}, ramp(48))
	for _, typ := range Types() {
		w.AddTensor("t."+typ.String(), typ, []int{256, 2, 3}, ramp(6*typ.RowBytes(256)))
	}
	return w
}

func ramp(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// raw builds files by hand, right and wrong.
type raw []byte

func header(version uint32, nTensors, nKeys uint64) raw {
	return raw("GGUF").u32(version).u64(nTensors).u64(nKeys)
}

func (r raw) u8(x uint8) raw     { return append(r, x) }
func (r raw) u32(x uint32) raw   { return binary.LittleEndian.AppendUint32(r, x) }
func (r raw) u64(x uint64) raw   { return binary.LittleEndian.AppendUint64(r, x) }
func (r raw) str(s string) raw   { return append(r.u64(uint64(len(s))), s...) }
func (r raw) zeros(n int) raw    { return append(r, make([]byte, n)...) }
func (r raw) kind(k Kind) raw    { return r.u32(uint32(k)) }
func (r raw) arch() raw          { return r.str("general.architecture").kind(KindString).str("llama") }
func (r raw) key(k string) raw   { return r.str(k).kind(KindUint8).u8(1) }
func (r raw) pad(align int) raw  { return r.zeros((align - len(r)%align) % align) }
func (r raw) align(a uint32) raw { return r.str("general.alignment").kind(KindUint32).u32(a) }

func (r raw) tensor(name string, typ Type, offset uint64, dims ...uint64) raw {
	r = r.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r = r.u64(d)
	}
	return r.u32(uint32(typ)).u64(offset)
}

// tokens adds the keys of a vocabulary of n tokens.
func (r raw) tokens(n int) raw {
	r = r.str("tokenizer.ggml.tokens").kind(KindArray).kind(KindString).u64(uint64(n))
	for range n {
		r = r.str("t")
	}
	return r
}

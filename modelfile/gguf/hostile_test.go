package gguf

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/invariants"
)

// hostile is a file that must be refused, and what the error must say.
type hostile struct {
	name   string
	data   raw
	key    string
	tensor string
	offset int64
	reason string
}

const (
	firstKey    = 24 // where the keys start
	firstValue  = firstKey + 8 + 1 + 4
	firstTensor = 24 + 14 // after one key of one letter and one byte
)

// oneKey is a file of no tensors whose only key "k" has the kind and what follows.
func oneKey(kind uint32) raw { return header(3, 0, 1).str("k").u32(kind) }

// tensors is a file with one key and n tensors to follow.
func tensors(n uint64) raw { return header(3, n, 1).key("k") }

func nested(depth int) raw {
	r := oneKey(uint32(KindArray))
	for range depth {
		r = r.kind(KindArray).u64(1)
	}
	return r.kind(KindUint8).u64(1).u8(7)
}

func hostileFiles() []hostile {
	const huge = math.MaxUint64
	cases := []hostile{
		{name: "empty", offset: 0, reason: "ends inside the magic number: 0 bytes left"},
		{name: "other magic", data: raw("GGML").zeros(20), offset: 0, reason: `"GGML" is not the magic number`},
		{name: "version 1", data: header(1, 0, 1).key("k"), offset: 4, reason: "1 is not a version that can be read, want 2 or 3"},
		{name: "version 4", data: header(4, 0, 1).key("k"), offset: 4, reason: "4 is not a version"},
		{name: "big-endian", data: header(3<<24, 0, 1), offset: 4, reason: "big-endian"},
		{name: "24 bytes", data: header(3, 0, 0), offset: 8, reason: `want at least the key "general.architecture"`},
		{name: "36 bytes", data: header(3, 1, 0).zeros(12), offset: 8, reason: "1 tensors are claimed, but only 20 bytes"},
		{name: "tensors 2^64-1", data: header(3, huge, 1).key("k"), offset: 8, reason: "18446744073709551615 tensors are claimed"},
		{name: "keys 2^63", data: header(3, 0, 1<<63).key("k"), offset: 16, reason: "9223372036854775808 keys are claimed"},
		{name: "keys beyond the end", data: header(3, 0, 9).key("k"), offset: 16, reason: "9 keys are claimed, but only 14 bytes are left"},
		{name: "key length 2^64-1", data: header(3, 0, 1).u64(huge).zeros(20), offset: firstKey, reason: "18446744073709551615 is the length of the name of key 0"},
		{name: "key length 2^40", data: header(3, 0, 1).u64(1 << 40).zeros(20), offset: firstKey, reason: "only 20 bytes are left"},
		{name: "key too long", data: header(3, 0, 1).str(strings.Repeat("k", 1<<16)).zeros(20), offset: firstKey, reason: "want at most 65535"},
		{name: "empty key", data: header(3, 0, 1).key("").zeros(9), offset: firstKey, reason: "the name of key 0 is empty"},
		{name: "key not UTF-8", data: header(3, 0, 1).key("\xff"), offset: firstKey, reason: `"\xff" the name of key 0 is not valid UTF-8`},
		{name: "duplicate key", data: header(3, 0, 2).key("k").key("k"), key: "k", offset: firstKey + 14, reason: "there twice"},
		{name: "kind 13", data: oneKey(13).zeros(9), key: "k", offset: firstValue - 4, reason: "13 is not a kind of value, want 0 to 12"},
		{name: "bool 2", data: oneKey(uint32(KindBool)).u8(2), key: "k", offset: firstValue, reason: "2 is not a bool"},
		{name: "value cut", data: oneKey(uint32(KindFloat64)).zeros(7), key: "k", offset: firstValue, reason: "ends inside a float64: 7 bytes left, want 8"},
		{name: "string 2^64-1", data: oneKey(uint32(KindString)).u64(huge), key: "k", offset: firstValue, reason: "18446744073709551615 is the length of a string"},
		{name: "string 2^63", data: oneKey(uint32(KindString)).u64(1 << 63), key: "k", offset: firstValue, reason: "only 0 bytes are left"},
		{name: "array of kind 99", data: oneKey(uint32(KindArray)).u32(99).u64(0), key: "k", offset: firstValue, reason: "99 is not a kind"},
		{name: "array of bool 3", data: oneKey(uint32(KindArray)).kind(KindBool).u64(2).u8(1).u8(3), key: "k", offset: firstValue + 13, reason: "3 is not a bool"},
		{name: "array of string cut", data: oneKey(uint32(KindArray)).kind(KindString).u64(2).str("a").u64(9), key: "k", offset: firstValue + 21, reason: "9 is the length of a string, but only 0"},
		{name: "arrays 5 deep", data: nested(4), key: "k", offset: firstValue + 4*12, reason: "more than 4 deep"},
		{name: "arrays 100,000 deep", data: nested(100_000), key: "k", offset: firstValue + 4*12, reason: "more than 4 deep"},

		{name: "tensor name length", data: tensors(1).u64(1 << 63).zeros(40), offset: firstTensor, reason: "9223372036854775808 is the length of the name of tensor 0"},
		{name: "tensor without name", data: tensors(1).tensor("", TypeF32, 0, 8).zeros(64), offset: firstTensor, reason: "the name of tensor 0 is empty"},
		{name: "duplicate tensor", data: tensors(2).tensor("t", TypeF32, 0, 8).tensor("t", TypeF32, 32, 8).zeros(96), tensor: "t", offset: firstTensor + 33, reason: "there twice"},
		{name: "no dimensions", data: tensors(1).tensor("t", TypeF32, 0).zeros(64), tensor: "t", offset: firstTensor + 9, reason: "0 dimensions are claimed, want 1 to 4"},
		{name: "5 dimensions", data: tensors(1).tensor("t", TypeF32, 0, 1, 1, 1, 1, 1).zeros(64), tensor: "t", offset: firstTensor + 9, reason: "5 dimensions"},
		{name: "2^32-1 dimensions", data: tensors(1).str("t").u32(math.MaxUint32).zeros(64), tensor: "t", offset: firstTensor + 9, reason: "4294967295 dimensions"},
		{name: "dimension 0", data: tensors(1).tensor("t", TypeF32, 0, 8, 0).zeros(64), tensor: "t", offset: firstTensor + 21, reason: "dimension 1 is 0"},
		{name: "dimension 2^64-1", data: tensors(1).tensor("t", TypeF32, 0, huge).zeros(64), tensor: "t", offset: firstTensor + 13, reason: "18446744073709551615 as dimension 0"},
		{name: "product 2^64", data: tensors(1).tensor("t", TypeF32, 0, 1<<32, 1<<32).zeros(64), tensor: "t", offset: firstTensor + 21, reason: "makes the number of weights overflow"},
		{name: "product 2^62 of 4 bytes", data: tensors(1).tensor("t", TypeF32, 0, 1<<31, 1<<31).zeros(64), tensor: "t", offset: firstTensor + 29, reason: "4611686018427387904 F32 weights are claimed, but the file has"},
		{name: "type 255", data: tensors(1).tensor("t", 255, 0, 8).zeros(64), tensor: "t", offset: firstTensor + 21, reason: "255 is not a known tensor type, want one of F32"},
		{name: "type 4", data: tensors(1).tensor("t", 4, 0, 32).zeros(64), tensor: "t", offset: firstTensor + 21, reason: "4 is not a known tensor type, want"},
		{name: "type IQ2_XXS", data: tensors(1).tensor("t", 16, 0, 256).zeros(128), tensor: "t", offset: firstTensor + 21, reason: "16 is not a known tensor type (IQ2_XXS is not supported)"},
		{name: "row of half a block", data: tensors(1).tensor("t", TypeQ4_K, 0, 128, 2).zeros(512), tensor: "t", offset: firstTensor + 29, reason: "128 columns do not fill blocks of Q4_K, want a multiple of 256"},
		{name: "offset not aligned", data: tensors(1).tensor("t", TypeF32, 4, 8).zeros(128), tensor: "t", offset: firstTensor + 25, reason: "4 as offset is not a multiple of the alignment 32"},
		{name: "offset 2^64-32", data: tensors(1).tensor("t", TypeF32, huge-31, 8).zeros(128), tensor: "t", offset: firstTensor + 25, reason: "outside the file"},
		{name: "tensor past the end", data: tensors(1).tensor("t", TypeF32, 0, 9).pad(32).zeros(35), tensor: "t", offset: firstTensor + 25, reason: "0 as offset puts 36 bytes of data outside the file, which holds 35"},
		{name: "no data at all", data: tensors(1).tensor("t", TypeF32, 0, 8), tensor: "t", offset: firstTensor + 25, reason: "outside the file, which holds 0"},
		{name: "overlap", data: tensors(2).tensor("t", TypeF32, 32, 8).tensor("u", TypeF32, 0, 9).pad(32).zeros(64), tensor: "t", offset: firstTensor + 25, reason: `32 as offset lies inside tensor "u", which ends at 36`},
		{name: "same place", data: tensors(2).tensor("t", TypeF32, 0, 8).tensor("u", TypeF32, 0, 8).pad(32).zeros(64), tensor: "u", offset: firstTensor + 33 + 25, reason: `lies inside tensor "t"`},

		{name: "more tokens than rows", data: header(3, 1, 1).tokens(5).tensor("token_embd.weight", TypeF32, 0, 2, 4).pad(32).zeros(32), key: "tokenizer.ggml.tokens", offset: 57, reason: `holds 5 tokens, more than the 4 rows of tensor "token_embd.weight"`},
		{name: "tokens are numbers", data: header(3, 0, 1).key("tokenizer.ggml.tokens"), key: "tokenizer.ggml.tokens", offset: 57, reason: "is not an array of strings"},
		{name: "end id outside tokens", data: header(3, 0, 2).tokens(5).str("tokenizer.ggml.eos_token_id").kind(KindUint32).u32(5), key: "tokenizer.ggml.eos_token_id", offset: 153, reason: "5 is not a token of the vocabulary, want 0 to 4"},
		{name: "end id -1", data: header(3, 0, 2).tokens(5).str("tokenizer.ggml.eos_token_id").kind(KindInt32).u32(math.MaxUint32), key: "tokenizer.ggml.eos_token_id", offset: 153, reason: "-1 is not a token"},
		{name: "begin id outside rows", data: header(3, 1, 1).str("tokenizer.ggml.bos_token_id").kind(KindUint32).u32(4).tensor("token_embd.weight", TypeF32, 0, 2, 4).pad(32).zeros(32), key: "tokenizer.ggml.bos_token_id", offset: 63, reason: "4 is not a token of the vocabulary, want 0 to 3"},
	}
	for _, align := range []uint32{0, 1, 3, 4, 33, 1 << 21, 1 << 31} {
		cases = append(cases, hostile{name: "alignment", data: header(3, 0, 1).align(align), key: "general.alignment", offset: firstKey + 8 + 17 + 4,
			reason: "is not an alignment, want a power of two from 8"})
	}
	for _, kind := range []Kind{KindUint8, KindString, KindArray, KindUint64, KindBool} {
		data := oneKey(uint32(KindArray)).kind(kind).u64(huge).zeros(64)
		cases = append(cases, hostile{name: "2^64-1 of " + kind.String(), data: data, key: "k", offset: firstValue + 4,
			reason: "18446744073709551615 " + kind.String() + " elements are claimed, but only 64 bytes are left"})
	}
	return cases
}

func TestHostileFilesAreRefused(t *testing.T) {
	for _, c := range hostileFiles() {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse("m.gguf", c.data)
			require.Nil(t, f)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "m.gguf", e.File)
			require.Equal(t, c.key, e.Key)
			require.Equal(t, c.tensor, e.Tensor)
			require.Equal(t, c.offset, e.Offset, "%v", err)
			require.ErrorContains(t, err, c.reason)
			require.Less(t, len(err.Error()), 400)
		})
	}
}

func TestTruncationAtAnyByteIsRefused(t *testing.T) {
	w := sample()
	whole := bytesOf(t, w)
	last := w.tensors[len(w.tensors)-1]
	padding := (32 - last.size%32) % 32
	for n := range len(whole) - int(padding) {
		f, err := Parse("m.gguf", whole[:n:n])
		require.Nil(t, f, "%d bytes", n)
		var e *Error
		require.ErrorAs(t, err, &e, "%d bytes", n)
		require.LessOrEqual(t, e.Offset, int64(n))
	}
	_, err := Parse("m.gguf", whole[:len(whole)-int(padding)])
	require.NoError(t, err, "only the padding after the last tensor is missing")
}

func TestChangedBytesNeverPanic(t *testing.T) {
	whole := bytesOf(t, sample())
	end := strings.LastIndex(string(whole), "t.MXFP4") + 80
	read, refused := 0, 0
	for i := range end {
		for _, x := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			data := append([]byte(nil), whole...)
			data[i] = x
			f, err := Parse("m.gguf", data)
			if err == nil {
				useAll(f)
				read++
				continue
			}
			var e *Error
			require.ErrorAs(t, err, &e, "byte %d is %d", i, x)
			require.Equal(t, "m.gguf", e.File)
			refused++
		}
	}
	require.Greater(t, read, end/2, "most bytes are data or text")
	require.Greater(t, refused, end/2)
}

// useAll reads everything a file offers.
func useAll(f *File) {
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		v.Any()
		f.String(key)
		f.Uint(key)
		f.Int(key)
		f.Float(key)
		f.Bool(key)
		f.Strings(key)
		f.Ints(key)
		f.Floats(key)
		f.Bools(key)
	}
	for _, t := range f.Tensors() {
		if len(t.Data) != t.Rows()*t.Type.RowBytes(t.Cols()) {
			panic("tensor " + t.Name + " has the wrong size")
		}
		f.Release(t)
	}
}

// Files that go to the limits, valid or not, must cost less than a second and 64 MiB beside the file itself.
func TestLimitsBoundTimeAndMemory(t *testing.T) {
	strs := header(3, 0, 2)
	for _, k := range []string{"a", "b"} {
		strs = strs.str(k).kind(KindArray).kind(KindString).u64(maxElements).zeros(8 * maxElements)
	}
	arrays := oneKey(uint32(KindArray)).kind(KindArray).u64(maxElements).zeros(12 * maxElements)
	keys := header(3, 0, maxKeys)
	for i := range maxKeys {
		keys = keys.key(name(i))
	}
	many := tensors(maxTensors)
	for i := range maxTensors {
		many = many.tensor(name(i), TypeF32, uint64(32*(maxTensors-1-i)), 1)
	}
	many = many.pad(32).zeros(32 * maxTensors)
	names := header(3, 0, 300)
	for i := range 300 {
		names = names.key(name(i) + strings.Repeat("n", maxNameBytes-8))
	}
	for _, c := range []struct {
		name   string
		data   raw
		reason string
	}{
		{"strings", strs, "above 2097152 strings"},
		{"arrays", arrays, ""},
		{"keys", keys, ""},
		{"tensors", many, ""},
		{"names", names, "names take more than 16777216 bytes"},
		{"elements", oneKey(uint32(KindArray)).kind(KindUint8).u64(maxElements + 1).zeros(maxElements + 1), "want at most 2097152"},
		{"string", oneKey(uint32(KindString)).u64(maxStringBytes + 1).zeros(maxStringBytes + 1), "want at most 67108864"},
		{"keys+1", header(3, 0, maxKeys+1).zeros(14 * (maxKeys + 1)), "want at most 65536"},
		{"tensors+1", header(3, maxTensors+1, 1).zeros(33 * (maxTensors + 1)), "want at most 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			took, allocated := invariants.Cost(func() {
				_, err := Parse("m.gguf", c.data)
				if c.reason == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.reason)
				}
			})
			t.Logf("%d bytes: %v, %d KiB allocated", len(c.data), took, allocated>>10)
			require.Less(t, allocated, uint64(64<<20))
			require.True(t, invariants.Within(took, time.Second), "%v", took)
		})
	}
}

// name is a name of eight letters.
func name(i int) string {
	b := []byte("00000000")
	for j := len(b) - 1; i > 0; j, i = j-1, i/16 {
		b[j] = "0123456789abcdef"[i%16]
	}
	return string(b)
}

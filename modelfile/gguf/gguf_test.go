package gguf

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTypes(t *testing.T) {
	for _, c := range []struct {
		typ               Type
		id                uint32
		name              string
		weights, rowBytes int
	}{
		{TypeF32, 0, "F32", 1, 1024}, {TypeF16, 1, "F16", 1, 512}, {TypeQ4_0, 2, "Q4_0", 32, 144}, {TypeQ4_1, 3, "Q4_1", 32, 160},
		{TypeQ5_0, 6, "Q5_0", 32, 176}, {TypeQ5_1, 7, "Q5_1", 32, 192}, {TypeQ8_0, 8, "Q8_0", 32, 272}, {TypeQ2_K, 10, "Q2_K", 256, 84},
		{TypeQ3_K, 11, "Q3_K", 256, 110}, {TypeQ4_K, 12, "Q4_K", 256, 144}, {TypeQ5_K, 13, "Q5_K", 256, 176},
		{TypeQ6_K, 14, "Q6_K", 256, 210}, {TypeIQ4_NL, 20, "IQ4_NL", 32, 144}, {TypeIQ4_XS, 23, "IQ4_XS", 256, 136},
		{TypeBF16, 30, "BF16", 1, 512}, {TypeMXFP4, 39, "MXFP4", 32, 136},
	} {
		require.EqualValues(t, c.id, c.typ)
		require.Equal(t, c.name, c.typ.String())
		require.Equal(t, c.weights, c.typ.BlockSize())
		require.Equal(t, c.rowBytes, c.typ.RowBytes(256))
		parsed, err := ParseType(c.name)
		require.NoError(t, err)
		require.Equal(t, c.typ, parsed)
	}
	require.Len(t, Types(), 16)
	for _, id := range []Type{4, 5, 9, 15, 16, 31, 40, 255, math.MaxUint32} {
		require.False(t, id.Known(), id)
		require.Zero(t, id.BlockSize()+id.BlockBytes()+id.RowBytes(256))
	}
	lower, err := ParseType("q4_k")
	require.NoError(t, err)
	require.Equal(t, TypeQ4_K, lower)
	_, err = ParseType("IQ2_XXS")
	require.ErrorContains(t, err, `"IQ2_XXS" is unknown, want one of F32`)
}

func TestEveryKindAndTypeComesBack(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		w := sample()
		w.version = version
		f, err := Parse("m.gguf", bytesOf(t, w))
		require.NoError(t, err)
		require.EqualValues(t, version, f.Version())
		for i, kv := range everyKind() {
			require.Equal(t, kv.key, f.Keys()[i])
			got, ok := f.Value(kv.key)
			require.True(t, ok)
			want := must(kv.value)
			require.Equal(t, want.kind, got.kind, kv.key)
			require.Equal(t, want.Any(), got.Any(), kv.key)
		}
		for _, p := range w.tensors {
			got, ok := f.Tensor(p.name)
			require.True(t, ok)
			require.Equal(t, p.dims, got.Dims)
			require.Equal(t, p.typ, got.Type)
			require.Equal(t, ramp(int(p.size)), got.Data)
			require.Equal(t, p.size, int64(got.Rows()*got.Type.RowBytes(got.Cols())))
		}
		require.Len(t, f.Tensors(), len(w.tensors))
	}
}

func TestGetters(t *testing.T) {
	f, err := Parse("m.gguf", bytesOf(t, sample()))
	require.NoError(t, err)
	require.NoError(t, f.Close())

	f, err = Parse("m.gguf", bytesOf(t, sample()))
	require.NoError(t, err)
	text, ok := f.String("general.architecture")
	require.Equal(t, "llama", text)
	require.True(t, ok)
	_, ok = f.String("u8")
	require.False(t, ok)
	_, ok = f.String("missing")
	require.False(t, ok)

	for key, want := range map[string]uint64{"u8": 200, "u16": 60000, "u32": 4e9, "u64": 1 << 63} {
		got, ok := f.Uint(key)
		require.True(t, ok, key)
		require.Equal(t, want, got)
	}
	for key, want := range map[string]int64{"u8": 200, "i8": -100, "i16": -30000, "i32": -2e9, "i64": math.MinInt64} {
		got, ok := f.Int(key)
		require.True(t, ok, key)
		require.Equal(t, want, got)
	}
	for _, key := range []string{"i8", "f32", "yes", "text", "u8s", "missing"} {
		_, ok := f.Uint(key)
		require.False(t, ok, key)
	}
	_, ok = f.Int("u64")
	require.False(t, ok)
	for key, want := range map[string]float64{"f32": 1.5, "f64": -2.25, "i8": -100, "u64": 1 << 63} {
		got, ok := f.Float(key)
		require.True(t, ok, key)
		require.Equal(t, want, got)
	}
	_, ok = f.Float("yes")
	require.False(t, ok)
	yes, ok := f.Bool("yes")
	require.True(t, yes && ok)
	_, ok = f.Bool("missing")
	require.False(t, ok)
	_, ok = f.Bool("u8")
	require.False(t, ok)

	require.Equal(t, []string{"", "x", "longer \xf0"}, f.Strings("strings"))
	require.Equal(t, []string{}, f.Strings("none"))
	require.Nil(t, f.Strings("u8s"))
	require.Nil(t, f.Strings("missing"))
	require.Equal(t, []int64{-1, 7}, f.Ints("i32s"))
	require.Equal(t, []int64{1, 255}, f.Ints("u8s"))
	require.Nil(t, f.Ints("strings"))
	require.Nil(t, f.Ints("u8"))
	require.Equal(t, []float32{0.5, -0.5}, f.Floats("f32s"))
	require.Equal(t, []bool{true, false}, f.Bools("bools"))
	require.Nil(t, f.Bools("missing"))

	v, _ := f.Value("nested")
	require.Equal(t, []any{[]any{int32(1), int32(-2)}, []any{"a", ""}, []any{true}}, v.Any())
	require.Equal(t, 3, v.Len())
	require.Equal(t, KindArray, v.Elem())
}

func TestErrorsFromOutside(t *testing.T) {
	f, err := Parse("m.gguf", bytesOf(t, sample()))
	require.NoError(t, err)
	require.EqualError(t, f.KeyError("missing", "is missing, want %d", 3), `m.gguf: key "missing": is missing, want 3`)
	require.ErrorContains(t, f.KeyError("u8", "is too much"), `m.gguf: key "u8": at byte `)
	require.ErrorContains(t, f.KeyError("u8", "is too much"), ": 200 is too much")
	require.EqualError(t, f.TensorError("x", "is missing"), `m.gguf: tensor "x": is missing`)
	require.ErrorContains(t, f.TensorError("t.F32", "has a NaN"), `m.gguf: tensor "t.F32": at byte `)
}

func TestVocabularyThatFits(t *testing.T) {
	for name, data := range map[string]raw{
		"fewer tokens than rows": header(3, 1, 2).tokens(3).str("tokenizer.ggml.eos_token_id").kind(KindUint32).u32(2).
			tensor("token_embd.weight", TypeF32, 0, 2, 4).pad(32).zeros(32),
		"as many":              header(3, 1, 1).tokens(4).tensor("token_embd.weight", TypeF32, 0, 2, 4).pad(32).zeros(32),
		"vocabulary only":      header(3, 0, 2).tokens(4).str("tokenizer.ggml.eos_token_id").kind(KindUint32).u32(3),
		"padding id elsewhere": header(3, 0, 2).tokens(4).str("tokenizer.ggml.padding_token_id").kind(KindInt32).u32(math.MaxUint32),
	} {
		_, err := Parse("m.gguf", data)
		require.NoError(t, err, name)
	}
}

func TestAlignment(t *testing.T) {
	for _, align := range []uint32{8, 16, 64, 4096} {
		w := NewWriter()
		w.Set("general.alignment", align)
		w.AddTensor("a", TypeF32, []int{1}, ramp(4))
		w.AddTensor("b", TypeQ8_0, []int{32}, ramp(34))
		data := bytesOf(t, w)
		require.Zero(t, len(data)%int(align))
		f, err := Parse("m.gguf", data)
		require.NoError(t, err)
		b, _ := f.Tensor("b")
		require.Equal(t, ramp(34), b.Data)
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		reason string
		do     func(w *Writer)
	}{
		{"a int is not a metadata value", func(w *Writer) { w.Set("k", 3) }},
		{"a map[string]int is not", func(w *Writer) { w.Set("k", map[string]int{}) }},
		{"a []gguf.Value is not", func(w *Writer) { w.Set("k", []Value{must(true), must("x")}) }},
		{`key ""`, func(w *Writer) { w.Set("", true) }},
		{"3 is not an alignment", func(w *Writer) { w.Set("general.alignment", uint32(3)) }},
		{"is added twice", func(w *Writer) {
			w.AddTensor("t", TypeF32, []int{1}, ramp(4))
			w.AddTensor("t", TypeF32, []int{1}, ramp(4))
		}},
		{"type 99 is not a known type", func(w *Writer) { w.AddTensor("t", 99, []int{1}, nil) }},
		{"has 0 dimensions", func(w *Writer) { w.AddTensor("t", TypeF32, nil, nil) }},
		{"[4 0] are not positive", func(w *Writer) { w.AddTensor("t", TypeF32, []int{4, 0}, nil) }},
		{"too large", func(w *Writer) { w.AddTensor("t", TypeF32, []int{1 << 30, 1 << 30, 1 << 30}, nil) }},
		{"33 columns do not fill", func(w *Writer) { w.AddTensor("t", TypeQ8_0, []int{33}, nil) }},
		{`tensor "t": 3 bytes were written, F32 [1] takes 4`, func(w *Writer) { w.AddTensor("t", TypeF32, []int{1}, ramp(3)) }},
		{`tensor "t": 1 bytes more`, func(w *Writer) { w.AddTensor("t", TypeF32, []int{1}, ramp(5)) }},
		{`tensor "t": boom`, func(w *Writer) {
			w.AddTensorFunc("t", TypeF32, []int{1}, func(io.Writer) error { return errors.New("boom") })
		}},
	} {
		w := NewWriter()
		c.do(w)
		_, err := w.WriteTo(io.Discard)
		require.ErrorContains(t, err, c.reason)
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.ErrorContains(t, w.WriteFile(path), c.reason)
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Empty(t, left, "the temporary file stays behind")
	}
}

func TestSetAgainKeepsPlace(t *testing.T) {
	w := NewWriter()
	w.Set("a", uint8(1))
	w.Set("b", uint8(2))
	w.Set("a", "x")
	f, err := Parse("m.gguf", bytesOf(t, w))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, f.Keys())
	a, _ := f.String("a")
	require.Equal(t, "x", a)
}

func TestOpenMapsAndReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	w := sample()
	w.AddTensor("big", TypeF32, []int{1 << 16}, ramp(1<<18))
	require.NoError(t, w.WriteFile(path))
	f, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, path, f.Path())
	useAll(f)
	for _, p := range w.tensors {
		got, _ := f.Tensor(p.name)
		require.True(t, bytes.Equal(ramp(int(p.size)), got.Data), p.name)
		f.Release(got)
		require.True(t, bytes.Equal(ramp(int(p.size)), got.Data), "after release: %s", p.name)
	}
	f.Release(&Tensor{Name: "big", Data: ramp(1 << 14)})
	strings := f.Strings("strings")
	require.NoError(t, f.Close())
	require.Equal(t, []string{"", "x", "longer \xf0"}, strings)
	_, ok := f.Value("u8")
	require.False(t, ok)
	require.NoError(t, f.Close(), "a second time")
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "missing.gguf"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(dir)
	require.ErrorContains(t, err, "is a folder, want a regular file")
	empty := filepath.Join(dir, "empty.gguf")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = Open(empty)
	require.ErrorContains(t, err, "empty.gguf: at byte 0: the file ends inside the magic number")
	for _, c := range hostileFiles() {
		path := filepath.Join(dir, "hostile.gguf")
		require.NoError(t, os.WriteFile(path, c.data, 0o600))
		_, err := Open(path)
		var e *Error
		require.ErrorAs(t, err, &e, c.name)
		require.Equal(t, path, e.File)
	}
}

func TestRandomFilesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := NewWriter()
		keys := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 1, 8, rapid.ID[string]).Draw(t, "keys")
		want := map[string]any{}
		for _, key := range keys {
			value := rapid.OneOf(
				rapid.Uint32().AsAny(), rapid.Int8().AsAny(), rapid.Int64().AsAny(), rapid.Float32().AsAny(), rapid.Bool().AsAny(),
				rapid.String().AsAny(), rapid.SliceOf(rapid.String()).AsAny(), rapid.SliceOf(rapid.Int16()).AsAny(),
			).Draw(t, "value")
			if key == alignmentKey || key == tokensKey {
				continue
			}
			want[key] = must(value).Any()
			w.Set(key, value)
		}
		w.Set("last", true)
		names := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 0, 5, rapid.ID[string]).Draw(t, "tensors")
		data := map[string][]byte{}
		for _, name := range names {
			typ := rapid.SampledFrom(Types()).Draw(t, "type")
			dims := rapid.SliceOfN(rapid.IntRange(1, 3), 1, 4).Draw(t, "dims")
			dims[0] *= typ.BlockSize()
			size, err := tensorBytes(name, typ, dims)
			if err != nil {
				t.Fatal(err)
			}
			data[name] = ramp(int(size))
			w.AddTensor(name, typ, dims, data[name])
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		f, err := Parse("m.gguf", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range want {
			got, _ := f.Value(key)
			require.Equal(t, value, got.Any())
		}
		for name, bytes := range data {
			got, _ := f.Tensor(name)
			require.Equal(t, bytes, got.Data)
		}
	})
}

package quantize

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// sourceFile writes a small model with a matrix of whole blocks, odd ones, a vector, a router and a bias.
func sourceFile(t *testing.T, change func(w *gguf.Writer)) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	w := gguf.NewWriter()
	w.Set("general.architecture", "llama")
	w.Set("general.file_type", uint32(0))
	w.Set("split.count", uint16(1))
	w.Set("tokenizer.ggml.tokens", []string{"a", "b"})
	w.Set("llama.block_count", uint32(1))
	add := func(name string, dims ...int) {
		n := 1
		for _, d := range dims {
			n *= d
		}
		data := make([]byte, 0, 4*n)
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(rng.NormFloat64())))
		}
		w.AddTensor(name, gguf.TypeF32, dims, data)
	}
	add("token_embd.weight", 256, 37)
	add("blk.0.attn_q.weight", 288, 5)
	add("blk.0.attn_k.weight", 100, 5)
	add("blk.0.attn_q.bias", 37)
	add("blk.0.attn_norm.weight", 256)
	add("blk.0.ffn_gate_inp.weight", 256, 4)
	add("blk.0.ffn_up_exps.weight", 256, 8, 4)
	if change != nil {
		change(w)
	}
	path := filepath.Join(t.TempDir(), "in.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

func plain(t *testing.T, typ gguf.Type) Target {
	t.Helper()
	target, err := Plain(typ)
	require.NoError(t, err)
	return target
}

func TestFile(t *testing.T) {
	in := sourceFile(t, nil)
	src, err := gguf.Open(in)
	require.NoError(t, err)
	defer src.Close()
	for _, typ := range gguf.Types() {
		t.Run(typ.String(), func(t *testing.T) {
			var notes []string
			var last, total int64
			path := filepath.Join(t.TempDir(), "out.gguf")
			res, err := File(t.Context(), in, path, plain(t, typ), Options{
				Threads: 2, Note: func(s string) { notes = append(notes, s) }, Progress: func(d, n int64) { last, total = d, n },
			})
			require.NoError(t, err)
			require.Equal(t, 7, res.Tensors)
			require.Equal(t, total, last)
			require.Equal(t, res.InBytes, total)
			require.Equal(t, res.FellBack > 0, len(notes) > 0)
			f, err := gguf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			require.Equal(t, []string{"a", "b"}, f.Strings("tokenizer.ggml.tokens"))
			_, split := f.Value("split.count")
			require.False(t, split)
			want, ok := typ.FileType()
			require.True(t, ok)
			got, ok := f.Uint("general.file_type")
			require.True(t, ok)
			require.EqualValues(t, want, got)
			var out int64
			for i, to := range f.Tensors() {
				from := src.Tensors()[i]
				require.Equal(t, from.Name, to.Name)
				require.Equal(t, from.Dims, to.Dims)
				wantType, _ := Type(to.Name, to.Dims, typ)
				require.Equal(t, wantType, to.Type, to.Name)
				format, _ := quant.Get(to.Type)
				values := make([]float32, to.Rows()*to.Cols())
				plain, _ := quant.Get(gguf.TypeF32)
				plain.Decode(values, from.Data)
				data := make([]byte, len(to.Data))
				format.Encode(data, values)
				require.Equal(t, data, to.Data, to.Name)
				out += int64(len(to.Data))
			}
			require.Equal(t, out, res.OutBytes)
		})
	}
}

func TestTypeOfTensors(t *testing.T) {
	for _, c := range []struct {
		name string
		dims []int
		want gguf.Type
		got  gguf.Type
	}{
		{"token_embd.weight", []int{256, 9}, gguf.TypeQ4_K, gguf.TypeQ4_K},
		{"token_embd.weight", []int{288, 9}, gguf.TypeQ4_K, gguf.TypeQ5_0},
		{"token_embd.weight", []int{288, 9}, gguf.TypeQ5_K, gguf.TypeQ5_1},
		{"token_embd.weight", []int{288, 9}, gguf.TypeQ6_K, gguf.TypeQ8_0},
		{"token_embd.weight", []int{288, 9}, gguf.TypeQ2_K, gguf.TypeIQ4_NL},
		{"token_embd.weight", []int{288, 9}, gguf.TypeIQ4_XS, gguf.TypeIQ4_NL},
		{"token_embd.weight", []int{100, 9}, gguf.TypeQ3_K, gguf.TypeF16},
		{"token_embd.weight", []int{100, 9}, gguf.TypeQ8_0, gguf.TypeF16},
		{"token_embd.weight", []int{100, 9}, gguf.TypeBF16, gguf.TypeBF16},
		{"blk.0.attn_norm.weight", []int{256}, gguf.TypeQ8_0, gguf.TypeF32},
		{"blk.0.attn_q.bias", []int{256}, gguf.TypeQ8_0, gguf.TypeF32},
		{"rope_freqs.weight", []int{64}, gguf.TypeQ8_0, gguf.TypeF32},
		{"blk.3.ffn_gate_inp.weight", []int{256, 8}, gguf.TypeQ8_0, gguf.TypeF32},
		{"blk.3.ffn_up_exps.weight", []int{256, 8, 4}, gguf.TypeQ8_0, gguf.TypeQ8_0},
	} {
		got, fellBack := Type(c.name, c.dims, c.want)
		require.Equal(t, c.got, got, "%s %v %v", c.name, c.dims, c.want)
		require.Equal(t, got != c.want && got != gguf.TypeF32, fellBack)
	}
}

// TestFileNotesOnce says in one line for each pair of types which matrices take another one than asked for.
func TestFileNotesOnce(t *testing.T) {
	in := sourceFile(t, func(w *gguf.Writer) {
		for i := range 9 {
			w.AddTensor(fmt.Sprintf("blk.0.ffn_%d.weight", i), gguf.TypeF32, []int{32, 2}, make([]byte, 4*32*2))
		}
	})
	var notes []string
	res, err := File(t.Context(), in, filepath.Join(t.TempDir(), "out.gguf"), plain(t, gguf.TypeQ4_K), Options{Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, err)
	require.Equal(t, 11, res.FellBack)
	require.Equal(t, []string{
		"10 matrices, blk.0.attn_q.weight (288 columns) first: columns do not fill blocks of Q4_K, which hold 256: Q5_0 instead",
		"blk.0.attn_k.weight (100 columns): columns do not fill blocks of Q4_K, which hold 256: F16 instead",
	}, notes)
}

// Files of a type stay as they are, blocks of one kind become another.
func TestFileFromQuantized(t *testing.T) {
	dir := t.TempDir()
	q4, again, q8 := filepath.Join(dir, "q4.gguf"), filepath.Join(dir, "again.gguf"), filepath.Join(dir, "q8.gguf")
	_, err := File(t.Context(), sourceFile(t, nil), q4, plain(t, gguf.TypeQ4_K), Options{})
	require.NoError(t, err)
	res, err := File(t.Context(), q4, again, plain(t, gguf.TypeQ4_K), Options{})
	require.NoError(t, err)
	require.Zero(t, res.Converted)
	a, err := os.ReadFile(q4)
	require.NoError(t, err)
	b, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, a, b)
	res, err = File(t.Context(), q4, q8, plain(t, gguf.TypeQ8_0), Options{Threads: 3})
	require.NoError(t, err)
	require.Equal(t, 3, res.Converted, "embedding, q and the experts; k is F16 in both")
}

func TestFileRefuses(t *testing.T) {
	in := sourceFile(t, nil)
	out := filepath.Join(t.TempDir(), "out.gguf")
	_, err := File(t.Context(), in, in, plain(t, gguf.TypeQ8_0), Options{})
	require.ErrorContains(t, err, "another name")
	_, err = Plain(gguf.Type(99))
	require.ErrorContains(t, err, "want one of")
	_, err = File(t.Context(), filepath.Join(t.TempDir(), "none.gguf"), out, plain(t, gguf.TypeQ8_0), Options{})
	require.ErrorIs(t, err, os.ErrNotExist)

	for name, value := range map[string]float32{"NaN": float32(math.NaN()), "large": 1e30} {
		bad := sourceFile(t, func(w *gguf.Writer) {
			data := make([]byte, 4*32*2)
			binary.LittleEndian.PutUint32(data[4*33:], math.Float32bits(value))
			w.AddTensor("blk.0.bad.weight", gguf.TypeF32, []int{32, 2}, data)
		})
		_, err = File(t.Context(), bad, out, plain(t, gguf.TypeF16), Options{})
		require.ErrorContains(t, err, "blk.0.bad.weight", name)
		require.ErrorContains(t, err, "row 1", name)
		entries, err := os.ReadDir(filepath.Dir(out))
		require.NoError(t, err)
		require.Empty(t, entries, "nothing stays behind")
	}
}

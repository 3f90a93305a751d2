package eval

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
)

// TestCollect compares with sums that follow from the embedding and the first norm, and leaves the passes as they were.
func TestCollect(t *testing.T) {
	const arch, context0 = "llama3-rope", 20
	m, ids := openTiny(t, arch, model.Options{F32: true}), text(50)
	o := Options{Context: context0, BOS: -1}
	im, p, err := Collect(context.Background(), m, ids, "some/text.txt", o)
	require.NoError(t, err)
	plain, err := Measure(context.Background(), m, ids, o)
	require.NoError(t, err)
	require.Equal(t, plain, p)
	require.Equal(t, []string{"text.txt"}, im.Datasets)
	require.Equal(t, 2, im.Windows)

	// x of the first layer's q, k and v is the normed embedding of the token.
	c, err := safetensors.OpenDir(filepath.Join(golden.Dir(t, "archs"), arch))
	require.NoError(t, err)
	defer c.Close()
	read := func(name string) []float64 {
		x, ok := c.Tensor(name)
		require.True(t, ok, name)
		out := make([]float64, len(x.Data)/4)
		for i := range out {
			bits := uint32(x.Data[4*i]) | uint32(x.Data[4*i+1])<<8 | uint32(x.Data[4*i+2])<<16 | uint32(x.Data[4*i+3])<<24
			out[i] = float64(math.Float32frombits(bits))
		}
		return out
	}
	embed, norm := read("model.embed_tokens.weight"), read("model.layers.0.input_layernorm.weight")
	dim := len(norm)
	want, tokens := make([]float64, dim), 0
	for w := range 2 {
		for _, id := range ids[w*context0 : (w+1)*context0-1] { // the last token of a window is predicted, not fed
			row := embed[int(id)*dim : (int(id)+1)*dim]
			var square float64
			for _, v := range row {
				square += v * v
			}
			scale := 1 / math.Sqrt(square/float64(dim)+float64(m.Config().NormEps))
			for i, v := range row {
				want[i] += (v * scale * norm[i]) * (v * scale * norm[i])
			}
			tokens++
		}
	}
	for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
		got := im.Columns("model.layers.0.self_attn."+name+".weight", dim)
		require.Len(t, got, 1)
		for i, sum := range want {
			require.InEpsilon(t, sum/float64(tokens), got[0][i], 1e-4, "%s column %d", name, i)
		}
	}
	require.Nil(t, im.Columns("model.layers.0.self_attn.q_proj.weight", dim+1))
	require.Nil(t, im.Columns("no such tensor", dim))
}

// TestExpertsApart keeps the sums of each expert, whose tokens add up to those of the router.
func TestExpertsApart(t *testing.T) {
	m := openTiny(t, "mixtral", model.Options{F32: true})
	im, _, err := Collect(context.Background(), m, text(30), "t", Options{Context: 30, BOS: -1})
	require.NoError(t, err)
	c := m.Config()
	var tokens float64
	for e := range c.Experts { // this kind of file has a tensor for each expert
		col, ok := im.columns[fmt.Sprintf("model.layers.1.block_sparse_moe.experts.%d.w2.weight", e)]
		require.True(t, ok)
		require.Len(t, col.counts, 1)
		tokens += col.counts[0]
	}
	require.EqualValues(t, 29*c.ExpertsUsed, tokens)
}

func TestImportanceFile(t *testing.T) {
	m := openTiny(t, "qwen3", model.Options{})
	im, _, err := Collect(context.Background(), m, text(30), "a.txt", Options{Context: 30, BOS: -1})
	require.NoError(t, err)
	im.add("never.seen", 8, 2)
	path := filepath.Join(t.TempDir(), "m.imatrix")
	require.NoError(t, im.WriteFile(path))
	got, err := ReadImportance(path)
	require.NoError(t, err)
	require.Equal(t, []string{"a.txt"}, got.Datasets)
	require.Equal(t, 1, got.Windows)
	require.Equal(t, 30, got.Context)
	require.NotContains(t, got.Names(), "never.seen")
	require.Equal(t, im.Names()[:len(im.Names())-1], got.Names())
	for _, name := range got.Names() {
		cols := im.columns[name].cols
		a, b := im.Columns(name, cols), got.Columns(name, cols)
		require.Len(t, b, len(a))
		for i := range a[0] {
			require.InEpsilon(t, float64(a[0][i])+1e-20, float64(b[0][i])+1e-20, 1e-6)
		}
	}
}

func TestImportanceFilesRefused(t *testing.T) {
	write := func(change func(w *gguf.Writer)) string {
		w := gguf.NewWriter()
		w.Set("general.type", "imatrix")
		change(w)
		path := filepath.Join(t.TempDir(), "x.gguf")
		require.NoError(t, w.WriteFile(path))
		return path
	}
	sums := func(name string, dims []int, values ...float64) func(w *gguf.Writer) {
		return func(w *gguf.Writer) { w.AddTensor(name, gguf.TypeF32, dims, floatBytes(values)) }
	}
	for want, change := range map[string]func(w *gguf.Writer){
		"want \"imatrix\"":       func(w *gguf.Writer) { w.Set("general.type", "model") },
		"holds no tensor":        func(*gguf.Writer) {},
		"as many rows as \"a.co": sums("a.in_sum2", []int{4, 1}, 1, 2, 3, 4),
		"negative or not a number": func(w *gguf.Writer) {
			sums("a.in_sum2", []int{2, 1}, 1, math.NaN())(w)
			sums("a.counts", []int{1, 1}, 3)(w)
		},
	} {
		_, err := ReadImportance(write(change))
		require.ErrorContains(t, err, want)
	}
}

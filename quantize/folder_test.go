package quantize

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/eval"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
	"quickdraft/tensor"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

// folder copies a model of the golden set and puts a tokenizer of bytes beside it.
func folder(t *testing.T, arch string) string {
	t.Helper()
	from, dir := filepath.Join(golden.Dir(t, "archs"), arch), t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	vocab := map[string]int{}
	shifted := rune(256)
	for b := range rune(256) {
		piece := string(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			piece = string(shifted)
			shifted++
		}
		vocab[piece] = int(b)
	}
	vocab["he"] = 256
	file := map[string]any{
		"added_tokens":  []any{},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{"h e"}},
	}
	write := func(name string, v any) {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	write("tokenizer.json", file)
	write("tokenizer_config.json", map[string]any{"chat_template": "{{ messages[0].content }}"})
	return dir
}

func loadModel(t *testing.T, path string) *model.Model {
	t.Helper()
	pool := tensor.NewPool(2)
	t.Cleanup(pool.Close)
	m, err := model.Load(path, model.Options{Pool: pool, F32: true})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func perplexity(t *testing.T, m *model.Model) float64 {
	t.Helper()
	ids := make([]int32, 120)
	for i := range ids {
		ids[i] = int32(i*i*31%250) + 1
	}
	p, err := eval.Measure(context.Background(), m, ids, eval.Options{Context: 40, BOS: -1})
	require.NoError(t, err)
	return p.NLL
}

// TestFolder writes safetensors folders as GGUF, which load and predict what the folders do.
func TestFolder(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "mixtral", "gemma3-text", "phi3-longrope"} {
		t.Run(arch, func(t *testing.T) {
			dir, out := folder(t, arch), filepath.Join(t.TempDir(), "out.gguf")
			want := perplexity(t, loadModel(t, dir))
			for typ, limit := range map[gguf.Type]float64{gguf.TypeF32: 1e-6, gguf.TypeF16: 1e-2, gguf.TypeQ8_0: 0.2} {
				res, err := File(t.Context(), dir, out, plain(t, typ), Options{Threads: 2})
				require.NoError(t, err)
				m := loadModel(t, out)
				require.InDelta(t, want, perplexity(t, m), limit, typ)
				require.Equal(t, typ != gguf.TypeF32, res.Converted > 0)
			}
			opened, err := text.Open(out)
			require.NoError(t, err)
			require.Equal(t, "he said: the hé", opened.Tokenizer.Decode(opened.Tokenizer.Encode("he said: the hé", tokenizer.EncodeOptions{}), false))
			require.NotNil(t, opened.Template)
			f, err := gguf.Open(out)
			require.NoError(t, err)
			defer f.Close()
			name, _ := f.String("general.name")
			require.NotEmpty(t, name)
			require.Len(t, f.Strings("tokenizer.ggml.tokens"), loadModel(t, dir).Config().Vocab)
		})
	}
}

func TestFolderRefused(t *testing.T) {
	dir, out := folder(t, "llama3-rope"), filepath.Join(t.TempDir(), "out.gguf")
	require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
	_, err := File(t.Context(), dir, out, plain(t, gguf.TypeF16), Options{})
	require.ErrorContains(t, err, "tokenizer.json is missing")
	_, err = File(t.Context(), folder(t, "t5-v1_1-gated-gelu"), out, plain(t, gguf.TypeF16), Options{})
	require.ErrorContains(t, err, "cannot be written as GGUF here")
}

// wide makes a model with matrices of whole K-quant blocks, some of them experts.
func wide(t *testing.T) string {
	return sourceFile(t, func(w *gguf.Writer) {
		data := make([]byte, 4*256*16*3)
		values := make([]float32, 256*16*3)
		for i := range values {
			values[i] = float32(math.Sin(float64(i)*0.7)) * float32(1+i%5)
		}
		format, _ := quant.Get(gguf.TypeF32)
		format.Encode(data, values)
		w.AddTensor("blk.0.ffn_gate_exps.weight", gguf.TypeF32, []int{256, 16, 3}, data)
	})
}

// importance writes a file of importances: for each tensor the parts' columns.
func importance(t *testing.T, tensors map[string][][]float32) *eval.Importance {
	t.Helper()
	w := gguf.NewWriter()
	w.Set("general.type", "imatrix")
	w.Set("imatrix.datasets", []string{"a.txt"})
	w.Set("imatrix.chunk_count", uint32(5))
	format, _ := quant.Get(gguf.TypeF32)
	for name, parts := range tensors {
		var all, counts []float32
		for _, p := range parts {
			all, counts = append(all, p...), append(counts, 1)
		}
		if parts[0][0] < 0 { // nobody came by
			all[0], counts[0] = 0, 0
		}
		sums, n := make([]byte, 4*len(all)), make([]byte, 4*len(counts))
		format.Encode(sums, all)
		format.Encode(n, counts)
		w.AddTensor(name+".in_sum2", gguf.TypeF32, []int{len(parts[0]), len(parts)}, sums)
		w.AddTensor(name+".counts", gguf.TypeF32, []int{1, len(parts)}, n)
	}
	path := filepath.Join(t.TempDir(), "x.imatrix")
	require.NoError(t, w.WriteFile(path))
	im, err := eval.ReadImportance(path)
	require.NoError(t, err)
	return im
}

// TestImportance rounds each expert by its own columns.
func TestImportance(t *testing.T) {
	in, dir := wide(t), t.TempDir()
	columns := func(at int) []float32 {
		w := make([]float32, 256)
		for i := range w {
			w[i] = 1
			if i%7 == at {
				w[i] = 100
			}
		}
		return w
	}
	unseen := columns(2)
	unseen[0] = -1
	const name = "blk.0.ffn_gate_exps.weight"
	im := importance(t, map[string][][]float32{name: {unseen, columns(3), columns(5)}, "other": {columns(1)}})
	target, err := ParseTarget("Q4_K_M", false)
	require.NoError(t, err)
	plainPath, weighted := filepath.Join(dir, "plain.gguf"), filepath.Join(dir, "weighted.gguf")
	_, err = File(t.Context(), in, plainPath, target, Options{})
	require.NoError(t, err)
	res, err := File(t.Context(), in, weighted, target, Options{Importance: im, Threads: 3})
	require.NoError(t, err)
	require.Equal(t, 1, res.Weighted)

	read := func(path string) (*gguf.Tensor, []float32) {
		f, err := gguf.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		x, ok := f.Tensor(name)
		require.True(t, ok)
		format, _ := quant.Get(x.Type)
		v := make([]float32, x.Rows()*x.Cols())
		format.Decode(v, x.Data)
		if path == weighted {
			got, _ := f.String("quantize.imatrix.dataset")
			require.Equal(t, "a.txt", got)
		}
		return x, v
	}
	_, want := read(in)
	a, plainValues := read(plainPath)
	b, values := read(weighted)
	require.Equal(t, a.Data[:len(a.Data)/3], b.Data[:len(b.Data)/3], "the expert without tokens is rounded as ever")
	for expert, w := range [][]float32{1: columns(3), 2: columns(5)} {
		if w == nil {
			continue
		}
		var before, after float64
		for i := expert * 256 * 16; i < (expert+1)*256*16; i++ {
			p, q := float64(plainValues[i]-want[i]), float64(values[i]-want[i])
			before += float64(w[i%256]) * p * p
			after += float64(w[i%256]) * q * q
		}
		require.Less(t, after, 0.9*before, "expert %d", expert)
	}

	_, err = File(t.Context(), in, weighted, target, Options{Importance: importance(t, map[string][][]float32{"other": {columns(1)}})})
	require.ErrorContains(t, err, "importances of 1 tensors: none fits")
	two := map[string][][]float32{name: {columns(1), columns(2), columns(3), columns(4), columns(5)}}
	_, err = File(t.Context(), in, weighted, target, Options{Importance: importance(t, two)})
	require.ErrorContains(t, err, "importances of 5 parts for 48 rows")
}

// TestCollectedImportance quantizes a folder by what a pass over it has seen, under the folder's names of its tensors.
func TestCollectedImportance(t *testing.T) {
	dir := folder(t, "mixtral")
	m := loadModel(t, dir)
	ids := make([]int32, 80)
	for i := range ids {
		ids[i] = int32(i*17%250) + 1
	}
	im, _, err := eval.Collect(context.Background(), m, ids, "t", eval.Options{Context: 40, BOS: -1})
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "out.gguf")
	res, err := File(t.Context(), dir, out, plain(t, gguf.TypeIQ4_NL), Options{Importance: im})
	require.NoError(t, err)
	c := m.Config()
	require.Equal(t, 1+c.Layers*(4+3), res.Weighted, fmt.Sprint("output; q, k, v, o and the experts' three: ", strings.Join(im.Names(), " ")))
	again, _, err := eval.Collect(context.Background(), loadModel(t, out), ids, "t", eval.Options{Context: 40, BOS: -1})
	require.NoError(t, err)
	require.Len(t, again.Columns("blk.1.ffn_up_exps.weight", c.Dim), c.Experts)
	_, err = File(t.Context(), out, filepath.Join(t.TempDir(), "again.gguf"), plain(t, gguf.TypeF16), Options{Importance: again})
	require.ErrorContains(t, err, "none fits")
}

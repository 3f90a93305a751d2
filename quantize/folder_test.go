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
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range entries {
		if name := e.Name(); name == "config.json" || strings.Contains(name, ".safetensors") {
			data, err := os.ReadFile(filepath.Join(from, name))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
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

// logits are those of a few tokens, which an encoder-decoder has after an input.
func logits(t *testing.T, m *model.Model) []float32 {
	t.Helper()
	cache, err := m.NewCache(4)
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	seq := cache.NewSeq()
	if m.Config().EncoderLayers > 0 {
		require.NoError(t, m.Encode(seq, []int32{9, 30, 200, 7, 1}))
	}
	ids := []int32{0, 5, 250, 17, 100, 3}
	require.NoError(t, seq.Reserve(len(ids)))
	out, err := m.Forward(&model.Batch{Tokens: ids, Spans: []model.Span{{Seq: seq, N: len(ids)}}, Logits: []int32{0, 3, 5}})
	require.NoError(t, err)
	return append([]float32{}, out.Data[:3*out.Cols]...)
}

// TestFolder writes the safetensors folders of all architectures as GGUF, which load and give what the folders do.
func TestFolder(t *testing.T) {
	entries, err := os.ReadDir(golden.Dir(t, "archs"))
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		t.Run(e.Name(), func(t *testing.T) {
			dir, out := folder(t, e.Name()), filepath.Join(t.TempDir(), "out.gguf")
			want := loadModel(t, dir)
			_, err := File(t.Context(), dir, out, plain(t, gguf.TypeF32), Options{Threads: 2})
			require.NoError(t, err)
			same := loadModel(t, out)
			a, b := logits(t, want), logits(t, same)
			for i := range a {
				require.InDelta(t, a[i], b[i], 2e-5) // norms that are one more there, and parameters of ropes
			}
			require.Equal(t, want.Config().EOS, same.Config().EOS)
			require.Equal(t, want.Config().Vocab, same.Config().Vocab)
			for _, typ := range []gguf.Type{gguf.TypeF16, gguf.TypeQ8_0} {
				res, err := File(t.Context(), dir, out, plain(t, typ), Options{Threads: 2})
				require.NoError(t, err)
				require.Positive(t, res.Converted)
				rounded, sum, square := logits(t, loadModel(t, out)), 0.0, 0.0
				for i := range a {
					sum += float64(a[i]-rounded[i]) * float64(a[i]-rounded[i])
					square += float64(a[i]) * float64(a[i])
				}
				limit := map[gguf.Type]float64{gguf.TypeF16: 2e-3, gguf.TypeQ8_0: 0.1}[typ]
				if want.Config().EncoderLayers > 0 { // T5's scores are not scaled, which makes errors larger
					limit = map[gguf.Type]float64{gguf.TypeF16: 0.03, gguf.TypeQ8_0: 0.4}[typ]
				}
				require.Less(t, math.Sqrt(sum/square), limit, "%v", typ)
			}
			checkVocabulary(t, out, want.Config().Vocab)
		})
	}
}

// checkVocabulary opens what the folder's tokenizer and template became.
func checkVocabulary(t *testing.T, path string, vocab int) {
	opened, err := text.Open(path)
	require.NoError(t, err)
	require.Equal(t, "he said: the hé", opened.Tokenizer.Decode(opened.Tokenizer.Encode("he said: the hé", tokenizer.EncodeOptions{}), false))
	require.NotNil(t, opened.Template)
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	name, _ := f.String("general.name")
	require.NotEmpty(t, name)
	require.Len(t, f.Strings("tokenizer.ggml.tokens"), vocab)
}

// TestT5Folder writes a T5 with a Unigram tokenizer and compares ids, which are Hugging Face's there and here.
func TestT5Folder(t *testing.T) {
	for _, arch := range []string{"t5-v1_1-gated-gelu", "t5-relu-tied"} {
		dir, out := folder(t, arch), filepath.Join(t.TempDir(), "out.gguf")
		vocab := []any{[]any{"<pad>", 0}, []any{"</s>", 0}, []any{"<unk>", 0}}
		for i, piece := range []string{"▁", "▁the", "▁he", "l", "o", "lo", "s", "e", "h", "t"} {
			vocab = append(vocab, []any{piece, -2 - float64(i)/4})
		}
		special := func(id int, text string) any {
			return map[string]any{"id": id, "content": text, "special": true, "normalized": false}
		}
		data, err := json.Marshal(map[string]any{
			"added_tokens":  []any{special(0, "<pad>"), special(1, "</s>"), special(2, "<unk>"), special(13, "<extra_id_0>")},
			"pre_tokenizer": map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
			"decoder":       map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
			"model":         map[string]any{"type": "Unigram", "unk_id": 2, "vocab": vocab},
			"post_processor": map[string]any{
				"type": "TemplateProcessing", "single": []any{map[string]any{"Sequence": map[string]any{"id": "A"}}, map[string]any{"SpecialToken": map[string]any{"id": "</s>"}}},
				"special_tokens": map[string]any{"</s>": map[string]any{"ids": []int{1}}},
			},
		})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600))
		_, err = File(t.Context(), dir, out, plain(t, gguf.TypeQ8_0), Options{})
		require.NoError(t, err)
		want, err := text.Open(dir)
		require.NoError(t, err)
		got, err := text.Open(out)
		require.NoError(t, err)
		for _, s := range []string{"hello the lot", "  the   hotel  ", "he\tsees\nz", "", "a<extra_id_0>he</s>"} {
			o := tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}
			ids := want.Tokenizer.Encode(s, o)
			require.Equal(t, ids, got.Tokenizer.Encode(s, o), "%q", s)
			require.EqualValues(t, 1, ids[len(ids)-1], "%q", s)
		}
		f, err := gguf.Open(out)
		require.NoError(t, err)
		defer f.Close()
		bias, ok := f.Tensor("enc.blk.0.attn_rel_b.weight")
		require.True(t, ok)
		require.Equal(t, gguf.TypeF32, bias.Type)
	}
}

func TestFolderRefused(t *testing.T) {
	dir, out := folder(t, "llama3-rope"), filepath.Join(t.TempDir(), "out.gguf")
	require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
	_, err := File(t.Context(), dir, out, plain(t, gguf.TypeF16), Options{})
	require.ErrorContains(t, err, "tokenizer.json is missing")
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

package model

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
)

// t5Golden is goldens.json of an encoder-decoder.
type t5Golden struct {
	Sequences []struct {
		Input        []int32     `json:"encoder_input_ids"`
		Start        int32       `json:"decoder_start_token_id"`
		EncoderLast  []float32   `json:"encoder_last_hidden_first16"`
		EncoderFirst []float32   `json:"encoder_first_hidden_first16"`
		First        []float32   `json:"first_step_logits"`
		Greedy       []int32     `json:"greedy"`
		Forced       []int32     `json:"teacher_forced_decoder_input_ids"`
		Top5IDs      [][]int32   `json:"teacher_forced_top5_ids"`
		Top5Logits   [][]float32 `json:"teacher_forced_top5_logits"`
		LastLogits   []float32   `json:"teacher_forced_last_logits"`
		LastHidden   []float32   `json:"decoder_last_hidden_first16"`
	} `json:"sequences"`
}

// t5Tolerance: scores are not scaled, which makes the reference's own float32 noise five times that of other models.
const t5Tolerance = 2 * logitTolerance

// TestGoldenT5Files runs the goldens on GGUF files, and with an encoder that takes its input in runs.
func TestGoldenT5Files(t *testing.T) {
	root := golden.Dir(t, "archs")
	for _, name := range archNames(t, root, "t5") {
		dir := filepath.Join(root, name)
		checkT5(t, loadModel(t, dir, Options{F32: true, MaxBatch: 18}), dir)
		checkT5(t, loadModel(t, convertT5(t, dir), Options{F32: true, MaxBatch: 64}), dir)
		path, err := export(t, dir)
		require.NoError(t, err)
		checkT5(t, loadModel(t, path, Options{F32: true, MaxBatch: 64}), dir)
	}
}

func checkT5(t *testing.T, m *Model, dir string) {
	var g t5Golden
	golden.ReadJSON(t, filepath.Join(dir, "goldens.json"), &g)
	require.NotEmpty(t, g.Sequences)
	for i := range g.Sequences {
		s := &g.Sequences[i]
		require.Equal(t, s.Start, m.Config().DecoderStart)
		seq := newSeq(t, m, len(s.Forced))
		require.NoError(t, m.Encode(seq, s.Input))
		hidden := rows(m.arch.(*t5).inputs[seq].hidden)
		require.InDelta(t, 0, maxDiff(s.EncoderFirst, hidden[0][:16]), hiddenTolerance)
		require.InDelta(t, 0, maxDiff(s.EncoderLast, last(hidden)[:16]), hiddenTolerance)

		all := feed(t, m, seq, s.Forced)
		require.InDelta(t, 0, maxDiff(s.First, all[0]), t5Tolerance, "sequence %d: first step", i)
		require.InDelta(t, 0, maxDiff(s.LastLogits, last(all)), t5Tolerance, "sequence %d: last step", i)
		hiddenScale := float64(max(1, slices.Max(s.LastHidden)/16)) // a final norm with a large gain scales the noise too
		require.InDelta(t, 0, maxDiff(s.LastHidden, last(hiddenRows(m))[:16]), 5*hiddenScale*hiddenTolerance, "sequence %d: hidden", i)
		for pos, ids := range s.Top5IDs {
			for k, id := range ids {
				require.InDelta(t, s.Top5Logits[pos][k], all[pos][id], t5Tolerance, "sequence %d position %d", i, pos)
			}
			require.Equal(t, ids[0], argmax(all[pos]), "sequence %d position %d", i, pos)
		}

		again := newSeq(t, m, len(s.Forced))
		require.NoError(t, m.Encode(again, s.Input))
		next, greedy := s.Start, []int32(nil)
		for pos := range s.Greedy {
			logits := last(feed(t, m, again, []int32{next}))
			require.Equal(t, all[pos], logits, "sequence %d: token by token, position %d", i, pos)
			next = argmax(logits)
			greedy = append(greedy, next)
		}
		require.Equal(t, s.Greedy, greedy)
		m.Forget(again)
		_, err := m.Forward(&Batch{Tokens: []int32{0}, Spans: []Span{{Seq: again, N: 1}}})
		require.ErrorContains(t, err, "Encode it first")
	}
}

// TestT5TreesAndNeighbours compares a tree of one sequence, beside another sequence, with chains.
func TestT5TreesAndNeighbours(t *testing.T) {
	dir := aT5(t)
	m := loadModel(t, dir, Options{MaxBatch: 64})
	parents := []int32{-1, 0, 0, 1, 2}
	start := func(input []int32) Span {
		seq := newSeq(t, m, 40)
		require.NoError(t, m.Encode(seq, input))
		feed(t, m, seq, []int32{0, 9, 8})
		return Span{Seq: seq}
	}
	tree, other := start([]int32{5, 6, 7}), start([]int32{9, 4})
	tree.N, tree.Parents, other.N = 5, parents, 2
	ids := []int32{11, 12, 13, 14, 15, 21, 22}
	logits, err := m.Forward(&Batch{Tokens: ids, Spans: []Span{tree, other}, Logits: []int32{0, 1, 2, 3, 4, 5, 6}})
	require.NoError(t, err)
	got := rows(logits)
	for node := range parents {
		var path []int32
		for n := int32(node); n >= 0; n = parents[n] {
			path = append([]int32{ids[n]}, path...)
		}
		require.Equal(t, last(feed(t, m, start([]int32{5, 6, 7}).Seq, path)), got[node], "node %d", node)
	}
	require.Equal(t, feed(t, m, start([]int32{9, 4}).Seq, ids[5:]), got[5:])
}

func TestEncodeErrors(t *testing.T) {
	m := loadModel(t, tinyGGUF("llama", gguf.TypeQ8_0).write(t), Options{MaxBatch: 8})
	require.ErrorContains(t, m.Encode(newSeq(t, m, 1), []int32{1}), "no encoder")
	m = loadModel(t, aT5(t), Options{MaxBatch: 8})
	require.ErrorContains(t, m.Encode(newSeq(t, m, 1), nil), "input of 0 tokens")
	require.ErrorContains(t, m.Encode(newSeq(t, m, 1), []int32{int32(m.Config().Vocab)}), "want 0 to")
}

// aT5 is the folder of some T5.
func aT5(t *testing.T) string {
	root := golden.Dir(t, "archs")
	return filepath.Join(root, archNames(t, root, "t5")[0])
}

// convertT5 writes a T5 folder as GGUF.
func convertT5(t *testing.T, dir string) string {
	t.Helper()
	ckpt, err := safetensors.OpenDir(dir)
	require.NoError(t, err)
	defer ckpt.Close()
	c, err := readConfig("t5", architectures["t5"], configFields(ckpt))
	require.NoError(t, err)
	w := gguf.NewWriter()
	convertConfig(w, "t5", c)
	w.Set("t5.block_count", uint32(c.EncoderLayers))
	w.Set("t5.decoder_block_count", uint32(c.Layers))
	w.Set("t5.attention.relative_buckets_count", uint32(c.RelBuckets))
	w.Set("t5.attention.relative_max_distance", uint32(c.RelDistance))
	src := &safetensorsWeights{ckpt: ckpt, hf: t5Names}
	add := func(as, name string) {
		if x, ok := src.find(name + ".weight"); ok {
			dims := []int{x.cols, x.rows}
			if x.rows == 1 {
				dims = dims[:1]
			}
			w.AddTensor(as+".weight", gguf.TypeF32, dims, floats(decoded(x)...))
		}
	}
	for name := range t5Names {
		switch prefix, stem := name[:min(8, len(name))], name[min(8, len(name)):]; {
		case prefix != "enc.blk." && prefix != "dec.blk.":
			add(name, name)
		default:
			for i := range max(c.EncoderLayers, c.Layers) {
				layer, as := fmt.Sprint(i, "."), stem
				if stem == "ffn_only" {
					as = "ffn_up"
				}
				add(prefix+layer+as, prefix+layer+stem)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "t5.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

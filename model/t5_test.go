package model

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
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

// t5Tolerance: scores are not scaled, which makes the reference's own float32 noise five times that of other models, and in some
// texts more: there exactT5 says how much.
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
	e := openExactT5(t, dir)
	for i := range g.Sequences {
		s := &g.Sequences[i]
		require.Equal(t, s.Start, m.Config().DecoderStart)
		seq := newSeq(t, m, len(s.Forced))
		require.NoError(t, m.Encode(seq, s.Input))
		hidden := rows(m.arch.(*t5).inputs[seq].hidden)
		require.InDelta(t, 0, maxDiff(s.EncoderFirst, hidden[0][:16]), hiddenTolerance)
		require.InDelta(t, 0, maxDiff(s.EncoderLast, last(hidden)[:16]), hiddenTolerance)

		all := feed(t, m, seq, s.Forced)
		exact := e.logits(s.Input, s.Forced)
		tolerance := max(t5Tolerance, e.tolerance(exact, s.Input, s.Forced))
		require.LessOrEqual(t, farthest(exact, all), tolerance, "sequence %d: float64", i)
		require.InDelta(t, 0, maxDiff(s.First, all[0]), tolerance, "sequence %d: first step", i)
		require.InDelta(t, 0, maxDiff(s.LastLogits, last(all)), tolerance, "sequence %d: last step", i)
		hiddenScale := float64(max(1, slices.Max(s.LastHidden)/16)) // a final norm with a large gain scales the noise too
		require.InDelta(t, 0, maxDiff(s.LastHidden, last(hiddenRows(m))[:16]), 5*hiddenScale*hiddenTolerance, "sequence %d: hidden", i)
		for pos, ids := range s.Top5IDs {
			for k, id := range ids {
				require.InDelta(t, s.Top5Logits[pos][k], all[pos][id], tolerance, "sequence %d position %d", i, pos)
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
	return openExactT5(t, dir).write(t)
}

// TestT5NearFloat64 compares random models of the goldens' shape with float64: the first T5 with and without an output matrix, and 1.1.
func TestT5NearFloat64(t *testing.T) {
	for name, e := range map[string]*exactT5{
		"relu, untied": randomT5(1, false, true), "relu, tied": randomT5(2, false, false), "gated": randomT5(3, true, true),
	} {
		m := loadModel(t, e.write(t), Options{F32: true, MaxBatch: 64})
		r := rand.New(rand.NewPCG(4, 4))
		for _, n := range []int{1, 7, 40} {
			input, text := randomIDs(r, n, e.c.Vocab), randomIDs(r, 17, e.c.Vocab)
			exact := e.logits(input, text)
			seq := newSeq(t, m, len(text))
			require.NoError(t, m.Encode(seq, input))
			require.LessOrEqual(t, farthest(exact, feed(t, m, seq, text)), e.tolerance(exact, input, text), "%s: input of %d tokens", name, n)
		}
	}
}

func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// TestT5Scores has scores in the hundreds, which T5 does not scale, and wants weights that are right to the last bits of float32.
func TestT5Scores(t *testing.T) {
	const heads, dim, nKeys = 2, 24, 9
	r := rand.New(rand.NewPCG(1, 2))
	pool := tensor.NewPool(1)
	defer pool.Close()
	q, k, v, got := tensor.NewF32(1, heads*dim), tensor.NewF32(nKeys, heads*dim), tensor.NewF32(nKeys, heads*dim), tensor.NewF32(1, heads*dim)
	copy(q.Data, normal(r, len(q.Data), 10))
	copy(v.Data, normal(r, len(v.Data), 1))
	first := normal(r, heads*dim, 10)
	for i := range nKeys { // keys near each other, so that all have a weight
		copy(k.Row(i), normal(r, heads*dim, 0.02))
		for d := range first {
			k.Row(i)[d] += first[d]
		}
	}
	var a t5Attention
	a.init(pool, &Config{Heads: heads, HeadDim: dim})
	a.full(got, q, k, v, nil)
	for head := range heads {
		lo := head * dim
		var scores, want [nKeys]float64
		for i := range scores {
			for d := lo; d < lo+dim; d++ {
				scores[i] += float64(q.Data[d]) * float64(k.Row(i)[d])
			}
		}
		require.Greater(t, math.Abs(scores[0]), 100.0)
		sum := 0.0
		for i, s := range scores {
			want[i] = math.Exp(s - slices.Max(scores[:]))
			sum += want[i]
		}
		for d := lo; d < lo+dim; d++ {
			exact := 0.0
			for i := range want {
				exact += want[i] / sum * float64(v.Row(i)[d])
			}
			require.InDelta(t, exact, got.Data[d], 1e-6)
		}
	}
}

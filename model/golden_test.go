package model

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/kvcache"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

// archGolden is goldens.json of a decoder-only model.
type archGolden struct {
	Sequences []struct {
		InputIDs   []int32     `json:"input_ids"`
		LastLogits []float32   `json:"last_logits"`
		Top5IDs    [][]int32   `json:"top5_ids"`
		Top5Logits [][]float32 `json:"top5_logits"`
		LastHidden []float32   `json:"last_hidden_first16"`
		Greedy     []int32     `json:"greedy"`
	} `json:"sequences"`
}

// Tolerances of shared/golden: the float32 path is typically within 1e-4; more than 5e-4 is a fault.
const (
	logitTolerance  = 1e-4
	hiddenTolerance = 1e-4
	nearTie         = 1e-3
)

// archNames are the models of the golden set that are of a kind, "causal" or "t5".
func archNames(t *testing.T, root, kind string) (names []string) {
	var manifest struct {
		Models []struct{ Name, Kind string }
	}
	golden.ReadJSON(t, filepath.Join(root, "manifest.json"), &manifest)
	for _, m := range manifest.Models {
		if m.Kind == kind {
			names = append(names, m.Name)
		}
	}
	require.NotEmpty(t, names)
	return names
}

// TestGoldenArchs compares the float32 path with the reference, from both spellings of config.json.
func TestGoldenArchs(t *testing.T) {
	root := golden.Dir(t, "archs")
	cases := 0
	for _, kind := range []string{"causal", "t5"} {
		for _, name := range archNames(t, root, kind) {
			for _, config := range []string{"config.json", "config_v5.json"} {
				t.Run(name+"/"+config, func(t *testing.T) {
					m := loadGolden(t, filepath.Join(root, name), config, Options{F32: true, MaxBatch: 64})
					if kind == "t5" {
						checkT5(t, m, filepath.Join(root, name))
					} else {
						checkDecoder(t, m, filepath.Join(root, name))
					}
				})
			}
			cases++
		}
	}
	golden.Count(t, "archs", cases)
}

func checkDecoder(t *testing.T, m *Model, dir string) {
	var g archGolden
	golden.ReadJSON(t, filepath.Join(dir, "goldens.json"), &g)
	require.NotEmpty(t, g.Sequences)
	for i := range g.Sequences {
		checkSequence(t, m, &g, i)
	}
}

// TestGoldenArchsInPieces feeds a prompt at once, in pieces of 7 and token by token: the same bits in the float32 path,
// with float16 keys, and with quantised weights.
func TestGoldenArchsInPieces(t *testing.T) {
	root := golden.Dir(t, "archs")
	for _, name := range archNames(t, root, "causal") {
		dir := filepath.Join(root, name)
		var g archGolden
		golden.ReadJSON(t, filepath.Join(dir, "goldens.json"), &g)
		ids := g.Sequences[len(g.Sequences)-1].InputIDs
		for kind, m := range map[string]*Model{
			"float32":    loadModel(t, dir, Options{F32: true, MaxBatch: 64}),
			"float16 KV": loadModel(t, dir, Options{MaxBatch: 64}),
			"Q4_0":       loadModel(t, convert(t, dir, gguf.TypeQ4_0), Options{MaxBatch: 64}),
		} {
			want := feed(t, m, newSeq(t, m, len(ids)), ids)
			for _, piece := range []int{7, 1} {
				require.Equal(t, want, feedInPieces(t, m, ids, piece), "%s, %s, pieces of %d", name, kind, piece)
			}
		}
	}
}

func feedInPieces(t *testing.T, m *Model, ids []int32, piece int) (all [][]float32) {
	seq := newSeq(t, m, len(ids))
	for at := 0; at < len(ids); at += piece {
		b := &Batch{Tokens: ids[at:min(at+piece, len(ids))]}
		b.Spans = []Span{{Seq: seq, N: len(b.Tokens), Prompt: len(ids)}}
		for i := range b.Tokens {
			b.Logits = append(b.Logits, int32(i))
		}
		logits, err := m.Forward(b)
		require.NoError(t, err)
		all = append(all, rows(logits)...)
		seq.Commit(len(b.Tokens))
	}
	return all
}

func checkSequence(t *testing.T, m *Model, g *archGolden, i int) {
	s := &g.Sequences[i]
	seq := newSeq(t, m, len(s.InputIDs)+len(s.Greedy)+1)
	logits := feed(t, m, seq, s.InputIDs)
	require.InDelta(t, 0, maxDiff(s.LastLogits, last(logits)), logitTolerance, "sequence %d: logits", i)
	hidden := float64(max(1, slices.Max(s.LastHidden)/16)) // a final norm with a large gain scales the noise too
	require.InDelta(t, 0, maxDiff(s.LastHidden, last(hiddenRows(m))[:16]), hidden*hiddenTolerance, "sequence %d: hidden", i)
	for pos, row := range logits {
		got := top(row, 5)
		for k, id := range s.Top5IDs[pos] {
			require.InDelta(t, s.Top5Logits[pos][k], row[id], logitTolerance, "sequence %d position %d", i, pos)
			tied := k > 0 && s.Top5Logits[pos][k-1]-s.Top5Logits[pos][k] < nearTie ||
				k < 4 && s.Top5Logits[pos][k]-s.Top5Logits[pos][k+1] < nearTie
			if !tied {
				require.Equal(t, id, got[k], "sequence %d position %d: rank %d", i, pos, k)
			}
		}
	}
	var greedy []int32
	next := top(last(logits), 1)[0]
	for range s.Greedy {
		greedy = append(greedy, next)
		next = top(last(feed(t, m, seq, []int32{next})), 1)[0]
	}
	require.Equal(t, s.Greedy, greedy, "sequence %d: greedy", i)
}

// loadGolden loads a folder of the golden set with one of its two configs.
func loadGolden(t *testing.T, dir, config string, o Options) *Model {
	t.Helper()
	if config != "config.json" {
		dir = copyDir(t, dir)
		require.NoError(t, os.Rename(filepath.Join(dir, config), filepath.Join(dir, "config.json")))
	}
	return loadModel(t, dir, o)
}

func loadModel(t testing.TB, path string, o Options) *Model {
	t.Helper()
	m, err := Load(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), data, 0o644))
	}
	return to
}

// newSeq makes a cache for n tokens with one sequence in it.
func newSeq(t testing.TB, m *Model, n int) *kvcache.Seq {
	t.Helper()
	c, err := m.NewCache(n/kvcache.BlockTokens + 2)
	require.NoError(t, err)
	return c.NewSeq()
}

// feed runs tokens in one pass, commits them, and returns a copy of the logits of every one.
func feed(t testing.TB, m *Model, seq *kvcache.Seq, tokens []int32) [][]float32 {
	t.Helper()
	want := make([]int32, len(tokens))
	for i := range want {
		want[i] = int32(i)
	}
	logits, err := m.Forward(&Batch{Tokens: tokens, Spans: []Span{{Seq: seq, N: len(tokens)}}, Logits: want})
	require.NoError(t, err)
	seq.Commit(len(tokens))
	return rows(logits)
}

func hiddenRows(m *Model) [][]float32 { return rows(m.Hidden()) }

func rows(x tensor.F32) (out [][]float32) {
	for i := range x.Rows {
		out = append(out, slices.Clone(x.Row(i)))
	}
	return out
}

func last(x [][]float32) []float32 { return x[len(x)-1] }

func maxDiff(want, got []float32) (d float64) {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	for i := range want {
		diff := math.Abs(float64(want[i]) - float64(got[i]))
		if math.IsNaN(diff) {
			return diff
		}
		d = max(d, diff)
	}
	return d
}

// top is the ids of the n largest values, the lower id first among equals.
func top(row []float32, n int) []int32 {
	ids := make([]int32, len(row))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case row[a] > row[b]:
			return -1
		case row[a] < row[b]:
			return 1
		}
		return 0
	})
	return ids[:n]
}

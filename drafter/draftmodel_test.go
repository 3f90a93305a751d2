package drafter

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
)

// tiny opens a random-weight model of the golden set.
func tiny(t testing.TB, arch string, maxBatch int) *model.Model {
	t.Helper()
	m, err := model.Load(filepath.Join(golden.Dir(t, "archs"), arch), model.Options{MaxBatch: maxBatch})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// continuation is what m says greedily after ids, computed from the start for every token.
func continuation(t testing.TB, m *model.Model, ids []int32, n int) (out []int32) {
	t.Helper()
	for range n {
		out = append(out, best(lastRow(t, m, append(append([]int32(nil), ids...), out...))))
	}
	return out
}

func lastRow(t testing.TB, m *model.Model, ids []int32) []float32 {
	t.Helper()
	cache, err := m.NewCache(1 + len(ids)/16)
	require.NoError(t, err)
	defer cache.Close()
	logits, err := m.Forward(&model.Batch{Tokens: ids, Spans: []model.Span{{Seq: cache.NewSeq(), N: len(ids)}}, Logits: []int32{int32(len(ids) - 1)}})
	require.NoError(t, err)
	return append([]float32(nil), logits.Row(0)...)
}

func best(row []float32) int32 {
	at := 0
	for i, x := range row {
		if x > row[at] {
			at = i
		}
	}
	return int32(at)
}

func sequence(n, from int) (ids []int32) {
	for i := range n {
		ids = append(ids, int32((from+i*i*7)%300))
	}
	return ids
}

func sampler(t testing.TB, p sample.Params, vocab int) *sample.Sampler {
	t.Helper()
	s, err := sample.New(p, vocab)
	require.NoError(t, err)
	return s
}

// draftRound makes a round with a new session.
func draftRound(t testing.TB, d Drafter, ids []int32, p sample.Params, nodes int) Round {
	t.Helper()
	s, err := d.NewSession()
	require.NoError(t, err)
	s.Committed(ids)
	return Round{Session: s, IDs: ids, Budget: Budget{Nodes: nodes, Depth: nodes}, Sampler: sampler(t, p, 512), Seed: p.Seed, Tree: &Tree{}}
}

func TestModelDraftsItsOwnGreedyTokens(t *testing.T) {
	m, check := tiny(t, "llama3-rope", 40), tiny(t, "llama3-rope", 256)
	d, err := NewModel(ModelOptions{Model: m, Vocab: 512, KVTokens: 1024})
	require.NoError(t, err)
	defer d.Close()
	var rounds []Round
	for n := range 4 { // 150 tokens of prompts through passes of 40
		rounds = append(rounds, draftRound(t, d, sequence(15+15*n, n), sample.Greedy(), 3+n))
	}
	for step := range 3 {
		for i := range rounds {
			rounds[i].Tree.Reset()
		}
		require.NoError(t, d.Propose(rounds))
		for i, r := range rounds {
			want := continuation(t, check, r.IDs, 3+i)
			require.Equal(t, want, r.Tree.IDs)
			next := append(append([]int32(nil), r.IDs...), want[:step]...) // some guesses accepted
			rounds[i].IDs = append(next, 5)
		}
	}
	for _, r := range rounds {
		r.Session.Close()
	}
	require.Equal(t, d.cache.Blocks(), d.cache.FreeBlocks())
}

func TestModelDrawsFromTheRequestsPipeline(t *testing.T) {
	m, check := tiny(t, "llama3-rope", 64), tiny(t, "llama3-rope", 64)
	d, err := NewModel(ModelOptions{Model: m, Vocab: 512})
	require.NoError(t, err)
	defer d.Close()
	p := sample.Default()
	p.Temperature, p.TopK, p.RepeatPenalty, p.Seed = 1.3, 20, 1.2, 99
	r := draftRound(t, d, sequence(20, 3), p, 5)
	require.NoError(t, d.Propose([]Round{r}))
	require.Equal(t, 5, r.Tree.Len())
	history := append([]int32(nil), r.IDs...)
	own := sampler(t, p, 512)
	for i, id := range r.Tree.IDs {
		var q sample.Dist
		require.NoError(t, own.Dist(&q, lastRow(t, check, history), history))
		require.Equal(t, q, *r.Tree.Q[i])
		require.Equal(t, q.Draw(sample.Uniform(99, len(history), sample.PurposeDraft)), id)
		history = append(history, id)
	}
}

func TestModelStopsQuietly(t *testing.T) {
	m := tiny(t, "llama3-rope", 64)
	t.Run("its context ends", func(t *testing.T) {
		d, err := NewModel(ModelOptions{Model: m, Vocab: 512, Context: 24})
		require.NoError(t, err)
		defer d.Close()
		near, past := draftRound(t, d, sequence(22, 1), sample.Greedy(), 8), draftRound(t, d, sequence(25, 1), sample.Greedy(), 8)
		require.NoError(t, d.Propose([]Round{near, past}))
		require.Equal(t, 3, near.Tree.Len())
		require.Zero(t, past.Tree.Len())
		require.EqualValues(t, 2, d.Counts().ContextFull)
	})
	t.Run("no blocks", func(t *testing.T) {
		d, err := NewModel(ModelOptions{Model: m, Vocab: 512, KVTokens: 32})
		require.NoError(t, err)
		defer d.Close()
		a, b := draftRound(t, d, sequence(20, 1), sample.Greedy(), 4), draftRound(t, d, sequence(20, 2), sample.Greedy(), 4)
		require.NoError(t, d.Propose([]Round{a, b}))
		require.Equal(t, 4, a.Tree.Len())
		require.Zero(t, b.Tree.Len())
		require.EqualValues(t, 1, d.Counts().NoBlocks)
		a.Session.Close()
		require.NoError(t, d.Propose([]Round{b}))
		require.Equal(t, 4, b.Tree.Len(), "blocks of a closed session serve the next")
	})
	t.Run("a token it does not know", func(t *testing.T) {
		d, err := NewModel(ModelOptions{Model: m, Vocab: 600})
		require.NoError(t, err)
		defer d.Close()
		r := draftRound(t, d, []int32{1, 2, 550, 3}, sample.Greedy(), 4)
		require.NoError(t, d.Propose([]Round{r}))
		require.Zero(t, r.Tree.Len())
		require.EqualValues(t, 1, d.Counts().Unknown)
	})
	t.Run("too little belief", func(t *testing.T) {
		d, err := NewModel(ModelOptions{Model: m, Vocab: 512})
		require.NoError(t, err)
		defer d.Close()
		for _, p := range []sample.Params{sample.Greedy(), sample.Default()} {
			r := draftRound(t, d, sequence(20, 1), p, 8)
			r.Budget.MinP = 1
			require.NoError(t, d.Propose([]Round{r}))
			require.Zero(t, r.Tree.Len())
		}
	})
}

func TestModelNeverProposesPastTheTargetsVocabulary(t *testing.T) {
	m := tiny(t, "llama3-rope", 64)
	for _, c := range []struct{ vocab, tokens, limit int }{{300, 300, 300}, {700, 0, 512}, {512, 256, 256}} {
		d, err := NewModel(ModelOptions{Model: m, Vocab: c.vocab, Tokens: c.tokens})
		require.NoError(t, err)
		for _, p := range []sample.Params{sample.Greedy(), sample.Default()} {
			r := draftRound(t, d, sequence(9, 1)[:4], p, 16)
			r.Sampler = sampler(t, p, c.vocab)
			for i := range r.IDs {
				r.IDs[i] %= 200
			}
			require.NoError(t, d.Propose([]Round{r}))
			require.Equal(t, 16, r.Tree.Len())
			for _, id := range r.Tree.IDs {
				require.Less(t, int(id), c.limit)
			}
		}
		require.NoError(t, d.Close())
	}
}

func TestModelOptionsAreChecked(t *testing.T) {
	m := tiny(t, "llama3-rope", 64)
	for want, o := range map[string]ModelOptions{
		"no draft model":                {Vocab: 5},
		"target vocabulary of 0 tokens": {Model: m},
		"draft context of 257 tokens":   {Model: m, Vocab: 512, Context: 257},
		"KV cache of -1 tokens":         {Model: m, Vocab: 512, KVTokens: -1},
	} {
		_, err := NewModel(o)
		require.ErrorContains(t, err, want)
	}
}

func TestModelAllocatesLittle(t *testing.T) {
	m := tiny(t, "llama3-rope", 64)
	d, err := NewModel(ModelOptions{Model: m, Vocab: 512})
	require.NoError(t, err)
	defer d.Close()
	r := draftRound(t, d, sequence(100, 1), sample.Default(), 6)
	rounds := []Round{r}
	at := 20
	rounds[0].IDs = r.IDs[:at]
	require.NoError(t, d.Propose(rounds))
	require.LessOrEqual(t, testing.AllocsPerRun(30, func() {
		r.Tree.Reset()
		at += 2
		rounds[0].IDs = r.IDs[:at]
		if err := d.Propose(rounds); err != nil || r.Tree.Len() != 6 {
			panic("no guesses")
		}
	}), 1.0)
	require.False(t, math.IsNaN(r.Tree.Q[0].P[0]))
}

// TestModelWithInfiniteLogitsMakesNoGuess drafts with a copy of a model in which one token's output row overflows.
func TestModelWithInfiniteLogitsMakesNoGuess(t *testing.T) {
	from, to := filepath.Join(golden.Dir(t, "archs"), "llama-untied"), t.TempDir()
	files, err := os.ReadDir(from)
	require.NoError(t, err)
	patched := false
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		require.NoError(t, err)
		if filepath.Ext(f.Name()) == ".safetensors" {
			n := 8 + binary.LittleEndian.Uint64(data)
			var header map[string]struct {
				Shape   []int    `json:"shape"`
				Offsets []uint64 `json:"data_offsets"`
			}
			require.NoError(t, json.Unmarshal(data[8:n], &header))
			if e, ok := header["lm_head.weight"]; ok {
				for i := range uint64(e.Shape[1]) {
					binary.LittleEndian.PutUint32(data[n+e.Offsets[0]+4*i:], math.Float32bits(3e38))
				}
				patched = true
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(to, f.Name()), data, 0o644))
	}
	require.True(t, patched)
	m, err := model.Load(to, model.Options{})
	require.NoError(t, err)
	defer m.Close()
	d, err := NewModel(ModelOptions{Model: m, Vocab: 512})
	require.NoError(t, err)
	defer d.Close()
	a, b := draftRound(t, d, sequence(9, 1), sample.Greedy(), 4), draftRound(t, d, []int32{5, 6, 7}, sample.Greedy(), 4)
	for range 2 {
		require.NoError(t, d.Propose([]Round{a, b}))
		require.Zero(t, a.Tree.Len()+b.Tree.Len())
	}
	require.EqualValues(t, 4, d.Counts().NaN)
}

func TestNaNStopsOnlyTheLanesItIsIn(t *testing.T) {
	a, b, c := &lane{}, &lane{}, &lane{}
	r := runner{in: []*lane{a, b, c}, batch: model.Batch{Spans: []model.Span{{N: 2}, {N: 1}, {N: 3}}}}
	require.False(t, r.stopNaN(os.ErrNotExist))
	require.True(t, r.stopNaN(&model.NaNError{Rows: []int32{2, 5}}))
	require.Equal(t, []bool{false, true, true}, []bool{a.stopped, b.stopped, c.stopped})
	require.EqualValues(t, 2, r.counts.NaN)
}

// TestAShortlistRestrictsGuesses drafts with logits of few tokens: guesses are the best of these, and draws come from the
// distribution over them.
func TestAShortlistRestrictsGuesses(t *testing.T) {
	m, check := tiny(t, "llama3-rope", 64), tiny(t, "llama3-rope", 256)
	d, err := NewModel(ModelOptions{Model: m, Vocab: 512, KVTokens: 1024, Shortlist: 64, ListRoom: 64})
	require.NoError(t, err)
	defer d.Close()
	require.Less(t, d.Bytes(), m.WeightBytes())
	p := sample.Default()
	p.Temperature, p.Seed = 1, 4
	for _, params := range []sample.Params{sample.Greedy(), p} {
		r := draftRound(t, d, []int32{200, 201, 9, 300}, params, 5)
		beside := draftRound(t, d, []int32{400, 9, 480, 100}, params, 5) // whose tokens are its own
		require.NoError(t, d.Propose([]Round{beside, r}))
		require.Equal(t, 5, r.Tree.Len())
		listed := map[int32]bool{}
		for id := range int32(512) {
			listed[id] = r.Session.(*modelSession).own.Has(id)
		}
		require.True(t, listed[200] && listed[300] && listed[0] && !listed[400])
		require.Contains(t, d.rows.short.IDs(), int32(400))
		history := slices.Clone(r.IDs)
		own := sampler(t, params, 512)
		for i, id := range r.Tree.IDs {
			row := lastRow(t, check, history)
			for other := range row {
				if !listed[int32(other)] {
					row[other] = float32(math.Inf(-1))
				}
			}
			if r.Tree.Q[i] == nil {
				require.Equal(t, best(row), id)
			} else {
				var q sample.Dist
				require.NoError(t, own.Dist(&q, row, history))
				require.Equal(t, q, *r.Tree.Q[i])
			}
			history = append(history, id)
		}
	}
}

package bench

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
)

func TestSpeculationComparesTheSameAnswers(t *testing.T) {
	e, err := engine.Open(filepath.Join(golden.Dir(t, "archs"), "llama3-rope"), engine.Options{
		Context: 160, Threads: 2, KVTokens: 1024,
		Spec: engine.SpecOptions{Fixed: 3, Open: func(m *model.Model) (drafter.Drafter, error) {
			return drafter.New("layerskip", drafter.Config{Target: m})
		}},
	})
	require.NoError(t, err)
	defer e.Close()
	o := SpecOptions{
		Kinds: []string{"chat", "maths"}, PerKind: 3, Tokens: 24, Streams: 2, Sampling: sample.Greedy(), EOG: []int32{},
		Encode: func(prompt string) (ids []int32, err error) {
			for _, b := range []byte(prompt)[:24] {
				ids = append(ids, int32(b))
			}
			return ids, nil
		},
	}
	o.Fixed = []int{1, 2}
	var lines int
	o.Note = func(string) { lines++ }
	res, err := Speculation(t.Context(), e, o)
	require.NoError(t, err)
	require.Equal(t, 2, lines)
	require.Len(t, res.Rows, 2)
	all := res.All
	require.Equal(t, []int{8, 8}, []int{all.Answers, all.Identical}, "two groups of each kind")
	require.Positive(t, all.Plain)
	require.Positive(t, all.With)
	require.Positive(t, all.Rounds)
	require.GreaterOrEqual(t, all.MeanAccepted, 1.0)
	require.Equal(t, res.Rows[0].Drafted+res.Rows[1].Drafted, all.Drafted)
	require.Zero(t, all.Predicted, "of one request at a time")
	require.Len(t, res.Pass, e.Spec().NMax+1)
	require.Contains(t, res.String(), "maths")
	require.Len(t, all.Fixed, 2)
	best := max(all.Plain, all.Fixed[0].TokensPerSecond, all.Fixed[1].TokensPerSecond)
	require.InDelta(t, all.With/best, all.AgainstBest, 1e-9)

	o.Kinds, o.Streams, o.Fixed, o.Rounds = []string{"chat"}, 1, nil, 2
	res, err = Speculation(t.Context(), e, o)
	require.NoError(t, err)
	require.Equal(t, []int{6, 6}, []int{res.All.Answers, res.All.Identical})
	require.Positive(t, res.All.Predicted)
	require.InDelta(t, res.All.Predicted/res.All.With-1, res.All.Error, 1e-9)

	require.NotContains(t, res.All.line(), "n/a")
	o.Tokens, o.PerKind = 1, 1
	res, err = Speculation(t.Context(), e, o)
	require.NoError(t, err)
	require.Equal(t, 5, strings.Count(res.All.line(), "n/a"), "%s", res.All.line())

	o.Kinds = []string{"nonsense"}
	_, err = Speculation(t.Context(), e, o)
	require.ErrorContains(t, err, "nonsense")
}

// TestGroupsAreFull has as many prompts at once as there are streams, each prompt at least once.
func TestGroupsAreFull(t *testing.T) {
	set := strings.Split("abcdefghij", "")
	for streams, want := range map[int]string{1: "a b c d e f g h i j", 4: "abcd efgh ghij", 8: "abcdefgh cdefghij", 10: "abcdefghij", 12: "abcdefghij"} {
		var got []string
		for _, g := range (&SpecOptions{Streams: streams}).groups(set) {
			got = append(got, strings.Join(g, ""))
		}
		require.Equal(t, want, strings.Join(got, " "), "%d streams", streams)
	}
}

func TestAnswersAreDrawnAsAsked(t *testing.T) {
	e, err := engine.Open(filepath.Join(golden.Dir(t, "archs"), "llama3-rope"), engine.Options{Context: 160, Threads: 2, KVTokens: 1024})
	require.NoError(t, err)
	defer e.Close()
	o := SpecOptions{Sampling: sample.Default(), EOG: []int32{}}
	o.Sampling.TopK, o.Sampling.Seed = 5, 7
	require.Equal(t, "temperature 1, top-k 5, top-p 1, min-p 0", describe(&o.Sampling))
	ids := [][]int32{{1, 2, 3}, {1, 2, 3}}
	got, _, err := o.run(t.Context(), e, ids, mode{plain: true}, 24)
	require.NoError(t, err)
	require.NotEqual(t, got[0], got[1])
	for i, want := range got {
		p := o.Sampling
		p.Seed += uint64(i)
		ticket, err := e.Submit(t.Context(), engine.Request{Prompt: ids[i], MaxTokens: 24, Sampling: p, EOG: []int32{}, NoSpec: true})
		require.NoError(t, err)
		var alone []int32
		for tok := range ticket.Tokens() {
			if tok.HasID {
				alone = append(alone, tok.ID)
			}
		}
		require.Equal(t, alone, want)
	}
}

func TestRatesOfKnownAnswers(t *testing.T) {
	answer := func(tokens int, ms time.Duration) []engine.Stats {
		return []engine.Stats{{DecodedTokens: tokens, Decode: ms * time.Millisecond}, {DecodedTokens: 1, Decode: time.Millisecond}}
	}
	var r, all SpecRow
	for _, ms := range []time.Duration{1000, 800, 1250} { // 10, 12.5 and 8 tokens/s
		r.count(answer(11, ms), mode{plain: true})
		r.count(answer(11, 500), mode{})
		r.count(answer(11, 400), mode{fixed: 2})
	}
	all.add(&r)
	for _, r := range []*SpecRow{&r, &all} {
		r.finish()
		require.InDelta(t, 30/3.05, r.Plain, 1e-9)
		require.InDelta(t, 20, r.With, 1e-9)
		require.InDelta(t, 20*3.05/30, r.Ratio, 1e-9)
		require.InDelta(t, 4.5/10, float64(r.PlainSpread), 1e-9)
		require.InDelta(t, (2.5-1.6)/2, float64(r.RatioSpread), 1e-9)
		require.InDelta(t, 20.0/25, r.AgainstBest, 1e-9)
	}
	var one SpecRow
	one.count(answer(11, 100), mode{plain: true})
	one.count(answer(11, 100), mode{})
	one.finish()
	require.Contains(t, one.line(), "1.00x     n/a")
}

func TestPredictionOfKnownRounds(t *testing.T) {
	answer := func(n int) []engine.Stats { return []engine.Stats{{DecodedTokens: n, Decode: time.Second}} }
	var r SpecRow
	for _, n := range []int{21, 31} { // of each answer the first token is the prompt's
		r.count(answer(n), mode{})
		r.foresee(answer(n), 1.25)
	}
	r.finish()
	require.InDelta(t, 25, r.With, 1e-9)
	require.InDelta(t, 20, r.Predicted, 1e-9)
	require.InDelta(t, -0.2, r.Error, 1e-9)
	var all SpecRow
	all.add(&r)
	all.finish()
	require.InDelta(t, 20, all.Predicted, 1e-9)
}

// TestAnswersThatDifferAreFound has guesses that change answers: lenience takes whatever is guessed.
func TestAnswersThatDifferAreFound(t *testing.T) {
	e, err := engine.Open(filepath.Join(golden.Dir(t, "archs"), "llama3-rope"), engine.Options{Context: 160, Threads: 2, Spec: engine.SpecOptions{
		Fixed: 3, Lenience: 1e-9, Open: func(m *model.Model) (drafter.Drafter, error) { return drafter.NewRandom(m.Config().Vocab, 1), nil },
	}})
	require.NoError(t, err)
	defer e.Close()
	o := SpecOptions{Kinds: []string{"chat"}, PerKind: 2, Tokens: 24, Streams: 1, Sampling: sample.Greedy(), EOG: []int32{}, Encode: func(string) ([]int32, error) {
		return []int32{1, 2, 3, 4}, nil
	}}
	res, err := Speculation(t.Context(), e, o)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, []int{res.All.Answers, res.All.Identical})
	require.True(t, res.Lossy)
}

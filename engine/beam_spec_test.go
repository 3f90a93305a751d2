package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/tensor"
)

// beamRequest asks for up to n tokens, ends on some tokens, and by turns is penalised and biased.
func beamRequest(seed, nPrompt, n int) Request {
	r := request(seed, nPrompt, n)
	r.IgnoreEOS = seed%3 == 2
	for id := int32(seed); id < 512; id += 17 {
		r.EOG = append(r.EOG, id)
	}
	if seed%2 == 1 {
		r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.3, 0.2
		r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 2}
	}
	return r
}

// beamsOf runs a beam search and requires that nothing went past its limit.
func beamsOf(t testing.TB, e *Engine, r Request, o BeamOptions) ([]Beam, Stats) {
	t.Helper()
	var s Stats
	o.Stats = &s
	got, err := e.Beams(context.Background(), r, o)
	require.NoError(t, err)
	require.NotEmpty(t, got)
	require.LessOrEqual(t, len(got), o.Beams)
	for _, b := range got {
		require.LessOrEqual(t, len(b.IDs), r.MaxTokens)
		if b.Finish == FinishStop {
			require.Contains(t, r.EOG, b.IDs[len(b.IDs)-1])
		}
		for _, id := range b.IDs[:len(b.IDs)-1] {
			require.False(t, !r.IgnoreEOS && slices.Contains(r.EOG, id), "a token after the end")
		}
	}
	return got, s
}

// countPasses counts the passes of the target from now on.
func countPasses(t testing.TB, e *Engine) *int {
	n, inner := 0, e.forward
	require.NoError(t, e.do(func() error {
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			n++
			return inner(b)
		}
		return nil
	}))
	return &n
}

// TestSpeculativeBeamsAreThoseOfAPlainSearch compares answers and the bits of their scores, with every drafter, widths,
// length penalties, stops, penalties, near the end of the context, in small passes and beside other requests.
func TestSpeculativeBeamsAreThoseOfAPlainSearch(t *testing.T) {
	plain := openTiny(t, Options{Context: 96, KVTokens: 1024})
	type search struct {
		r    Request
		o    BeamOptions
		want []Beam
	}
	var searches []search
	for seed := range 8 {
		r := beamRequest(seed, 1+11*seed, 14)
		if seed == 7 {
			r = beamRequest(seed, 80, 16) // the context ends with the answer
		}
		o := beams(2+seed%4, []float64{1, 0, -1, 2.5}[seed%4])
		want, _ := beamsOf(t, plain, r, o)
		searches = append(searches, search{r, o, want})
	}
	names := append(drafter.Names(), "suffix+draft", "ngram+suffix", "lookahead+random")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // an engine for each
			for _, o := range []Options{
				{Spec: SpecOptions{Fixed: 1}}, {Spec: SpecOptions{Fixed: 4}, Threads: 1}, {Spec: SpecOptions{Fixed: 16, NMin: 2}, Chunk: 23},
				{Spec: SpecOptions{PMin: 0.01, Fixed: 3}, NoPrefix: true, KVTokens: 192}, {},
			} {
				o.Context, o.Spec = 96, fitting(name, o.Spec)
				o.Spec.Open = withDrafter(t, name, nil)
				if o.KVTokens == 0 {
					o.KVTokens = 1024
				}
				e := openTiny(t, o)
				beside := submit(t, e, request(3, 20, 30))
				for _, s := range searches {
					got, _ := beamsOf(t, e, s.r, s.o)
					require.Equal(t, s.want, got, "%d beams, length penalty %v", s.o.Beams, s.o.LengthPenalty)
				}
				whole(t, beside)
				require.NoError(t, e.Close())
				require.Equal(t, e.idleBlocks, e.cache.FreeBlocks())
			}
		})
	}
}

// trace runs a search and returns which tokens it followed each sequence with, and the answers.
func trace(t testing.TB, e *Engine, r Request, o BeamOptions) (next map[string][]int32, answers []Beam) {
	r.Sampling.Temperature, r.Sampling.LogprobsAfter = 0, true
	run, err := e.newRun(context.Background(), r)
	require.NoError(t, err)
	s := &search{e: e, r: run, o: o}
	require.NoError(t, e.do(s.begin))
	next = map[string][]int32{}
	for more := true; more; {
		require.NoError(t, e.do(func() (err error) { more, err = s.step(); return err }))
		for _, h := range s.live {
			if n := len(h.ids) - 1; n > 0 {
				next[fmt.Sprint(h.ids[:n])] = append(next[fmt.Sprint(h.ids[:n])], h.ids[n])
			}
		}
	}
	require.NoError(t, e.do(s.end))
	return next, s.done
}

// randomForest is a drafter of random trees, many of whose nodes are what the search chooses.
type randomForest struct {
	rng  *rand.Rand
	next map[string][]int32
	fail int // of so many calls one fails; 0: none
}

func (d *randomForest) Name() string { return "forest" }
func (d *randomForest) Bytes() int64 { return 0 }
func (d *randomForest) Close() error { return nil }
func (d *randomForest) NewSession() (drafter.Session, error) {
	return &scriptedSession{d: &scripted{}}, nil
}
func (d *randomForest) Propose(rounds []drafter.Round) error {
	for _, r := range rounds {
		if seen := r.Session.(*scriptedSession).seen; len(seen) > len(r.IDs) || !slices.Equal(seen, r.IDs[:len(seen)]) {
			return errors.New("told what is not in the sequence")
		}
		for i := range d.rng.IntN(2 * r.Budget.Nodes) { // beyond its budget
			parent := int32(d.rng.IntN(i+1) - 1)
			id := int32(d.rng.IntN(600) - 40)
			if right := d.next[fmt.Sprint(pathTo(r.IDs, r.Tree, parent))]; len(right) > 0 && d.rng.IntN(60) > 0 {
				id = right[d.rng.IntN(len(right))]
			} else if d.rng.IntN(3) > 0 {
				id = 5
			}
			if d.rng.IntN(8) == 0 {
				r.Tree.AddGuest(id, parent)
			} else {
				r.Tree.Add(id, parent, nil)
			}
		}
	}
	if d.fail > 0 && d.rng.IntN(d.fail) == 0 {
		return errors.New("draft failed")
	}
	return nil
}

// pathTo is a sequence with the tokens down to a node.
func pathTo(ids []int32, t *drafter.Tree, node int32) []int32 {
	if node < 0 {
		return ids
	}
	return append(slices.Clip(pathTo(ids, t, t.Parents[node])), t.IDs[node])
}

func TestSpeculativeBeamsWithRandomForests(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "gemma3-text", "phi3-longrope"} {
		plain := openArch(t, arch, Options{Context: 128, KVTokens: 1024})
		accepted, failed := 0, 0
		for seed := range 12 {
			r, o := beamRequest(seed, 5+seed, 20), beams(2+seed%4, float64(seed%3)-0.5)
			next, want := trace(t, plain, r, o)
			d := &randomForest{rng: rand.New(rand.NewPCG(uint64(seed), 1)), next: next, fail: 7}
			e := openArch(t, arch, Options{Context: 128, KVTokens: 1024, Spec: SpecOptions{NMax: 30, Fixed: 30, Drafter: d}})
			got, stats := beamsOf(t, e, r, o)
			require.Equal(t, want, got)
			accepted, failed = accepted+stats.Spec.Accepted, failed+stats.Spec.Failed
			require.LessOrEqual(t, stats.Spec.Accepted, stats.Spec.Drafted)
			require.NoError(t, e.Close())
		}
		require.Greater(t, accepted, 20, "%s: hardly a guess was right", arch)
		require.Positive(t, failed)
	}
}

// TestAPerfectDraftSavesPasses lets a copy of the target search ahead.
func TestAPerfectDraftSavesPasses(t *testing.T) {
	const nOut, levels = 40, 4
	for _, name := range []string{"draft", "hierarchical", "crossvocab", "suffix+draft", "layerskip"} {
		for _, n := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				r := request(n, 12, nOut)
				plain := openTiny(t, Options{Context: 128, KVTokens: 2048})
				without := countPasses(t, plain)
				want, plainStats := beamsOf(t, plain, r, beams(n, 1))
				require.Equal(t, nOut, *without)
				require.Equal(t, nOut-1, plainStats.Passes)

				e := openTiny(t, Options{Context: 128, KVTokens: 2048, Spec: SpecOptions{Fixed: levels, Open: withDrafter(t, name, func(c *drafter.Config) {
					c.Translation = letters(t, 512, 0, 513) // all but one token
				})}})
				with := countPasses(t, e)
				got, stats := beamsOf(t, e, r, beams(n, 1))
				require.Equal(t, want, got)
				require.Equal(t, *with-1, stats.Passes)
				t.Logf("%d passes with guesses, %d without, %+v", *with, *without, stats.Spec)
				if name == "layerskip" || name == "crossvocab" {
					return // not perfect: it leaves out layers, or a token
				}
				require.Equal(t, 1+(nOut-1+levels)/(levels+1), *with, "a pass for the prompt, and one for every %d levels", levels+1)
				require.Equal(t, n*(nOut-1-(*with-1)), stats.Spec.Accepted)
				require.Equal(t, e.SpecTotals().Accepted, stats.Spec.Accepted)
			})
		}
	}
}

func TestBeamsWithoutGuesses(t *testing.T) {
	e := openTiny(t, Options{Context: 128, KVTokens: 1024, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}})
	r := request(2, 12, 20)
	want, stats := beamsOf(t, e, r, beams(3, 1))
	require.Positive(t, stats.Spec.Drafted)
	require.Equal(t, stats.Spec.Rounds, stats.Spec.Offered[0], "each hypothesis stands for a request in every pass with guesses")
	for d, n := range stats.Spec.PerDepth {
		require.GreaterOrEqual(t, stats.Spec.Offered[d], n)
	}
	require.Equal(t, 12, stats.PromptTokens)
	require.Equal(t, 3*20, stats.DecodedTokens)
	require.Positive(t, stats.Prefill)
	answer(t, e, r)
	r.NoSpec = true
	got, stats := beamsOf(t, e, r, beams(3, 1))
	require.Equal(t, want, got)
	require.Zero(t, stats.Spec.Drafted)
	require.Equal(t, 11, stats.CachedTokens)
	r.NoSpec, r.SpecMax = false, 1
	_, stats = beamsOf(t, e, r, beams(3, 1))
	require.Len(t, stats.Spec.Offered, 1, "one level at most")
}

// TestBeamsFollowAMatcher restricts every hypothesis to what a matcher allows after it, with and without guesses.
func TestBeamsFollowAMatcher(t *testing.T) {
	r := request(2, 12, 20)
	r.Matcher = &alternating{}
	want, _ := beamsOf(t, openTiny(t, Options{Context: 128, KVTokens: 1024}), r, beams(4, 1))
	for _, b := range want {
		m := &alternating{}
		for _, id := range b.IDs {
			require.True(t, m.allows(id))
			m.Accept(id)
		}
	}
	for _, name := range []string{"draft", "random", "suffix"} {
		e := openTiny(t, Options{Context: 128, KVTokens: 1024, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, name, nil)}})
		got, stats := beamsOf(t, e, r, beams(4, 1))
		require.Equal(t, want, got)
		if name == "draft" {
			require.Greater(t, stats.Spec.Accepted, 4*12)
		}
	}
}

// TestNaNGuessesEndNoSearch has the target fail on a tree, as a guess might make it.
func TestNaNGuessesEndNoSearch(t *testing.T) {
	r := request(2, 12, 20)
	want, _ := beamsOf(t, openTiny(t, Options{Context: 128, KVTokens: 1024}), r, beams(3, 1))
	e := openTiny(t, Options{Context: 128, KVTokens: 1024, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}})
	inner := e.forward
	nTrees := 0
	require.NoError(t, e.do(func() error {
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			if b.Spans[0].Parents != nil {
				nTrees++
				return tensor.F32{}, &model.NaNError{Rows: []int32{1}, Layer: 1}
			}
			return inner(b)
		}
		return nil
	}))
	got, _ := beamsOf(t, e, r, beams(3, 1))
	require.Equal(t, want, got)
	require.Equal(t, 1, nTrees, "no more guesses after that")

	require.NoError(t, e.do(func() error {
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			return tensor.F32{}, &model.NaNError{Rows: []int32{0}, Layer: 1}
		}
		return nil
	}))
	_, err := e.Beams(context.Background(), r, beams(3, 1))
	require.ErrorContains(t, err, "in layer 1 of 0 to")
}

func TestBeamsRefuseAStopper(t *testing.T) {
	e := openTiny(t, Options{Context: 64})
	r := request(1, 5, 5)
	r.Stop = &stopAt{n: 2}
	_, err := e.Beams(context.Background(), r, beams(2, 1))
	require.ErrorContains(t, err, "give the ids that end one as EOG")
}

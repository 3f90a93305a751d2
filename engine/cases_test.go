package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// guessing opens the tiny model with a drafter that guesses 16 tokens in every round.
func guessing(t *testing.T, guess func(*scripted, *drafter.Round)) *Engine {
	d := &scripted{rng: rand.New(rand.NewPCG(8, 9)), guess: guess}
	return openTiny(t, Options{Context: 160, Spec: SpecOptions{Fixed: 16, Drafter: d}})
}

// fullAnswer is the prompt and what follows it, as oracle wants it.
func fullAnswer(r Request, ids []int32) map[int32][]int32 {
	return map[int32][]int32{r.Prompt[0]: append(append([]int32{}, r.Prompt...), ids...)}
}

// TestEveryEndOfGenerationEnds gives several ids that end an answer, as Llama 3 has: each ends it, alone and inside accepted
// guesses, nothing follows it, and a request that ignores them goes past each.
func TestEveryEndOfGenerationEnds(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	r := request(4, 6, 40)
	full, _ := answer(t, plain, r)
	r.Reproducible = true
	guesses := guessing(t, oracle(fullAnswer(r, full)))
	first := make(map[int32]int) // place of an id in the answer
	for i, id := range full {
		if _, ok := first[id]; !ok {
			first[id] = i
		}
	}
	require.Greater(t, len(first), 10)
	absent := int32(0)
	for ; ; absent++ {
		if _, ok := first[absent]; !ok {
			break
		}
	}
	for name, e := range map[string]*Engine{"plain": plain, "guesses": guesses} {
		for id, at := range first {
			for _, eog := range [][]int32{{id}, {absent, id}, {id, absent}} {
				q := r
				q.EOG, q.IgnoreEOS = eog, false
				ticket := submit(t, e, q)
				ids, why := drain(t, ticket)
				require.Equal(t, full[:at+1], ids, "%s: %d ends it", name, id)
				require.Equal(t, FinishStop, why)
				require.Equal(t, at+1, ticket.Stats().DecodedTokens, "%s: nothing after it is counted", name)
				q.IgnoreEOS = true
				ids, why = answer(t, e, q)
				require.Equal(t, full, ids, "%s: %d is ignored", name, id)
				require.Equal(t, FinishLength, why)
			}
		}
	}
}

// TestTheGuessThatIsForbidden has a drafter that proposes one token always, which the request forbids or makes unlikely.
func TestTheGuessThatIsForbidden(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	base := request(3, 9, 40)
	likely, _ := answer(t, plain, func() Request { r := base; r.Sampling = sample.Greedy(); return r }())
	favourite := likely[0]
	always := func(_ *scripted, r *drafter.Round) {
		parent := int32(-1)
		for range r.Budget.Nodes {
			parent = r.Tree.Add(favourite, parent, nil)
		}
	}
	e := guessing(t, always)
	for name, change := range map[string]func(p *sample.Params){
		"bias":               func(p *sample.Params) { p.LogitBias = map[int32]float64{favourite: -100} },
		"bias and min-p":     func(p *sample.Params) { p.LogitBias = map[int32]float64{favourite: -100}; p.MinP = 0.1 },
		"repetition":         func(p *sample.Params) { p.RepeatPenalty, p.RepeatLastN = 1.8, 64 },
		"frequency":          func(p *sample.Params) { p.FrequencyPenalty, p.PresencePenalty = 1.5, 1 },
		"the favourite":      func(p *sample.Params) { p.LogitBias = map[int32]float64{favourite: 100} },
		"favoured, then not": func(p *sample.Params) { p.LogitBias = map[int32]float64{favourite: 8}; p.FrequencyPenalty = 2 },
	} {
		for _, greedy := range []bool{true, false} {
			r := base
			if greedy {
				r.Sampling = sample.Greedy()
			}
			change(&r.Sampling)
			r.Reproducible = !greedy
			want, _ := answer(t, plain, r)
			ticket := submit(t, e, r)
			got, _ := drain(t, ticket)
			require.Equal(t, want, got, "%s, greedy %v", name, greedy)
			if name == "bias" || name == "bias and min-p" {
				require.NotContains(t, got, favourite)
			}
			require.Positive(t, ticket.Stats().Spec.Drafted, name)
			r.Reproducible = false // any draws of the target's distribution
			got, _ = answer(t, e, r)
			require.Len(t, got, 40)
			if name == "bias" || name == "bias and min-p" {
				require.NotContains(t, got, favourite)
			}
		}
	}
}

// TestLogprobsOfAcceptedGuesses wants an entry for every token, accepted as a guess or not, with the bits of plain decoding.
func TestLogprobsOfAcceptedGuesses(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	for n := range 4 {
		r := lawRequest(n)
		r.Reproducible, r.Sampling.Mirostat = true, 0
		want := whole(t, submit(t, plain, r))
		var ids []int32
		for _, tok := range want[:len(want)-1] {
			require.True(t, tok.HasID)
			ids = append(ids, tok.ID)
		}
		ticket := submit(t, guessing(t, oracle(fullAnswer(r, ids))), r)
		require.Equal(t, want, whole(t, ticket), "request %d", n)
		require.Greater(t, ticket.Stats().Spec.Accepted, 20)
	}
}

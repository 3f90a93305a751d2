package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/sample"
)

// TestAcceptanceIsPerRequest compares each request's acceptance alone and among sixteen.
func TestAcceptanceIsPerRequest(t *testing.T) {
	for _, name := range []string{"draft", "crossvocab", "layerskip", "ngram", "suffix", "lookahead", "hierarchical"} {
		t.Run(name, func(t *testing.T) {
			// Fresh engines, so that neither finds the other's prompts in its prefix cache.
			stats := func(nTogether int) (all []SpecStats) {
				e := openTiny(t, Options{Context: 128, KVTokens: 4096, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, name, nil)}})
				for n := 0; n < 16; n += nTogether {
					var tickets []*Ticket
					for i := range nTogether {
						r := request(n+i, 8+3*(n+i), 24)
						r.Sampling = sample.Greedy()
						ticket, err := e.Submit(context.Background(), r)
						require.NoError(t, err)
						tickets = append(tickets, ticket)
					}
					for _, ticket := range tickets {
						drain(t, ticket)
						all = append(all, ticket.Stats().Spec)
					}
				}
				require.NoError(t, e.Close())
				return all
			}
			require.Equal(t, stats(1), stats(16))
		})
	}
}

// FuzzSpeculation runs random requests and a beam search with random drafters, hostile ones too, trees, matchers, limits and
// stops, on both layouts of the cache: answers equal those without guesses unless lenience is asked for, nothing goes past a limit, the caches are whole after every pass (see Options.SelfCheck), and
// every block comes back.
func FuzzSpeculation(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		plain := openTiny(t, Options{Context: 96, KVTokens: 1024})
		rng := rand.New(rand.NewPCG(seed, 77))
		name, o := fuzzOptions(rng)
		open := withDrafter(t, name, func(c *drafter.Config) {
			c.Seed, c.Context, c.KVTokens = seed, 1+rng.IntN(96), 16+rng.IntN(400)
			c.Shortlist, c.ListRoom = rng.IntN(2)*rng.IntN(300), 16+rng.IntN(64)
			if rng.IntN(2) == 0 {
				c.Draft = load(t, c.Target, "llama-untied")
			}
		})
		o.Spec.Open = open
		if rng.IntN(3) == 0 {
			name, o.Note = name+"+hostile", func(string) {}
			o.Spec.Open = fuzzHostile(rng, open)
		}
		e := openTiny(t, o)
		var tickets []*Ticket
		var makers []func() Request
		for range 1 + rng.IntN(4) {
			makers = append(makers, fuzzRequest(rng))
			ticket, err := e.Submit(context.Background(), makers[len(makers)-1]())
			require.NoError(t, err)
			tickets = append(tickets, ticket)
		}
		if rng.IntN(3) == 0 && !o.Contiguous {
			fuzzBeams(t, rng, plain, e)
		}
		for n, ticket := range tickets {
			checkFuzzed(t, plain, makers[n], ticket, o.Spec.Lenience == 0, fmt.Sprintf("%s, %+v", name, o))
		}
		require.NoError(t, e.Close())
		require.Equal(t, e.cache.Blocks(), e.cache.FreeBlocks())
	})
}

// fuzzOptions returns a drafter's name, or several's, and limits.
func fuzzOptions(rng *rand.Rand) (string, Options) {
	names := append(drafter.Names(), shortlisted)
	name := names[rng.IntN(len(names))]
	if rng.IntN(3) == 0 && name != shortlisted {
		if other := names[rng.IntN(len(names)-1)]; other != name {
			name += "+" + other
		}
	}
	nMax := 1 + rng.IntN(20)
	o := Options{
		Context: 96, KVTokens: 96 + 16*rng.IntN(20), Threads: 1 + rng.IntN(2), Chunk: 8 + rng.IntN(40), MaxRunning: 1 + rng.IntN(5),
		NoPrefix: rng.IntN(4) == 0,
		Spec: SpecOptions{
			NMax: nMax, NMin: rng.IntN(2), Fixed: rng.IntN(nMax + 1), PMin: float64(rng.IntN(2)) * rng.Float64(), Branch: rng.IntN(maxBranch + 1),
		},
	}
	o.Spec = fitting(name, o.Spec)
	if rng.IntN(4) == 0 {
		o.Contiguous, o.MaxRunning = true, 1
	}
	if rng.IntN(4) == 0 {
		o.Spec.Lenience = 0.01 + 0.98*rng.Float64()
	}
	return name, o
}

// fuzzHostile opens a drafter and beside it, or in its place, one whose answers are wrong in ways that change and whose calls
// panic now and then.
func fuzzHostile(rng *rand.Rand, open func(*model.Model) (drafter.Drafter, error)) func(*model.Model) (drafter.Drafter, error) {
	names, own := slices.Sorted(maps.Keys(wrongs)), rand.New(rand.NewPCG(rng.Uint64(), 5))
	d := &hostile{guess: func(r *drafter.Round) { wrongs[names[own.IntN(len(names))]](r) }}
	rare := 1 + rng.IntN(200)
	d.in = func(call string) error {
		if call != "Close" && own.IntN(rare) == 0 {
			panic("boom in " + call)
		}
		return nil
	}
	var bad drafter.Drafter = d
	if rng.IntN(2) == 0 {
		bad = instantly{d}
	}
	alone := rng.IntN(2) == 0
	return func(target *model.Model) (drafter.Drafter, error) {
		if alone {
			return bad, nil
		}
		good, err := open(target)
		if err != nil {
			return nil, err
		}
		if u, ok := good.(*drafter.Union); ok {
			return drafter.NewUnion(append([]drafter.Drafter{bad}, u.Parts()...)...), nil
		}
		return drafter.NewUnion(bad, good), nil
	}
}

// checkFuzzed compares an answer with the one that plain decoding gives, or where chance decides, with its limits.
func checkFuzzed(t *testing.T, plain *Engine, remake func() Request, ticket *Ticket, lossless bool, what string) {
	r := remake()
	r.SpecMax = 0 // there are no guesses to be fewer
	want := whole(t, submit(t, plain, r))
	got := whole(t, ticket)
	if lossless && (r.Reproducible || r.Sampling.Temperature == 0) {
		require.Equal(t, want, got, what)
	}
	last, fresh := got[len(got)-1], remake().Stop
	var ids []int32
	for i, tok := range got[:len(got)-1] {
		ids = append(ids, tok.ID)
		ended := !r.IgnoreEOS && slices.Contains(r.EOG, tok.ID)
		if s, ok := fresh.(*stopAt); ok {
			ended = ended || i+1 == s.n
		}
		require.False(t, ended && i < len(got)-2, "%s: a token after the end", what)
		require.Equal(t, r.Logprobs, tok.Logprob != 0, what)
	}
	require.LessOrEqual(t, len(ids), r.MaxTokens, what)
	require.LessOrEqual(t, len(r.Prompt)+len(ids), 96, what)
	if last.Finish == FinishLength && len(r.Prompt)+len(ids) < 96 {
		require.Len(t, ids, r.MaxTokens, what)
	}
	s := ticket.Stats()
	require.Equal(t, len(ids), s.DecodedTokens, what)
	require.LessOrEqual(t, s.Spec.Accepted, min(s.Spec.Drafted, len(ids)), what)
}

// fuzzBeams runs a search among the requests and one without guesses.
func fuzzBeams(t *testing.T, rng *rand.Rand, plain, e *Engine) {
	r := beamRequest(rng.IntN(500), 1+rng.IntN(40), 1+rng.IntN(24))
	if rng.IntN(3) == 0 {
		r.Matcher = &alternating{}
	}
	o := beams(1+rng.IntN(4), rng.Float64()*2-1)
	got, err := e.Beams(context.Background(), r, o)
	if err != nil { // the requests' blocks are not there for a search to take
		require.ErrorContains(t, err, "blocks of 16 tokens")
		return
	}
	want, _ := beamsOf(t, plain, r, o)
	require.Equal(t, want, got)
}

// fuzzRequest returns a maker of equal requests; each has a stopper and a matcher of its own.
func fuzzRequest(rng *rand.Rand) func() Request {
	r := request(rng.IntN(1000), 1+rng.IntN(90), rng.IntN(60))
	r.Reproducible = rng.IntN(4) > 0
	if rng.IntN(2) == 0 {
		r.Sampling = sample.Greedy()
	}
	if rng.IntN(2) == 0 {
		r.Sampling.RepeatPenalty, r.Sampling.PresencePenalty = 1+rng.Float64(), rng.Float64()
	}
	if rng.IntN(3) == 0 {
		r.Sampling.LogitBias = map[int32]float64{int32(rng.IntN(512)): -100, int32(rng.IntN(512)): 5 * rng.Float64()}
	}
	r.Logprobs = rng.IntN(4) == 0
	r.IgnoreEOS = rng.IntN(2) == 0
	r.EOG = []int32{int32(rng.IntN(512)), int32(rng.IntN(512)), int32(rng.IntN(100))}
	r.SpecMax = rng.IntN(2) * rng.IntN(20)
	stop, masked := 0, rng.IntN(3) == 0
	if rng.IntN(2) == 0 {
		stop = 1 + rng.IntN(30)
	}
	return func() Request {
		again := r
		if stop > 0 {
			again.Stop = &stopAt{n: stop}
		}
		if masked {
			again.Matcher = &alternating{}
		}
		return again
	}
}

package engine

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
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

// FuzzSpeculation runs random requests with random drafters under random limits and stops: greedy answers equal plain
// ones, nothing goes past a limit, and every block comes back.
func FuzzSpeculation(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		plain := openTiny(t, Options{Context: 96, KVTokens: 1024})
		rng := rand.New(rand.NewPCG(seed, 77))
		names := drafter.Names()
		name := names[rng.IntN(len(names))]
		if rng.IntN(3) == 0 {
			name += "+" + names[rng.IntN(len(names))]
		}
		nMax := 1 + rng.IntN(20)
		o := Options{
			Context: 96, KVTokens: 96 + 16*rng.IntN(20), Threads: 1 + rng.IntN(2), Chunk: 1 + rng.IntN(40), MaxRunning: 1 + rng.IntN(5),
			Spec: SpecOptions{NMax: nMax, NMin: rng.IntN(2), Fixed: rng.IntN(nMax + 1), PMin: float64(rng.IntN(2)) * rng.Float64()},
		}
		o.Spec.Open = withDrafter(t, name, func(c *drafter.Config) {
			c.Seed, c.Context, c.KVTokens = seed, 1+rng.IntN(96), 16+rng.IntN(400)
		})
		e := openTiny(t, o)
		var tickets []*Ticket
		var want [][]int32
		var reasons []Finish
		for range 1 + rng.IntN(4) {
			make := fuzzRequest(rng)
			ids, why := answer(t, plain, make())
			want, reasons = append(want, ids), append(reasons, why)
			ticket, err := e.Submit(context.Background(), make())
			require.NoError(t, err)
			tickets = append(tickets, ticket)
		}
		for n, ticket := range tickets {
			ids, why := drain(t, ticket)
			require.Equal(t, want[n], ids, "%s, %+v", name, o)
			require.Equal(t, reasons[n], why)
		}
		require.NoError(t, e.Close())
		require.Equal(t, e.cache.Blocks(), e.cache.FreeBlocks())
	})
}

// fuzzRequest returns a maker of equal requests; each has a stopper of its own.
func fuzzRequest(rng *rand.Rand) func() Request {
	r := request(rng.IntN(1000), 1+rng.IntN(90), rng.IntN(60))
	r.Reproducible = true
	if rng.IntN(2) == 0 {
		r.Sampling = sample.Greedy()
	}
	if rng.IntN(2) == 0 {
		r.Sampling.RepeatPenalty, r.Sampling.PresencePenalty = 1+rng.Float64(), rng.Float64()
	}
	r.IgnoreEOS = rng.IntN(2) == 0
	r.EOG = []int32{int32(rng.IntN(512)), int32(rng.IntN(512)), int32(rng.IntN(100))}
	stop := 0
	if rng.IntN(2) == 0 {
		stop = 1 + rng.IntN(30)
	}
	return func() Request {
		again := r
		if stop > 0 {
			again.Stop = &stopAt{n: stop}
		}
		return again
	}
}

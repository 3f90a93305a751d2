package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// setting is one of the ways in which greedy answers have to come out alike.
type setting struct {
	arch, method                            string
	nMax, branch, threads, streams          int
	fixed, penalties, bias, mask, eog, stop bool
}

// settings draws n of them so that every method, number of guesses, branch, number of threads and of streams comes equally
// often; what goes with what is chance.
func settings(n int) (all []setting) {
	rng := rand.New(rand.NewPCG(20, 26))
	methods := append(drafter.Names(), shortlisted, "suffix+draft", "lookahead+ngram+random")
	archs := []string{"llama3-rope", "gemma3-text", "llama-untied", "phi3-longrope"}
	order := rng.Perm(n)
	for i := range n {
		coin := func() bool { return rng.IntN(2) == 0 }
		all = append(all, setting{
			arch: archs[rng.IntN(len(archs))], method: methods[i%len(methods)], nMax: 1 + order[i]%16, branch: []int{0, 1, 3}[rng.IntN(3)],
			threads: 1 + rng.IntN(2), streams: []int{1, 8}[rng.IntN(2)], fixed: rng.IntN(4) > 0,
			penalties: coin(), bias: coin(), mask: coin(), eog: coin(), stop: coin(),
		})
	}
	return all
}

// request is the n-th request of a setting; stoppers and matchers are new ones.
func (s *setting) request(n int) Request {
	r := request(100+n, 4+13*n, 24)
	r.Sampling = sample.Greedy()
	if s.penalties {
		r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty, r.Sampling.PresencePenalty = 1.2, 0.1, 0.2
	}
	if s.bias {
		r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 1.5, 100: 2}
	}
	if s.mask {
		r.Matcher = &alternating{}
	}
	if s.eog {
		r.IgnoreEOS = false
		for id := int32(n); id < 512; id += 23 {
			r.EOG = append(r.EOG, id)
		}
	}
	if s.stop {
		r.Stop = &stopAt{n: 5 + 2*n}
	}
	return r
}

// TestGreedyAnswersAreAlikeInEverySetting draws from the product of drafters, guesses, trees, threads, streams, penalties,
// biases, masks and stops, and compares with plain decoding on one thread, one request at a time.
func TestGreedyAnswersAreAlikeInEverySetting(t *testing.T) {
	n := 160
	if testing.Short() {
		n = 48
	}
	plain := map[string]*Engine{}
	drafted := 0
	for i, s := range settings(n) {
		if plain[s.arch] == nil {
			plain[s.arch] = openArch(t, s.arch, Options{Context: 144, Threads: 1, MaxRunning: 1})
		}
		o := Options{Context: 144, KVTokens: 2048, Threads: s.threads, MaxRunning: s.streams, SelfCheck: true}
		if o.Spec = fitting(s.method, SpecOptions{NMax: s.nMax, Branch: s.branch, Open: withDrafter(t, s.method, nil)}); s.fixed {
			o.Spec.Fixed = s.nMax
		}
		e := openArch(t, s.arch, o)
		var tickets []*Ticket
		for k := range s.streams {
			ticket, err := e.Submit(context.Background(), s.request(k))
			require.NoError(t, err)
			tickets = append(tickets, ticket)
		}
		for k, ticket := range tickets {
			want, why := answer(t, plain[s.arch], s.request(k))
			got, whyGot := drain(t, ticket)
			what := fmt.Sprintf("setting %d, request %d: %+v", i, k, s)
			require.Equal(t, want, got, what)
			require.Equal(t, why, whyGot, what)
			if drafted += ticket.Stats().Spec.Drafted; s.fixed && s.method == "random" && len(got) > 3 {
				require.Positive(t, ticket.Stats().Spec.Drafted, what)
			}
		}
		require.NoError(t, e.Close())
	}
	require.Greater(t, drafted, 20*n)
}

// TestThreeRequestsHaveGuesses wants every method to guess for the first, the second and the third request of a process.
func TestThreeRequestsHaveGuesses(t *testing.T) {
	for _, name := range append(drafter.Names(), shortlisted, "suffix+draft") {
		e := openArch(t, "gemma3-text", Options{Context: 144, KVTokens: 1024, Spec: SpecOptions{Fixed: 6, Open: withDrafter(t, name, nil)}})
		for n := range 3 {
			r := request(1, 12+n, 60)
			r.Sampling = sample.Greedy()
			s, _ := stats(t, e, r)
			require.Positive(t, s.Drafted, "%s, request %d", name, n)
		}
		require.NoError(t, e.Close())
	}
}

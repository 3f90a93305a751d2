package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

// families are requests that between them use every sampling option.
var families = []struct {
	name string
	set  func(r *Request)
}{
	{"greedy", func(r *Request) { r.Sampling = sample.Greedy() }},
	{"greedy, penalised and biased", func(r *Request) {
		r.Sampling = sample.Greedy()
		r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty, r.Sampling.PresencePenalty = 1.2, 0.1, 0.2
		r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 1}
	}},
	{"temperature", func(r *Request) { r.Sampling.Temperature = 1.3 }},
	{"bias and penalties", func(r *Request) {
		r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 3, 11: -1}
		r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty, r.Sampling.PresencePenalty = 1.1, 0.3, 0.2
	}},
	{"top-k, top-p, min-p", func(r *Request) { r.Sampling.TopK, r.Sampling.TopP, r.Sampling.MinP = 40, 0.9, 0.02 }},
	{"typical-p", func(r *Request) { r.Sampling.TypicalP = 0.8 }},
	{"top-n-sigma", func(r *Request) { r.Sampling.TopNSigma = 1.5 }},
	{"xtc", func(r *Request) { r.Sampling.XTCProbability, r.Sampling.XTCThreshold = 0.5, 0.05 }},
	{"dry", func(r *Request) {
		r.Sampling.Temperature, r.Sampling.DRYMultiplier, r.Sampling.DRYAllowedLength, r.Sampling.DRYBreakers = 0.3, 2, 1, []int32{3}
		r.Sampling.DRYBase, r.Sampling.DRYLastN = 1.5, 30
	}},
	{"mirostat", func(r *Request) { r.Sampling.Mirostat, r.Sampling.MirostatTau, r.Sampling.MirostatEta = 2, 4, 0.3 }},
	{"penalties in a window", func(r *Request) {
		r.Sampling.RepeatPenalty, r.Sampling.PresencePenalty, r.Sampling.RepeatLastN = 1.3, 0.5, 9
	}},
	{"temperature last", func(r *Request) {
		r.Sampling.TopK, r.Sampling.TopP = 20, 0.95
		r.Sampling.Order = []string{"penalties", "dry", "top_k", "top_p", "min_p", "temperature"}
	}},
	{"a matcher", func(r *Request) { r.Matcher = &alternating{} }},
}

// family makes a request of a family; its sampling has log probabilities before and after the steps by turns.
func family(n int) Request {
	r := request(n, 18+9*n, 20)
	families[n].set(&r)
	r.Logprobs, r.TopLogprobs, r.Reproducible = true, 3, true
	r.Sampling.LogprobsAfter = n%2 == 1
	return r
}

// alone are the answers that the families and their choices have with nothing beside them, and a beam search.
type alone struct {
	answers [][]Token
	choices [][]Token // of the first family that draws
	beams   []Beam
}

const drawing, nChoices = 4, 3 // a family, and how many choices of it

// ask gets everything from an engine at once.
func ask(t *testing.T, e *Engine, oneByOne bool) (a alone) {
	tickets := make([]*Ticket, len(families))
	for n := range families {
		if tickets[n] = submit(t, e, family(n)); oneByOne {
			a.answers = append(a.answers, whole(t, tickets[n]))
		}
	}
	several, err := e.SubmitChoices(t.Context(), family(drawing), nChoices, nil)
	require.NoError(t, err)
	if !e.opts.Contiguous { // which refuses them
		a.beams, err = e.Beams(t.Context(), beamRequest(1, 33, 10), beams(3, 1))
		require.NoError(t, err)
	}
	for n, ticket := range tickets {
		if !oneByOne {
			a.answers = append(a.answers, whole(t, ticket))
			require.Len(t, a.answers[n], 21)
		}
	}
	for _, ticket := range several {
		a.choices = append(a.choices, whole(t, ticket))
	}
	return a
}

// inOrder gives an engine the contiguous cache, for one request at a time.
func inOrder(o *Options) *Options {
	o.Contiguous, o.MaxRunning, o.KVTokens = true, 1, 0
	return o
}

func equalAnswers(t *testing.T, want, got alone) {
	t.Helper()
	for n := range families {
		require.Equal(t, want.answers[n], got.answers[n], families[n].name)
	}
	require.Equal(t, want.choices, got.choices, "choices")
	if want.beams != nil {
		require.Equal(t, want.beams, got.beams, "beams")
	}
}

// TestEveryOptionInAllCompany runs every sampling option, choices and beams alone, beside each other, from warm prefixes, with
// preemptions, in chunks of 7 and 512 and with guesses, on both caches, paged and contiguous, and with sliding windows: ids and log
// probabilities have the same bits.
func TestEveryOptionInAllCompany(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "gemma3-text"} {
		for _, cache := range []string{"f16", "q8_0"} {
			o := Options{Context: 192, CacheTypeK: cache, CacheTypeV: cache, Threads: 1}
			quiet := o
			quiet.NoPrefix, quiet.MaxRunning = true, 1
			want := ask(t, openArch(t, arch, quiet), true)
			for i := range nChoices { // each the answer to a request of its own
				r := family(drawing)
				r.Sampling.Seed = sample.ChoiceSeed(r.Sampling.Seed, i)
				require.Equal(t, want.choices[i], whole(t, submit(t, openArch(t, arch, quiet), r)))
			}
			o.KVTokens, o.MaxRunning, o.SelfCheck = 4096, 8, true
			for name, change := range map[string]func(o *Options){
				"7 neighbours": func(*Options) {}, "chunks of 7": func(o *Options) { o.Chunk = 7 }, "chunks of 512": func(o *Options) { o.Chunk = 512 },
				"preemptions": func(*Options) {}, "preemptions, recomputed": func(o *Options) { o.NoPrefix = true },
				"guesses":       func(o *Options) { o.Spec = SpecOptions{Fixed: 4, Open: withDrafter(t, "lookahead+random", nil)} },
				"a draft model": func(o *Options) { o.Spec = SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)} },
				"guesses and few blocks": func(o *Options) {
					o.Spec, o.KVTokens = SpecOptions{Fixed: 3, Open: withDrafter(t, "ngram", nil)}, 400
				},
				"contiguous":              func(o *Options) { inOrder(o) },
				"contiguous, chunks of 7": func(o *Options) { inOrder(o).Chunk = 7 },
				"contiguous, recomputed":  func(o *Options) { inOrder(o).NoPrefix = true },
				"contiguous, preemptions": func(o *Options) { inOrder(o) },
				"contiguous, guesses, chunks of 512": func(o *Options) {
					inOrder(o).Spec, o.Chunk = SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}, 512
				},
			} {
				t.Run(arch+", "+cache+", "+name, func(t *testing.T) {
					o := o
					change(&o)
					e := openArch(t, arch, o)
					want := want
					if o.Contiguous {
						want.beams = nil
					}
					starts := countStarts(e)
					if strings.Contains(name, "preemptions") {
						starts = preemptEvery(e, 12)
					}
					equalAnswers(t, want, ask(t, e, false))
					warm := submit(t, e, family(drawing))
					require.Equal(t, want.answers[drawing], whole(t, warm))
					if !o.Contiguous {
						require.Equal(t, !o.NoPrefix, warm.Stats().CachedTokens > 0)
					} else if again := submit(t, e, family(drawing)); len(whole(t, again)) > 0 {
						require.Equal(t, !o.NoPrefix, again.Stats().CachedTokens > 0, "the last one's prompt is there")
					}
					equalAnswers(t, want, ask(t, e, false))
					require.NoError(t, e.Close())
					if strings.Contains(name, "preemptions") || name == "guesses and few blocks" {
						require.Greater(t, len(starts), 2*(len(families)+nChoices+3)+10)
					}
				})
			}
		}
	}
}

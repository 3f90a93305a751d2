package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/sample"
)

// choiceOf is what choice i differs by from its fellows; the same call makes a request of its own.
type choiceOf struct {
	MaxTokens int
	EOG       int32 // -1: none
	StopAfter int   // 0: no Stopper
	Logprobs  bool
	NoSpec    bool
	Matches   bool
}

func (c *choiceOf) change(r *Request) {
	r.MaxTokens, r.NoSpec, r.Logprobs = c.MaxTokens, c.NoSpec, c.Logprobs
	if c.Logprobs {
		r.TopLogprobs = 2
	}
	if c.EOG >= 0 {
		r.IgnoreEOS, r.EOG = false, []int32{c.EOG}
	}
	if c.StopAfter > 0 {
		r.Stop = &stopAt{n: c.StopAfter}
	}
	if c.Matches {
		r.Matcher = &alternating{}
	}
}

// checkChoices wants of every choice what a request of its own gives.
func checkChoices(t require.TestingT, alone, e *Engine, base Request, choices []choiceOf) {
	collect := func(ticket *Ticket) (tokens []Token) {
		for {
			tok, ok, err := await(ticket.Tokens())
			require.NoError(t, err)
			if !ok {
				return tokens
			}
			require.NoError(t, tok.Err)
			tokens = append(tokens, tok)
		}
	}
	tickets, err := e.SubmitChoices(context.Background(), base, len(choices), func(i int, r *Request) { choices[i].change(r) })
	require.NoError(t, err)
	for i, ticket := range tickets {
		r := base
		r.Sampling.Seed = sample.ChoiceSeed(base.Sampling.Seed, i)
		choices[i].change(&r)
		plain, err := alone.Submit(context.Background(), r)
		require.NoError(t, err)
		want := collect(plain)
		require.Equal(t, want, collect(ticket), "choice %d of %+v", i, choices)
		require.Equal(t, len(want)-1, ticket.Stats().DecodedTokens)
		if c := choices[i]; c.EOG < 0 && c.StopAfter == 0 {
			require.Len(t, want, 1+c.MaxTokens)
		}
	}
}

// choiceEngines are the ways in which choices come to their turns: beside each other, one by one, and with guesses.
func choiceEngines(t testing.TB) map[string]*Engine {
	all := map[string]*Engine{}
	for name, o := range map[string]Options{
		"beside":     {KVTokens: 1024},
		"by twos":    {KVTokens: 1024, MaxRunning: 2, Chunk: 7},
		"one by one": {MaxRunning: 1, NoPrefix: true},
		"contiguous": {Contiguous: true},
		"guesses":    {KVTokens: 1024, Spec: SpecOptions{Fixed: 3, Drafter: &scripted{guess: steady}}},
	} {
		o.Context = 96
		all[name] = openWritten(t, o, nil)
	}
	return all
}

// TestChoicesOfEveryLength gives the choices of one prompt lengths of their own; each may need logits that the others do not.
func TestChoicesOfEveryLength(t *testing.T) {
	alone := openWritten(t, Options{Context: 96}, nil)
	lengths := []int{0, 1, 2, 5}
	for name, e := range choiceEngines(t) {
		t.Run(name, func(t *testing.T) {
			for nPrompt := range 3 {
				base := request(nPrompt, 1+19*nPrompt, 0)
				base.Reproducible = true
				for _, a := range lengths {
					for _, b := range lengths {
						for _, c := range lengths {
							checkChoices(t, alone, e, base, []choiceOf{{MaxTokens: a, EOG: -1}, {MaxTokens: b, EOG: -1}, {MaxTokens: c, EOG: -1}})
						}
					}
				}
			}
		})
	}
}

// TestChoicesThatDifferInEverything mixes lengths, ends, log probabilities, guessing and matchers.
func TestChoicesThatDifferInEverything(t *testing.T) {
	alone := openWritten(t, Options{Context: 96}, nil)
	for name, e := range choiceEngines(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				base := request(rapid.IntRange(0, 9).Draw(t, "request"), rapid.IntRange(1, 40).Draw(t, "prompt"), 0)
				base.Reproducible = true
				choice := rapid.Custom(func(t *rapid.T) choiceOf {
					return choiceOf{
						MaxTokens: rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "max tokens"), EOG: rapid.Int32Range(-1, 20).Draw(t, "eog"),
						StopAfter: rapid.IntRange(0, 6).Draw(t, "stop"), Logprobs: rapid.Bool().Draw(t, "logprobs"),
						NoSpec: rapid.Bool().Draw(t, "no spec"), Matches: rapid.Bool().Draw(t, "matcher"),
					}
				})
				checkChoices(t, alone, e, base, rapid.SliceOfN(choice, 1, 5).Draw(t, "choices"))
			})
		})
	}
}

// TestChoicesForkTheMatcher gives all choices one matcher: each moves along a fork of it.
func TestChoicesForkTheMatcher(t *testing.T) {
	e := openWritten(t, Options{Context: 96, KVTokens: 1024}, nil)
	base := request(1, 20, 9)
	base.Matcher = &alternating{}
	tickets, err := e.SubmitChoices(t.Context(), base, 3, nil)
	require.NoError(t, err)
	for i, ticket := range tickets {
		r := base
		r.Sampling.Seed, r.Matcher = sample.ChoiceSeed(base.Sampling.Seed, i), &alternating{}
		want, _ := answer(t, e, r)
		got, _ := drain(t, ticket)
		require.Equal(t, want, got, fmt.Sprint("choice ", i))
	}
}

package engine

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/internal/golden"
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

// TestEightFreePositionsAndSixteenGuesses has 16 guesses where the context, or the answer, ends after 8 tokens, in chains and in
// trees, right ones and wrong ones, and a draft model whose own context ends before: the answer has 8 tokens and ends with length,
// nothing is written past the end, and the draft stops without an error.
func TestEightFreePositionsAndSixteenGuesses(t *testing.T) {
	const context = 64
	plain := openTiny(t, Options{Context: 160})
	base := request(5, context-8, 40)
	base.Sampling = sample.Greedy()
	full, _ := answer(t, plain, base)
	all := fullAnswer(base, full)
	wide := func(_ *scripted, r *drafter.Round) { // 16 nodes: two for each position, the right one second
		require.LessOrEqual(t, r.Budget.Nodes, 8)
		right, parent := all[r.IDs[0]], int32(-1)
		for at := len(r.IDs); at < len(right) && r.Tree.Len() < 16; at++ {
			r.Tree.Add(right[at]+1, parent, nil)
			parent = r.Tree.Add(right[at], parent, nil)
		}
	}
	for name, o := range map[string]SpecOptions{
		"right": {Drafter: &scripted{guess: oracle(all)}}, "wrong": {Drafter: &scripted{guess: steady}}, "trees": {Drafter: &scripted{guess: wide}},
		"draft": {Open: withDrafter(t, "draft", nil)}, "draft of 58 positions": {Open: withDrafter(t, "draft", func(c *drafter.Config) { c.Context = 58 })},
		"draft of 20 positions": {Open: withDrafter(t, "draft", func(c *drafter.Config) { c.Context = 20 })},
	} {
		o.Fixed = 16
		e := openTiny(t, Options{Context: context, SelfCheck: true, Spec: o})
		for _, contextEnds := range []bool{true, false} {
			r := base
			if !contextEnds {
				r.Prompt, r.MaxTokens = base.Prompt[:context-24], 8
			}
			want, _ := answer(t, plain, r)
			ticket := submit(t, e, r)
			got, why := drain(t, ticket)
			require.Equal(t, FinishLength, why, name)
			require.Equal(t, want[:8], got, "%s, the context ends: %v", name, contextEnds)
			require.Equal(t, 8, ticket.Stats().DecodedTokens)
			require.LessOrEqual(t, len(ticket.Stats().Spec.PerDepth), 7)
		}
		s := e.SpecTotals()
		require.Zero(t, s.Failed, name)
		require.Equal(t, name != "draft of 20 positions", s.Drafted > 0, name)
		stopped := 0.0
		for _, m := range e.Metrics() {
			if m.Of == "context_full" {
				stopped = m.Value
			}
		}
		require.Equal(t, strings.Contains(name, "positions"), stopped > 0, "%s: a counter says so", name)
		require.NoError(t, e.Close())
	}
}

// specCases are what has gone wrong for users of other engines when these guess ahead, and the tests of each.
var specCases = map[string][]string{
	"temperature 0, 50 prompts, guesses 1..16, every drafter: identical ids":          {"bench/TestFiftyTextsOnRandomWeights", "bench/TestFiftyTextsOnARealModel", "engine/TestGreedyAnswersAreAlikeInEverySetting"},
	"a row of logits from a pass over M tokens has the bits of the row alone":         {"model/TestChunksGiveTheSameBits", "model/TestWantedRowsOnly", "engine/TestOneAnswerWhateverHappensBeside"},
	"p and q go through the same pipeline":                                            {"engine/TestTheToysDistribution", "engine/TestTheToysAcceptance", "drafter/TestModelDrawsFromTheRequestsPipeline"},
	"q without mass where p has some, p equal to q, p and q disjoint":                 {"engine/verify/TestNothingIsEverNaN", "engine/verify/TestSampledNeverLeavesTheTargetsSupport"},
	"same seed, same ids, alone and with 4 neighbours, after a restart":               {"engine/TestNeighboursChangeNoDraw", "engine/TestEveryDrafterSamples"},
	"logit bias -100 on the token that is always guessed, penalties, min-p":           {"engine/TestTheGuessThatIsForbidden"},
	"a grammar with 8 guesses, one that starts after </think> at each offset":         {"engine/TestAGrammarThatBeginsInsideABlock", "engine/TestMasksHoldAlongTheTree"},
	"logprobs for every accepted guess":                                               {"engine/TestLogprobsOfAcceptedGuesses"},
	"stops of all kinds inside an accepted block, max_tokens 2, 3, 5":                 {"engine/TestGuessesStopAtStops", "engine/TestEveryEndOfGenerationEnds"},
	"a padded vocabulary, more embedding rows than tokens":                            {"drafter/TestCompatible", "drafter/TestModelNeverProposesPastTheTargetsVocabulary", "engine/TestGuessesFitThePassAndTheVocabulary"},
	"vocabularies that differ in one id, in the end token, or wholly":                 {"drafter/TestCompatible"},
	"8 free positions and 16 guesses, a draft of a shorter context":                   {"engine/TestEightFreePositionsAndSixteenGuesses", "drafter/TestModelStopsQuietly"},
	"a draft that stays off or unusable is an error, guesses in requests 1, 2, 3":     {"cmd/quickdraft/TestAskedForAndImpossibleIsAnError", "engine/TestThreeRequestsHaveGuesses", "bench/TestThreeRequestsOfAProcessHaveGuesses"},
	"state saved and restored with the draft's part":                                  {"engine/TestASavedPrefixBringsTheDraftAlong"},
	"acceptance of each stream equal at 1 and 16":                                     {"engine/TestAcceptanceIsPerRequest"},
	"never slower than plain decoding, decided on tokens a second, not on acceptance": {"drafter/TestAUselessDrafterCostsAtMostThreePercent", "engine/TestGuessesThatNeverPayBecomeRare"},
}

// serverCases are those of sampling, lengths, stops, leaving, the prefix cache and streaming.
var serverCases = map[string][]string{
	"max_tokens 0, 1, 2, absent, 2^31, -1: the exact count, 0 is prefill only":                        {"engine/TestEveryLengthOfAnswer", "engine/TestLimits"},
	"an empty prompt, one token, as many as the context less one, as it has, one more":                {"engine/TestBadRequestsAreRefusedBeforeAnyWork", "engine/TestEveryLengthOfAnswer", "engine/TestLimits"},
	"10 MB of text: refused with both numbers before any work":                                        {"cmd/quickdraft/TestPromptsBeyondTheContext"},
	"stops over the borders of tokens, that overlap, empty, at the end":                               {"text/TestStopStrings", "text/TestStopStringsByDefinition", "text/TestStopStringsThatCannotBe", "text/TestLongStopStrings", "cmd/quickdraft/TestRunStops"},
	"stops inside a block of guesses":                                                                 {"engine/TestStopperAndEndOfGeneration", "engine/TestGuessesStopAtStops"},
	"a caller leaves while queued, in a long prompt, between draft and verification, while streaming": {"engine/TestLeavingEndsWithinOnePass", "engine/TestLeavingBetweenDraftAndVerification", "engine/TestLeavingWithNothingElseToDo", "engine/TestCancelEndsWithinOnePass"},
	"500 random cancels beside neighbours that stay as they are":                                      {"engine/TestFiveHundredCancels", "engine/TestTwoThousandRequests"},
	"a cache hit by hash alone":                                                                       {"kvcache/TestCollidingHashesDecideNothing", "kvcache/TestAdoptFindsTheLongestPrefix"},
	"a shared pool of n-grams":                                                                        {"drafter/TestPoolsArePerRequest", "engine/TestNeighboursChangeNoDraw"},
	"streams that cut characters, U+FFFD too early, a block that ends inside a character":             {"text/tokenizer/TestStreamOfAnyIDs", "text/tokenizer/TestStreamHoldsBack", "text/tokenizer/FuzzRoundTrip"},
}

// TestEveryCaseHasATest looks the tests up, so that none goes away unnoticed. The cases of models and text, of numerics and of
// machines are in packages text, model and machine.
func TestEveryCaseHasATest(t *testing.T) {
	golden.Covered(t, specCases)
	golden.Covered(t, serverCases)
}

package engine

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/sample/sampletest"
)

const toyVocab = 64

// toyNoise makes the draft: at 0.4 a third to two thirds of its first guesses are accepted.
const toyNoise = 0.4

// writeToy writes a model of 64 tokens; noise above 0 makes another one that resembles it.
func writeToy(t testing.TB, noise float64) string {
	rng := rand.New(rand.NewPCG(8, 9))
	path := filepath.Join(t.TempDir(), "toy.gguf")
	require.NoError(t, writeRandom(path, 32, 2, 1, toyVocab, 2, func(name string, values []float32) {
		if name == "output.weight" {
			for i := range values {
				values[i] += float32(0.3 * noise * rng.NormFloat64())
			}
		}
	}))
	return path
}

// openToy opens it with a drafter that has a noisy copy as its model, whose shortlist has 32 of the 64 tokens.
func openToy(t testing.TB, name string, o Options) *Engine {
	o.Spec.Open = func(target *model.Model) (drafter.Drafter, error) {
		draft, err := model.Load(writeToy(t, toyNoise), model.Options{Pool: target.Pool()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = draft.Close() })
		return drafter.New(name, drafter.Config{
			Target: target, Draft: draft, Bigger: draft, KVTokens: 4096, Shortlist: 16, ListRoom: 16, Skip: "1", Guesses: 4,
			Translation: letters(t, toyVocab, 0, 8),
		})
	}
	e, err := Open(writeToy(t, 0), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// onlySome allows two tokens of three, others after each.
type onlySome struct {
	n    int
	mask [1]uint64
}

func (m *onlySome) Mask() []uint64 {
	m.mask[0] = ^uint64(0)
	for id := range toyVocab {
		if (id+m.n)%3 == 0 {
			m.mask[0] &^= 1 << id
		}
	}
	return m.mask[:]
}

func (m *onlySome) Accept(int32)          { m.n++ }
func (m *onlySome) Fork() drafter.Matcher { return &onlySome{n: m.n} }

var toyPrompt = []int32{1, 8, 8, 30, 2}

// TestTheToysDistribution draws answers from an engine that guesses, 200,000 for each set of options where time allows, and
// compares the first three positions with what the target's logits give exactly. Its drafters propose chains, trees, points and
// distributions, with a draft that knows half of the vocabulary. Every drafter has guesses accepted and rejected.
func TestTheToysDistribution(t *testing.T) {
	for name, set := range sampletest.Options {
		drafters := []string{"draft"}
		if name == "all" {
			drafters = append(drafter.Names(), "draft+suffix+random", "draft+layerskip", "draft+hierarchical")
		}
		for _, d := range drafters {
			n := toyDraws(t)
			if _, alone := slices.BinarySearch(drafter.Names(), d); alone && d != "draft" {
				n /= 10
			}
			t.Run(name+"/"+d, func(t *testing.T) {
				t.Parallel()
				checkToy(t, d, set, name == sampletest.Mask, n, SpecOptions{NMax: 8, Fixed: 4})
			})
		}
	}
}

// TestTheToysDistributionWhereDraftsStop has a draft that stops where it believes too little in its best guess: that must not
// depend on what it draws.
func TestTheToysDistributionWhereDraftsStop(t *testing.T) {
	t.Parallel()
	checkToy(t, "draft", func(p *sample.Params) { p.Temperature = 1 }, false, toyDraws(t), SpecOptions{NMax: 8, Fixed: 4, PMin: 0.12})
}

// TestTheToysDistributionWhereShortGuessesAreLeft has the same draft and a least number of guesses. How far it goes depends on what it
// draws first, so to leave out what is too short would favour first tokens after which it is sure of the next: drawn guesses are
// verified, however few they are.
func TestTheToysDistributionWhereShortGuessesAreLeft(t *testing.T) {
	t.Parallel()
	checkToy(t, "draft", func(p *sample.Params) { p.Temperature = 1 }, false, toyDraws(t), SpecOptions{NMax: 8, Fixed: 4, NMin: 2, PMin: 0.2})
}

// toyDraws is how many answers are drawn: QUICKDRAFT_DRAWS, by default few enough for every run of the tests. 20,000 show two
// drafters that draw with the same random numbers (chi-square 416 at 22 degrees of freedom).
func toyDraws(t *testing.T) int {
	if s := os.Getenv("QUICKDRAFT_DRAWS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		require.Positive(t, n)
		return n
	}
	if testing.Short() {
		return 8_000
	}
	return 20_000
}

// checkToy compares one drafter under one set of options.
func checkToy(t *testing.T, name string, set func(*sample.Params), masked bool, nDraws int, spec SpecOptions) {
	const nOut, nCompared, atOnce = 4, 3, 128 // the prefix cache knows the prompt: a first round of three guesses, and one token more
	e := openToy(t, name, Options{Context: 64, KVTokens: 8192, MaxRunning: atOnce, Threads: 1, StallTarget: time.Hour, Spec: spec})
	base := Request{Prompt: toyPrompt, MaxTokens: nOut, IgnoreEOS: true, Sampling: sample.Default()}
	set(&base.Sampling)
	if strings.Contains(name, "suffix") || name == "ngram" {
		base.Prompt = nil // half of the vocabulary, so that half of all first tokens have been followed by one before
		for i := range int32(32) {
			base.Prompt = append(base.Prompt, 13*i%32)
		}
		// The prompt ends as it went on before, with a follower that the target likes: the first round has guesses too.
		base.Prompt = append(base.Prompt, base.Prompt[14:16]...)
	}
	want := exactly(t, e.model, base, masked)
	var counts [nCompared][toyVocab]float64
	for at := 0; at < nDraws; at += atOnce {
		tickets := together(t, e, min(atOnce, nDraws-at), func(i int) Request {
			r := base
			if r.Sampling.Seed = uint64(at + i); masked {
				r.Matcher = &onlySome{}
			}
			return r
		})
		for _, ticket := range tickets {
			ids, _ := drain(t, ticket)
			require.Len(t, ids, nOut)
			for pos, id := range ids[:nCompared] {
				counts[pos][id]++
			}
		}
	}
	s := e.SpecTotals()
	t.Logf("%d of %d guesses accepted in %d rounds, by position %v of %v, %+v", s.Accepted, s.Drafted, s.Rounds, s.PerDepth, s.Offered, s.Parts)
	requireShares(t, s, nDraws)
	for pos := range nCompared {
		chi2, free := pearson(counts[pos][:], want[pos][:], float64(nDraws))
		t.Logf("position %d: chi-square %.1f at %d degrees of freedom", pos, chi2, free)
		require.Less(t, wilsonHilferty(chi2, free), 3.09, "position %d, p below 0.001", pos)
	}
}

// leastShare is how many of its guesses a drafter has accepted and rejected at least, for the test to say something: those that
// know the target get far more right than those that guess blindly among 64 tokens.
func leastShare(name string) float64 {
	switch name {
	case "lookahead": // answers of four tokens hold hardly an n-gram that it could have seen
		return -1
	case "adversarial", "random", "suffix", "ngram":
		return 0.004
	}
	return 0.15
}

// requireShares wants guesses of every drafter accepted and rejected, at the first position and behind it.
func requireShares(t *testing.T, s SpecStats, nDraws int) {
	t.Helper()
	for _, p := range s.Parts {
		if strings.Contains(p.Name, "/") {
			continue // how well it guesses changes no draw
		}
		least := leastShare(p.Name)
		require.Greater(t, p.Drafted, nDraws/100, p.Name)
		require.Greater(t, float64(p.Accepted), least*float64(p.Drafted), "%s: %+v", p.Name, s)
		require.Greater(t, float64(p.Drafted-p.Accepted), 0.15*float64(p.Drafted), "%s: %+v", p.Name, s)
	}
	if leastShare(s.Parts[0].Name) > 0.1 { // those that guess further than one token
		require.GreaterOrEqual(t, len(s.PerDepth), 2)
		require.Greater(t, s.PerDepth[1], nDraws/20)
		require.Greater(t, s.Offered[1]-s.PerDepth[1], nDraws/20)
	}
}

// TestTheToysAcceptance compares how often a draft model's guess is accepted with what both models' distributions give exactly:
// the sum of min(p, q) over the vocabulary, after each first token. Answers of three tokens have one guess each: the first comes
// with the prompt, wherever a busy machine cuts that, the last after the guess.
func TestTheToysAcceptance(t *testing.T) {
	for name, set := range sampletest.Options {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const nDraws = 4000
			e := openToy(t, "draft", Options{Context: 32, KVTokens: 4096, MaxRunning: 64, Threads: 1, NoPrefix: true, Spec: SpecOptions{Fixed: 4}})
			base := Request{Prompt: toyPrompt, MaxTokens: 3, IgnoreEOS: true, Sampling: sample.Default()}
			set(&base.Sampling)
			masked := name == sampletest.Mask
			draft, err := model.Load(writeToy(t, toyNoise), model.Options{Pool: e.model.Pool()})
			require.NoError(t, err)
			defer draft.Close()
			want := acceptance(t, e.model, draft, base, masked)
			var tickets []*Ticket
			for i := range nDraws {
				r := base
				if r.Sampling.Seed = uint64(i); masked {
					r.Matcher = &onlySome{}
				}
				if tickets = append(tickets, submit(t, e, r)); len(tickets) == 64 || i == nDraws-1 {
					for _, ticket := range tickets {
						drain(t, ticket)
					}
					tickets = tickets[:0]
				}
			}
			s := e.SpecTotals()
			require.Equal(t, []int{nDraws, nDraws}, []int{s.Rounds, s.Drafted})
			got := float64(s.Accepted) / nDraws
			t.Logf("%.4f accepted, exactly %.4f", got, want)
			require.Greater(t, want, 0.2)
			require.Less(t, want, 0.9)
			require.InDelta(t, want, got, 4*math.Sqrt(want*(1-want)/nDraws))
		})
	}
}

// acceptance is the probability that the guess for the second token is accepted.
func acceptance(t *testing.T, target, draft *model.Model, r Request, masked bool) (sum float64) {
	s, err := sample.New(r.Sampling, toyVocab)
	require.NoError(t, err)
	s.SetPrompt(len(r.Prompt))
	dist := func(m *model.Model, history []int32, hidden func(id int32) bool) (p [toyVocab]float64) {
		cache, err := m.NewCache(2)
		require.NoError(t, err)
		defer cache.Close()
		seq := cache.NewSeq()
		require.NoError(t, seq.Reserve(len(history)))
		logits, err := m.Forward(&model.Batch{
			Tokens: history, Spans: []model.Span{{Seq: seq, N: len(history), Prompt: len(r.Prompt)}}, Logits: []int32{int32(len(history) - 1)},
		})
		require.NoError(t, err)
		row := logits.Row(0)
		for id := range row {
			if hidden(int32(id)) {
				row[id] = float32(math.Inf(-1))
			}
		}
		if masked {
			require.NoError(t, s.SetMask((&onlySome{n: len(history) - len(r.Prompt)}).Mask()))
		}
		var d sample.Dist
		require.NoError(t, s.Dist(&d, row, history))
		for i, id := range d.IDs {
			p[id] = d.P[i]
		}
		return p
	}
	for id, first := range dist(target, r.Prompt, func(int32) bool { return false }) {
		if first == 0 {
			continue
		}
		history := append(slices.Clone(r.Prompt), int32(id))
		// The shortlist has 16 tokens and 16 of the latest tile of others in the text.
		own := int32(0)
		for _, x := range history {
			if x >= 16 {
				own = x / 16
			}
		}
		p := dist(target, history, func(int32) bool { return false })
		q := dist(draft, history, func(id int32) bool { return id >= 16 && id/16 != own })
		for x := range p {
			sum += first * min(p[x], q[x])
		}
	}
	return sum
}

// exactly computes the distribution of each of three tokens from the target's logits.
func exactly(t *testing.T, m *model.Model, r Request, masked bool) (want [3][toyVocab]float64) {
	var follow func(history []int32, n int, p float64, matcher *onlySome)
	s, err := sample.New(r.Sampling, toyVocab)
	require.NoError(t, err)
	s.SetPrompt(len(r.Prompt))
	cache, err := m.NewCache(3)
	require.NoError(t, err)
	defer cache.Close()
	seq := cache.NewSeq()
	follow = func(history []int32, n int, p float64, matcher *onlySome) {
		if masked {
			require.NoError(t, s.SetMask(matcher.Mask()))
		}
		seq.Truncate(0)
		require.NoError(t, seq.Reserve(len(history)))
		logits, err := m.Forward(&model.Batch{
			Tokens: history, Spans: []model.Span{{Seq: seq, N: len(history), Prompt: len(r.Prompt)}}, Logits: []int32{int32(len(history) - 1)},
		})
		require.NoError(t, err)
		var d sample.Dist
		require.NoError(t, s.Dist(&d, logits.Row(0), history))
		for i, id := range d.IDs {
			if want[n][id] += p * d.P[i]; n+1 < len(want) {
				follow(append(history[:len(history):len(history)], id), n+1, p*d.P[i], &onlySome{n: matcher.n + 1})
			}
		}
	}
	follow(r.Prompt, 0, 1, &onlySome{})
	return want
}

// pearson is the chi-square of counts against probabilities; cells that expect fewer than five are pooled.
func pearson(counts, p []float64, n float64) (chi2 float64, free int) {
	restCount, rest := 0.0, 0.0
	free = -1
	for i, c := range counts {
		expected := n * p[i]
		switch {
		case expected == 0 && c > 0:
			return math.Inf(1), 1
		case expected < 5:
			restCount, rest = restCount+c, rest+expected
		default:
			chi2 += (c - expected) * (c - expected) / expected
			free++
		}
	}
	if rest >= 5 {
		chi2 += (restCount - rest) * (restCount - rest) / rest
		free++
	}
	return chi2, max(free, 1)
}

// wilsonHilferty turns a chi-square into a nearly normal number, of which 3.09 is the 0.999 quantile.
func wilsonHilferty(chi2 float64, free int) float64 {
	k := float64(free)
	return (math.Cbrt(chi2/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
}

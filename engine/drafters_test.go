package engine

import (
	"context"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
)

// openArch opens one of the random-weight models by name.
func openArch(t testing.TB, arch string, o Options) *Engine {
	t.Helper()
	o.Threads = max(o.Threads, 1)
	e, err := Open(filepath.Join(golden.Dir(t, "archs"), arch), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// load opens another random-weight model beside a target.
func load(t testing.TB, target *model.Model, arch string) *model.Model {
	m, err := model.Load(filepath.Join(golden.Dir(t, "archs"), arch), model.Options{Pool: target.Pool()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// withDrafter describes a registered method with what the tiny models can give it: a copy of openTiny's as draft.
func withDrafter(t testing.TB, name string, change func(*drafter.Config)) func(*model.Model) (drafter.Drafter, error) {
	return func(target *model.Model) (drafter.Drafter, error) {
		copied, name := load(t, target, "llama3-rope"), name
		c := drafter.Config{
			Target: target, Draft: copied, Bigger: load(t, target, "llama3-rope"), Guesses: 16, KVTokens: 4096, Translation: letters(t, 512, 100, 2),
		}
		if name == shortlisted {
			name, c.Shortlist, c.ListRoom = "draft", 128, 48
		}
		if change != nil {
			change(&c)
		}
		return drafter.New(name, c)
	}
}

// fitting are the options without what a method does not take.
func fitting(name string, o SpecOptions) SpecOptions {
	if name == shortlisted {
		name = "draft"
	}
	takes, _ := drafter.TakesOf(name)
	if !takes.MinP {
		o.PMin = 0
	}
	if !takes.Branch {
		o.Branch = min(o.Branch, 1)
	}
	return o
}

// shortlisted names a draft model that has logits for a third of the 512 tokens.
const shortlisted = "draft with a shortlist"

// letters is a translation between two vocabularies of n one-letter tokens: the draft's are rotated by shift, and one letter in
// every is not the same in both.
func letters(t testing.TB, n, shift, every int32) *drafter.Translation {
	text := func(name string, shift int32) drafter.Text {
		bytes := func(id int32) []byte {
			letter := (id + shift) % n
			if letter%every == 0 {
				return []byte(name + string(0x4E00+letter))
			}
			return []byte(string(0x4E00 + letter))
		}
		return drafter.Text{File: name, Size: int(n), Bytes: bytes, Encode: func(s string) (ids []int32) {
			for _, r := range s {
				ids = append(ids, (max(r-0x4E00, 0)+n-shift)%n)
			}
			return ids
		}}
	}
	tr, err := drafter.NewTranslation(text("target", 0), text("draft", shift))
	require.NoError(t, err)
	require.EqualValues(t, n-((n-1)/every+1), tr.Shared())
	return tr
}

// losslessRequests are greedy requests with penalties and bias, and reproducible sampled ones, and what plain decoding answers.
func losslessRequests(t *testing.T) (rs []Request, want [][]int32) {
	plain := openTiny(t, Options{Context: 160})
	for n := range 8 {
		r := request(n, 3+9*n, 30)
		if n%4 != 3 {
			r.Sampling = sample.Greedy()
		}
		if n%2 == 0 {
			r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.1, 0.05
			r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 1}
		}
		r.Reproducible = true
		ids, _ := answer(t, plain, r)
		rs, want = append(rs, r), append(want, ids)
	}
	return rs, want
}

// drafterNames are the methods, a shortlist and some unions.
func drafterNames() []string {
	return append(drafter.Names(), "suffix+draft", "lookahead+ngram+random", "layerskip+suffix", shortlisted)
}

// TestEveryDrafterIsLossless runs greedy requests and reproducible sampled ones with every method that is registered, at 1
// to 16 guesses, alone and together.
func TestEveryDrafterIsLossless(t *testing.T) {
	rs, want := losslessRequests(t)
	for _, name := range drafterNames() {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Options{
				{Spec: SpecOptions{NMax: 24, Fixed: 24, Branch: 3}}, {Spec: SpecOptions{NMax: 9, Fixed: 9, Branch: 8, PMin: 0.01}, Threads: 1},
				{Spec: SpecOptions{NMax: 1}, Threads: 1}, {Spec: SpecOptions{NMax: 2}}, {Spec: SpecOptions{NMax: 3}},
				{Spec: SpecOptions{NMax: 5, PMin: 0.05}}, {Spec: SpecOptions{NMax: 8}, KVTokens: 224},
				{Spec: SpecOptions{NMax: 16, Fixed: 16}, Threads: 1},
			} {
				o.Context = 160
				if o.KVTokens == 0 {
					o.KVTokens = 2048
				}
				o.Spec = fitting(name, o.Spec)
				o.Spec.Open = withDrafter(t, name, nil)
				checkSpeculation(t, o, rs, want, false)
			}
		})
	}
}

// TestEveryDrafterIsLosslessOnOneSequence does so with a contiguous cache, in which the requests follow one another.
func TestEveryDrafterIsLosslessOnOneSequence(t *testing.T) {
	rs, want := losslessRequests(t)
	for _, name := range append(drafterNames(), "layerskip+draft+hierarchical") {
		t.Run(name, func(t *testing.T) {
			for _, spec := range []SpecOptions{{NMax: 24, Fixed: 24, Branch: 3}, {NMax: 5, Fixed: 5}, {}} {
				spec = fitting(name, spec)
				spec.Open = withDrafter(t, name, nil)
				checkSpeculation(t, Options{Context: 160, Contiguous: true, Threads: 1, Spec: spec}, append(rs, rs[2]), append(want, want[2]), false)
			}
		})
	}
}

// TestLayerSkipSharesOneSequence drafts in a contiguous cache with windows, whose layers are rings, and keeps it consistent.
func TestLayerSkipSharesOneSequence(t *testing.T) {
	plain := openArch(t, "gemma3-text", Options{Context: 256})
	e := openArch(t, "gemma3-text", Options{Context: 256, Contiguous: true, Spec: SpecOptions{Fixed: 16, Open: withDrafter(t, "layerskip", nil)}})
	for n := range 4 {
		r := request(n/2, 30+n%2, 200)
		r.Sampling = sample.Greedy()
		want, _ := answer(t, plain, r)
		ticket := submit(t, e, r)
		ids, _ := drain(t, ticket)
		require.Equal(t, want, ids)
		require.Greater(t, ticket.Stats().Spec.Accepted, 40)
		require.NoError(t, e.do(e.cache.CheckIntegrity))
	}
}

// TestEveryDrafterSamples runs requests whose guesses are drawn, so that only their distribution is fixed: answers are
// complete, repeat with their seed, and are the same alone and in company.
func TestEveryDrafterSamples(t *testing.T) {
	for _, name := range append(drafter.Names(), "draft+suffix", shortlisted) {
		if name == "random" {
			continue // its guesses differ from run to run
		}
		t.Run(name, func(t *testing.T) {
			var first [][]int32
			for range 2 {
				e := openTiny(t, Options{Context: 160, KVTokens: 2048, Spec: SpecOptions{NMax: 6, Fixed: 6, Open: withDrafter(t, name, nil)}})
				var tickets []*Ticket
				for n := range 3 {
					ticket, err := e.Submit(context.Background(), request(n, 10+n, 40))
					require.NoError(t, err)
					tickets = append(tickets, ticket)
				}
				for n, ticket := range tickets {
					ids, why := drain(t, ticket)
					require.Equal(t, FinishLength, why)
					require.Len(t, ids, 40)
					if len(first) < 3 {
						first = append(first, ids)
						continue
					}
					require.Equal(t, first[n], ids)
				}
				require.NoError(t, e.Close())
			}
		})
	}
}

// TestEveryDrafterWorks asks for a least number of accepted guesses a round with 8 guesses forced, on prompts where each
// method has something to go by. Random weights decode greedily into loops, which is what methods without a model need;
// models draft for themselves or for a copy.
func TestEveryDrafterWorks(t *testing.T) {
	least := map[string]struct {
		arch     string
		accepted float64 // a round in which anything was guessed
		coverage float64 // accepted guesses among all tokens
		branch   int
	}{
		"ngram":        {"gemma3-text", 2, 0.4, 0},
		"suffix":       {"gemma3-text", 1.5, 0.4, 0},
		"lookahead":    {"gemma3-text", 0.5, 0.3, 0},
		"layerskip":    {"gemma3-text", 0.8, 0.4, 0},
		"draft":        {"llama3-rope", 7.5, 0.85, 0},
		"crossvocab":   {"llama3-rope", 3, 0.7, 0}, // one of the prompts holds a token that the draft lacks
		"hierarchical": {"llama3-rope", 7.5, 0.85, 0},
		"suffix+draft": {"llama3-rope", 5, 0.8, 0},
		shortlisted:    {"llama3-rope", 1.2, 0.5, 0}, // a third of the tokens
		"trees":        {"llama3-rope", 1.9, 0.6, 3}, // of the draft: three nodes, and five below them
		"random":       {"llama3-rope", 0, 0, 0},     // not meant to be right
		"adversarial":  {"llama3-rope", 0, 0, 0},
	}
	for _, name := range append(drafter.Names(), "suffix+draft", shortlisted, "trees") {
		t.Run(name, func(t *testing.T) {
			want, ok := least[name]
			require.True(t, ok, "a drafter without a set of prompts where it must work")
			if want.branch > 0 {
				name = "draft"
			}
			e := openArch(t, want.arch, Options{Context: 256, KVTokens: 2048, Spec: SpecOptions{
				Fixed: 8, Branch: want.branch, Open: withDrafter(t, name, func(c *drafter.Config) { c.Translation = letters(t, 512, 0, 512) }),
			}})
			var s SpecStats
			nTokens := 0
			for n := range 4 {
				r := request(n, 12, 100)
				r.Sampling = sample.Greedy()
				ticket, err := e.Submit(context.Background(), r)
				require.NoError(t, err)
				ids, _ := drain(t, ticket)
				one := ticket.Stats().Spec
				s.Accepted, s.Rounds, nTokens = s.Accepted+one.Accepted, s.Rounds+one.Rounds, nTokens+len(ids)
			}
			t.Logf("%d accepted in %d rounds of %d tokens", s.Accepted, s.Rounds, nTokens)
			require.GreaterOrEqual(t, float64(s.Accepted), want.accepted*float64(s.Rounds))
			require.GreaterOrEqual(t, float64(s.Accepted), want.coverage*float64(nTokens))
			if want.accepted == 0 {
				require.Less(t, s.Accepted, s.Rounds/10)
			}
		})
	}
}

// TestEveryDrafterKeepsTheDistribution compares the last three of four sampled tokens with those of plain decoding, in passes that
// are the same in every run: a drafter whose guesses are random would draw others.
func TestEveryDrafterKeepsTheDistribution(t *testing.T) {
	const nSeeds = 1000
	counts := func(e *Engine, from int) map[[3]int32]float64 {
		seen := map[[3]int32]float64{}
		for at := 0; at < nSeeds; at += 50 {
			tickets := together(t, e, 50, func(n int) Request {
				r := request(5, 9, 4)
				r.Sampling.Temperature, r.Sampling.TopK, r.Sampling.RepeatPenalty = 1.5, 3, 1.1
				r.Sampling.Seed = uint64(from + at + n)
				return r
			})
			for _, ticket := range tickets {
				ids, _ := drain(t, ticket)
				seen[[3]int32(ids[1:])]++
			}
		}
		return seen
	}
	plain := counts(openTiny(t, Options{Context: 64, KVTokens: 2048, MaxRunning: 25}), 0)
	for _, name := range append(drafter.Names(), "draft+suffix+random", "draft+layerskip", shortlisted) {
		t.Run(name, func(t *testing.T) {
			open := withDrafter(t, name, func(c *drafter.Config) {
				// Its bad guesses are what tests the rule: a copy of the target would never be rejected.
				c.Draft, c.Translation = load(t, c.Target, "llama-untied"), letters(t, 512, 0, 16)
			})
			e := openTiny(t, Options{Context: 64, KVTokens: 2048, MaxRunning: 25, StallTarget: time.Hour, Spec: SpecOptions{Fixed: 3, Open: open}})
			requireSameDistribution(t, plain, counts(e, 1<<20))
			require.NoError(t, e.Close())
		})
	}
}

// requireSameDistribution is a chi-square test of two samples of the same size, at p = 0.001; rare outcomes are pooled.
func requireSameDistribution(t *testing.T, a, b map[[3]int32]float64) {
	t.Helper()
	keys := map[[3]int32]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	chi2, cells, restA, restB := 0.0, 0, 0.0, 0.0
	add := func(x, y float64) {
		if x+y > 0 {
			chi2 += (x - y) * (x - y) / (x + y)
			cells++
		}
	}
	for k := range keys {
		if a[k]+b[k] < 10 {
			restA, restB = restA+a[k], restB+b[k]
			continue
		}
		add(a[k], b[k])
	}
	add(restA, restB)
	free := float64(cells - 1)
	require.Greater(t, cells, 10)
	// Wilson and Hilferty: the cube root of a chi-square is nearly normal; 3.09 is its 0.999 quantile.
	z := (math.Cbrt(chi2/free) - (1 - 2/(9*free))) / math.Sqrt(2/(9*free))
	t.Logf("chi-square %.1f at %.0f degrees of freedom, z = %.2f", chi2, free, z)
	require.Less(t, z, 3.09)
}

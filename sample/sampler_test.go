package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomLogits(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(float64(r.NormFloat64()*2.5) + 3)
	}
	return out
}

func mustNew(t testing.TB, vocab int, change func(p *Params)) *Sampler {
	t.Helper()
	p := Default()
	if change != nil {
		change(&p)
	}
	s, err := New(p, vocab)
	require.NoError(t, err)
	return s
}

func TestParams(t *testing.T) {
	for field, change := range map[string]func(p *Params){
		"temperature":        func(p *Params) { p.Temperature = -1 },
		"top_k":              func(p *Params) { p.TopK = -1 },
		"top_p":              func(p *Params) { p.TopP = 0 },
		"min_p":              func(p *Params) { p.MinP = 1.01 },
		"typical_p":          func(p *Params) { p.TypicalP = 2 },
		"top_n_sigma":        func(p *Params) { p.TopNSigma = -1 },
		"xtc_probability":    func(p *Params) { p.XTCProbability = 1.5 },
		"xtc_threshold":      func(p *Params) { p.XTCThreshold = -0.1 },
		"repeat_penalty":     func(p *Params) { p.RepeatPenalty = 0 },
		"repeat_last_n":      func(p *Params) { p.RepeatLastN = -2 },
		"frequency_penalty":  func(p *Params) { p.FrequencyPenalty = math.Inf(1) },
		"presence_penalty":   func(p *Params) { p.PresencePenalty = -101 },
		"dry_multiplier":     func(p *Params) { p.DRYMultiplier = -1 },
		"dry_base":           func(p *Params) { p.DRYBase = 0.5 },
		"dry_allowed_length": func(p *Params) { p.DRYAllowedLength = 0 },
		"dry_last_n":         func(p *Params) { p.DRYLastN = -5 },
		"dry_breakers":       func(p *Params) { p.DRYBreakers = []int32{10} },
		"mirostat":           func(p *Params) { p.Mirostat = 1 },
		"mirostat_tau":       func(p *Params) { p.MirostatTau = 0 },
		"mirostat_eta":       func(p *Params) { p.MirostatEta = 2 },
		"logit_bias":         func(p *Params) { p.LogitBias = map[int32]float64{-1: 1} },
		"logit_bias[3]":      func(p *Params) { p.LogitBias = map[int32]float64{3: 101} },
		"samplers":           func(p *Params) { p.Order = []string{"top_k", "nonsense"} },
	} {
		p := Default()
		change(&p)
		_, err := New(p, 10)
		var pe *ParamError
		require.ErrorAs(t, err, &pe, field)
		require.Equal(t, field, pe.Field)
		require.ErrorContains(t, err, field+" is ")
		require.ErrorContains(t, err, "must be ")
	}
	nan := Default()
	for i := range nan.limits() {
		require.NotEmpty(t, nan.limits()[i].describe)
	}
	for _, set := range []func(p *Params){func(p *Params) { p.Temperature = math.NaN() }, func(p *Params) { p.TopP = math.NaN() }, func(p *Params) { p.LogitBias = map[int32]float64{1: math.NaN()} }} {
		p := Default()
		set(&p)
		require.Error(t, p.Validate(10))
	}
	_, err := New(Default(), 0)
	require.ErrorContains(t, err, "vocab is 0")
	require.NoError(t, (&Params{}).validOrder([]string{"Top-K", "temp", "typ_p", " min-p "}))
	require.ErrorContains(t, (&Params{}).validOrder([]string{"top_k", "top-k"}), `"top-k" twice`)
}

func (p *Params) validOrder(names []string) error {
	_, err := parseOrder(names)
	return err
}

func TestBadRows(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, change := range []func(p *Params){nil, func(p *Params) { p.Temperature = 0 }, func(p *Params) { p.Temperature, p.RepeatPenalty = 0, 1.1 }} {
		s := mustNew(t, 4, change)
		_, err := s.Sample([]float32{1, nan, 2, 3}, nil)
		require.ErrorContains(t, err, "logit of token 1 is NaN")
		_, err = s.Sample([]float32{1, 2, inf, 3}, nil)
		require.ErrorContains(t, err, "logit of token 2 is +Inf")
		_, err = s.Sample([]float32{1, 2, 3}, nil)
		require.ErrorContains(t, err, "3 logits: the vocabulary has 4 tokens")
		_, err = s.Sample([]float32{-inf, -inf, -inf, -inf}, nil)
		require.ErrorContains(t, err, "no token may be chosen")
		id, err := s.Sample([]float32{-inf, -inf, 5, -inf, 9}, nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, id, "padding after the vocabulary is never chosen")
		_, err = s.Logprobs(nil, []float32{1, nan, 2, 3}, nil, 0, 1)
		require.Error(t, err)
	}
	s := mustNew(t, 4, func(p *Params) { p.PresencePenalty = 1 })
	for _, history := range [][]int32{{0, 4}, {-1}} {
		_, err := s.Sample([]float32{1, 2, 3, 4}, history)
		require.ErrorContains(t, err, "the vocabulary has ids 0 to 3")
	}
}

func TestGreedy(t *testing.T) {
	s := mustNew(t, 5, func(p *Params) { p.Temperature = 0 })
	id, err := s.Sample([]float32{1, 7, 7, 7, 0}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, id, "the lowest id on a tie")
	biased := mustNew(t, 5, func(p *Params) {
		p.Temperature = 0
		p.LogitBias = map[int32]float64{1: -100}
		p.XTCProbability = 1
		p.TopK = 1
	})
	id, err = biased.Sample([]float32{1, 500, 7, 7, 0}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, id, "-100 forbids")
	var d Dist
	require.NoError(t, biased.Dist(&d, []float32{1, 500, 7, 7, 0}, nil))
	require.Equal(t, Dist{[]int32{2}, []float64{1}}, d)
	all := mustNew(t, 2, func(p *Params) { p.LogitBias = map[int32]float64{0: -100, 1: math.Inf(-1)} })
	_, err = all.Sample([]float32{1, 2}, nil)
	require.ErrorContains(t, err, "forbid all 2")
}

// TestSeed draws the same ids whatever was drawn in between, and others from other seeds and positions.
func TestSeed(t *testing.T) {
	const vocab = 200
	ws := NewWorkspace(vocab)
	run := func(seed uint64, neighbours bool) (ids []int32) {
		p := Default()
		p.Seed, p.TopK, p.TopP = seed, 50, 0.95
		s, err := ws.New(p)
		require.NoError(t, err)
		other, err := ws.New(Default())
		require.NoError(t, err)
		history := []int32{1, 2, 3}
		for i := range 40 {
			if neighbours {
				_, err := other.Sample(randomLogits(uint64(1000+i), vocab), history)
				require.NoError(t, err)
			}
			id, err := s.Sample(randomLogits(uint64(i), vocab), history)
			require.NoError(t, err)
			history = append(history, id)
			ids = append(ids, id)
		}
		return ids
	}
	require.Equal(t, run(1, false), run(1, true))
	require.NotEqual(t, run(1, false), run(2, false))
	// These ids were drawn once; they must come again on every machine.
	require.Equal(t, []int32{135, 113, 66, 52, 123, 120}, run(1, false)[:6])
	require.EqualValues(t, 5, ChoiceSeed(5, 0))
	require.NotEqual(t, ChoiceSeed(5, 1), ChoiceSeed(5, 2))
}

// TestUniform checks mean, spread and independence of the numbers over positions, seeds and purposes.
func TestUniform(t *testing.T) {
	const n = 100_000
	for name, draw := range map[string]func(i int) float64{
		"positions": func(i int) float64 { return Uniform(42, i, PurposeSample) },
		"seeds":     func(i int) float64 { return Uniform(uint64(i), 7, PurposeSample) },
		"purposes":  func(i int) float64 { return Uniform(42, 7, Purpose(i)) },
		"strides":   func(i int) float64 { return Uniform(uint64(i)<<40, i<<8, Purpose(i%4)) },
	} {
		var bins [64]float64
		sum, lag, last := 0.0, 0.0, 0.5
		for i := range n {
			u := draw(i)
			require.True(t, u >= 0 && u < 1)
			bins[int(u*64)]++
			sum += u
			lag += (u - 0.5) * (last - 0.5)
			last = u
		}
		chi := 0.0
		for _, b := range bins {
			chi += (b - n/64.0) * (b - n/64.0) / (n / 64.0)
		}
		require.InDelta(t, 0.5, sum/n, 5*math.Sqrt(1.0/12/n), name)
		require.Less(t, chi, 63+6*math.Sqrt(2*63), name)
		require.InDelta(t, 0, lag/n, 5.0/12/math.Sqrt(n), name)
	}
}

// TestFrequencies draws many tokens and compares their frequencies with the distribution.
func TestFrequencies(t *testing.T) {
	logits := randomLogits(3, 30)
	s := mustNew(t, 30, func(p *Params) { p.Temperature, p.TopP, p.Seed = 0.9, 0.95, 11 })
	var d Dist
	require.NoError(t, s.Dist(&d, logits, nil))
	const n = 60_000
	counts := map[int32]float64{}
	history := make([]int32, n)
	for i := range n {
		id, err := s.Sample(logits, history[:i])
		require.NoError(t, err)
		counts[id]++
		require.Equal(t, id, d.Draw(Uniform(11, i, PurposeSample)))
	}
	chi := 0.0
	for i, id := range d.IDs {
		e := d.P[i] * n
		chi += (counts[id] - e) * (counts[id] - e) / e
		delete(counts, id)
	}
	require.Empty(t, counts, "only tokens of the distribution are drawn")
	dof := float64(len(d.IDs) - 1)
	require.Less(t, chi, dof+6*math.Sqrt(2*dof))
}

func TestMask(t *testing.T) {
	logits := randomLogits(5, 130)
	s := mustNew(t, 130, func(p *Params) { p.LogitBias = map[int32]float64{70: 50, 1: 3} })
	require.ErrorContains(t, s.SetMask(make([]uint64, 2)), "a vocabulary of 130 tokens needs 3")
	require.NoError(t, s.SetMask([]uint64{1 << 5, 1 << (70 - 64), 1 << 1}))
	var d Dist
	require.NoError(t, s.Dist(&d, logits, nil))
	require.Equal(t, []int32{5, 70, 129}, d.IDs)
	require.Greater(t, d.Prob(70), 0.99)
	require.Zero(t, d.Prob(6))
	require.NoError(t, s.SetMask(make([]uint64, 3)))
	require.ErrorContains(t, s.Dist(&d, logits, nil), "no token may be chosen")
	require.NoError(t, s.SetMask(nil))
	require.NoError(t, s.Dist(&d, logits, nil))
	require.Len(t, d.IDs, 130)
}

func TestPromptIsNotCounted(t *testing.T) {
	logits := []float32{1, 1, 1, 1}
	s := mustNew(t, 4, func(p *Params) { p.FrequencyPenalty, p.PresencePenalty = 0.5, 0.25 })
	s.SetPrompt(3)
	var d Dist
	require.NoError(t, s.Dist(&d, logits, []int32{0, 0, 1, 2, 2}))
	require.InDelta(t, d.Prob(0), d.Prob(1), 1e-15)
	require.InDelta(t, math.Exp(-1.25), d.Prob(2)/d.Prob(3), 1e-12)
	window := mustNew(t, 4, func(p *Params) { p.FrequencyPenalty, p.RepeatLastN = 1, 2 })
	window.SetPrompt(1)
	require.NoError(t, window.Dist(&d, logits, []int32{0, 1, 2, 3}))
	require.InDelta(t, 1, d.Prob(1)/d.Prob(0), 1e-12)
	require.InDelta(t, math.Exp(-1), d.Prob(3)/d.Prob(0), 1e-12)
}

func TestMirostat(t *testing.T) {
	logits := randomLogits(9, 1000)
	s := mustNew(t, 1000, func(p *Params) { p.Mirostat, p.MirostatTau, p.TopK, p.MinP = 2, 3, 1, 1 })
	require.Equal(t, 6.0, s.State())
	history, surprise, n := []int32{}, 0.0, 2000
	var d Dist
	for i := range n {
		before := s.State()
		require.NoError(t, s.Dist(&d, logits, history))
		require.Equal(t, before, s.State(), "Dist changes nothing")
		id, err := s.Sample(logits, history)
		require.NoError(t, err)
		bits := -math.Log2(d.Prob(id))
		require.InDelta(t, before-0.1*(bits-3), s.State(), 1e-9)
		after := s.State()
		s.SetState(before)
		s.Observe(&d, id)
		require.InDelta(t, after, s.State(), 1e-12)
		if i >= n/2 {
			surprise += bits
		}
		history = append(history, id)
	}
	require.InDelta(t, 3, surprise/float64(n/2), 0.15, "the surprise settles at tau")
	s.SetState(-50)
	id, err := s.Sample(logits, history)
	require.NoError(t, err)
	best := slices.Index(logits, slices.Max(logits))
	require.EqualValues(t, best, id, "one token is always left")
}

func TestLogprobs(t *testing.T) {
	logits := randomLogits(4, 500)
	var d Dist
	require.NoError(t, mustNew(t, 500, nil).Dist(&d, logits, nil))
	s := mustNew(t, 500, func(p *Params) { p.Temperature, p.TopK = 0.5, 3 })
	for _, n := range []int{0, 1, 20, 300, 500, 900} {
		got, err := s.Logprobs(nil, logits, nil, 17, n)
		require.NoError(t, err)
		require.Len(t, got, 1+min(n, 500))
		require.InDelta(t, math.Log(d.Prob(17)), got[0].Logprob, 1e-12)
		for i, l := range got[1:] {
			require.InDelta(t, math.Log(d.Prob(l.ID)), l.Logprob, 1e-12)
			if i > 0 {
				require.LessOrEqual(t, l.Logprob, got[i].Logprob)
			}
		}
	}
	after := mustNew(t, 500, func(p *Params) { p.Temperature, p.TopK, p.LogprobsAfter = 0.5, 3, true })
	require.NoError(t, after.Dist(&d, logits, nil))
	got, err := after.Logprobs(nil, logits, nil, d.IDs[1], 5)
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.InDelta(t, math.Log(d.P[1]), got[0].Logprob, 1e-12)
	removed, err := after.Logprobs(nil, logits, nil, 17, 0)
	require.NoError(t, err)
	require.Equal(t, []Logprob{{17, math.Inf(-1)}}, removed)
	greedy := mustNew(t, 3, func(p *Params) { p.Temperature, p.LogprobsAfter, p.LogitBias = 0, true, map[int32]float64{2: -100} })
	got, err = greedy.Logprobs(nil, []float32{1, 1, 9}, nil, 0, 3)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 0, 1}, []int32{got[0].ID, got[1].ID, got[2].ID})
	require.InDelta(t, math.Log(0.5), got[0].Logprob, 1e-15)
}

// everything turns all steps on.
func everything(p *Params) {
	p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.TopNSigma = 0.8, 400, 0.95, 0.01, 0.98, 4
	p.XTCProbability, p.RepeatPenalty, p.FrequencyPenalty, p.DRYMultiplier = 0.5, 1.1, 0.1, 0.8
	p.DRYBreakers, p.LogitBias = []int32{3, 4}, map[int32]float64{5: 1, 6: -100}
}

func TestNoAllocation(t *testing.T) {
	const vocab = 20_000
	logits := randomLogits(1, vocab)
	history := make([]int32, 300)
	for i := range history {
		history[i] = int32(i * i % 50)
	}
	for name, change := range map[string]func(p *Params){
		"greedy": func(p *Params) { p.Temperature = 0 }, "plain": nil, "everything": everything,
		"top_p": func(p *Params) { p.TopP = 0.9 }, "mirostat": func(p *Params) { p.Mirostat = 2 }, "flat": func(p *Params) { p.Temperature, p.TopP = 50, 0.5 },
	} {
		s := mustNew(t, vocab, change)
		var d Dist
		var list []Logprob
		once := func() {
			if _, err := s.Sample(logits, history); err != nil {
				t.Fatal(err)
			}
			if err := s.Dist(&d, logits, history); err != nil {
				t.Fatal(err)
			}
			list, _ = s.Logprobs(list, logits, history, 1, 20)
		}
		once()
		require.Zero(t, testing.AllocsPerRun(5, once), name)
	}
}

// benchLogits is a row shaped like a model's: most logits in a bell, some hundred far above it.
func benchLogits() []float32 {
	logits := randomLogits(1, 151_936)
	for i := range 300 {
		logits[i*499] += 14 - float32(i)*0.04
	}
	return logits
}

// BenchmarkSample measures one choice from a vocabulary of 151,936.
func BenchmarkSample(b *testing.B) {
	logits := benchLogits()
	vocab := len(logits)
	history := make([]int32, 1000)
	for i := range history {
		history[i] = int32(i * i % 5000)
	}
	for _, c := range []struct {
		name   string
		change func(p *Params)
	}{
		{"greedy", func(p *Params) { p.Temperature = 0 }},
		{"temperature", func(p *Params) { p.Temperature = 0.8 }},
		{"top-k 40, top-p, min-p", func(p *Params) { p.Temperature, p.TopK, p.TopP, p.MinP = 0.8, 40, 0.95, 0.05 }},
		{"top-p", func(p *Params) { p.Temperature, p.TopP = 0.8, 0.9 }},
		{"top-p, flat", func(p *Params) { p.Temperature, p.TopP = 5, 0.9 }},
		{"min-p", func(p *Params) { p.MinP = 0.05 }},
		{"top-k 5000", func(p *Params) { p.TopK = 5000 }},
		{"typical", func(p *Params) { p.TypicalP = 0.9 }},
		{"typical, flat", func(p *Params) { p.Temperature, p.TypicalP = 5, 0.9 }},
		{"top-k 75000", func(p *Params) { p.TopK = 75_000 }},
		{"min-p, flat", func(p *Params) { p.Temperature, p.MinP = 5, 0.05 }},
		{"top-n-sigma", func(p *Params) { p.TopNSigma = 1 }},
		{"xtc", func(p *Params) { p.XTCProbability, p.XTCThreshold = 1, 0.01 }},
		{"dry, penalties", func(p *Params) { p.DRYMultiplier, p.RepeatPenalty, p.PresencePenalty = 0.8, 1.1, 0.5 }},
		{"dry, penalties, 32,000 tokens", func(p *Params) { p.DRYMultiplier, p.RepeatPenalty, p.PresencePenalty = 0.8, 1.1, 0.5 }},
		{"mirostat", func(p *Params) { p.Mirostat = 2 }},
		{"mirostat, flat", func(p *Params) { p.Mirostat, p.Temperature, p.MirostatTau = 2, 5, 9 }},
		{"typical, top-p, flat", func(p *Params) { p.Temperature, p.TypicalP, p.TopP = 5, 0.9, 0.9 }},
		{"typical, xtc, flat", func(p *Params) { p.Temperature, p.TypicalP, p.XTCProbability, p.XTCThreshold = 5, 0.9, 1, 1e-5 }},
		{"top-n-sigma, typical, flat", func(p *Params) { p.Temperature, p.TopNSigma, p.TypicalP = 5, 5, 0.9 }},
		{"top-n-sigma, top-p, flat", func(p *Params) { p.Temperature, p.TopNSigma, p.TopP = 5, 5, 0.9 }},
		{"typical, very flat", func(p *Params) { p.Temperature, p.TypicalP = 100, 0.5 }},
		{"xtc, flat", func(p *Params) { p.Temperature, p.XTCProbability, p.XTCThreshold = 5, 1, 1e-5 }},
		{"dry, typical, flat", func(p *Params) { p.Temperature, p.DRYMultiplier, p.RepeatPenalty, p.TypicalP = 5, 0.8, 1.1, 0.9 }},
		{"everything", everything},
		{"everything, flat", func(p *Params) { everything(p); p.Temperature, p.TopK, p.MinP = 5, 0, 0.0001 }},
		{"everything, temperature first", func(p *Params) {
			everything(p)
			p.Order = []string{"temperature", "penalties", "dry", "typical_p", "top_p", "min_p", "xtc", "top_n_sigma", "top_k"}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := mustNew(b, vocab, c.change)
			history := history
			if strings.Contains(c.name, "32,000") {
				history = slices.Repeat(history, 32)
			}
			b.SetBytes(int64(4 * vocab))
			for b.Loop() {
				if _, err := s.Sample(logits, history); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

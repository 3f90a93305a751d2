package sample

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive computes the distribution by its definition: whole sorts, whole sums, math.Exp.
type naive struct {
	logit []float64 // -Inf is removed
}

func (n *naive) probs() []float64 {
	top := slices.Max(n.logit)
	p, sum := make([]float64, len(n.logit)), 0.0
	for i, l := range n.logit {
		p[i] = math.Exp(l - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// order returns the ids by descending logit, higher ids first on a tie.
func (n *naive) order() []int {
	ids := make([]int, len(n.logit))
	for i := range ids {
		ids[i] = len(ids) - 1 - i
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		switch {
		case n.logit[a] > n.logit[b]:
			return -1
		case n.logit[a] < n.logit[b]:
			return 1
		}
		return 0
	})
	return ids
}

func (n *naive) drop(test func(id int, p float64) bool) {
	for id, p := range n.probs() {
		if test(id, p) {
			n.logit[id] = math.Inf(-1)
		}
	}
}

func (n *naive) kept() (c int) {
	for _, l := range n.logit {
		if !math.IsInf(l, -1) {
			c++
		}
	}
	return c
}

func (n *naive) apply(p *Params, step string, history []int32, position int) {
	switch step {
	case "penalties":
		n.penalties(p, history)
	case "dry":
		n.dry(p, history)
	case "temperature":
		for i := range n.logit {
			n.logit[i] /= p.Temperature
		}
	case "top_n_sigma":
		n.sigma(p.TopNSigma)
	case "top_k":
		if p.TopK > 0 && p.TopK < n.kept() {
			low := n.logit[n.order()[p.TopK-1]]
			n.drop(func(id int, _ float64) bool { return n.logit[id] < low })
		}
	case "typical_p":
		n.typical(p.TypicalP)
	case "top_p":
		if p.TopP < 1 {
			probs, sum := n.probs(), 0.0
			for _, id := range n.order() {
				if sum >= p.TopP {
					n.logit[id] = math.Inf(-1)
				}
				sum += probs[id]
			}
		}
	case "min_p":
		top := slices.Max(n.probs())
		n.drop(func(_ int, prob float64) bool { return prob < p.MinP*top })
	case "xtc":
		n.xtc(p, position)
	}
}

func (n *naive) penalties(p *Params, history []int32) {
	counts := map[int32]int{}
	for _, id := range window(history, p.RepeatLastN) {
		counts[id]++
	}
	for id, c := range counts {
		if n.logit[id] < 0 {
			n.logit[id] *= p.RepeatPenalty
		} else {
			n.logit[id] /= p.RepeatPenalty
		}
		n.logit[id] -= float64(c)*p.FrequencyPenalty + p.PresencePenalty
	}
}

func (n *naive) dry(p *Params, history []int32) {
	seen := window(history, p.DRYLastN)
	longest := map[int32]int{}
	for i := 0; i+1 < len(seen); i++ {
		run := 0
		for run <= i && seen[i-run] == seen[len(seen)-1-run] && !slices.Contains(p.DRYBreakers, seen[i-run]) {
			run++
		}
		longest[seen[i+1]] = max(longest[seen[i+1]], run)
	}
	for id, run := range longest {
		if p.DRYMultiplier > 0 && run >= p.DRYAllowedLength && !slices.Contains(p.DRYBreakers, id) {
			n.logit[id] -= p.DRYMultiplier * math.Pow(p.DRYBase, float64(run-p.DRYAllowedLength))
		}
	}
}

func (n *naive) sigma(sigmas float64) {
	if sigmas == 0 {
		return
	}
	sum, sq, c := 0.0, 0.0, float64(n.kept())
	for _, l := range n.logit {
		if !math.IsInf(l, -1) {
			sum += l
		}
	}
	for _, l := range n.logit {
		if !math.IsInf(l, -1) {
			sq += (l - sum/c) * (l - sum/c)
		}
	}
	low := slices.Max(n.logit) - sigmas*math.Sqrt(sq/c)
	n.drop(func(id int, _ float64) bool { return n.logit[id] < low })
}

func (n *naive) typical(mass float64) {
	if mass >= 1 {
		return
	}
	probs, entropy := n.probs(), 0.0
	for _, p := range probs {
		if p > 0 {
			entropy -= p * math.Log(p)
		}
	}
	distance := func(id int) float64 { return math.Abs(-math.Log(probs[id]) - entropy) }
	ids := []int{}
	for id, p := range probs {
		if p > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b int) int { return int(math.Copysign(1, distance(a)-distance(b))) })
	sum, border := 0.0, distance(ids[len(ids)-1])
	for _, id := range ids {
		if sum += probs[id]; sum >= mass {
			border = distance(id)
			break
		}
	}
	n.drop(func(id int, p float64) bool { return p == 0 || distance(id) > border+1e-11 })
}

func (n *naive) xtc(p *Params, position int) {
	if p.XTCProbability == 0 || p.XTCThreshold > 0.5 || Uniform(p.Seed, position, PurposeXTC) >= p.XTCProbability {
		return
	}
	probs, above := n.probs(), []int{}
	for id, prob := range probs {
		if prob >= p.XTCThreshold {
			above = append(above, id)
		}
	}
	if len(above) < 2 {
		return
	}
	last := slices.MinFunc(above, func(a, b int) int { return int(math.Copysign(1, probs[a]-probs[b])) })
	for _, id := range above {
		if id != last {
			n.logit[id] = math.Inf(-1)
		}
	}
}

// drawLogits draws logits whose values are far enough from each other and from borders, or exactly equal, so that rounding decides
// nothing.
func drawLogits(t *rapid.T, n int) []float64 {
	levels := rapid.SliceOfN(rapid.IntRange(-400, 400), n, n).Draw(t, "levels")
	out := make([]float64, n)
	for i, l := range levels {
		out[i] = float64(l)/32 + float64(l%7)*0.0013
	}
	return out
}

// TestAgainstDefinition compares random settings in random orders with the naive computation.
func TestAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, 5, 40, 300, 3000}).Draw(t, "vocab")
		logits := drawLogits(t, n)
		history := rapid.SliceOfN(rapid.Int32Range(0, int32(min(n, 6)-1)), 0, 40).Draw(t, "history")
		p := Default()
		one := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, name) == 0 }
		if one("temperature") {
			p.Temperature = rapid.SampledFrom([]float64{0.1, 0.7, 1.3, 5}).Draw(t, "t")
		}
		if one("top_k") {
			p.TopK = rapid.SampledFrom([]int{1, 2, 7, 40, 256, 257, 1500}).Draw(t, "k")
		}
		if one("top_p") {
			p.TopP = rapid.SampledFrom([]float64{1e-6, 0.1234567, 0.51234, 0.9012345, 0.9991234}).Draw(t, "p")
		}
		if one("min_p") {
			p.MinP = rapid.SampledFrom([]float64{0.0123456, 0.0512345, 0.312345, 1}).Draw(t, "m")
		}
		if one("top_n_sigma") {
			p.TopNSigma = rapid.SampledFrom([]float64{0.51237, 1.01239, 2.71239}).Draw(t, "sigma")
		}
		if one("penalties") {
			p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty = 1.171, 0.313, -0.211
			p.RepeatLastN = rapid.SampledFrom([]int{-1, 0, 5, 100}).Draw(t, "last_n")
		}
		if one("dry") {
			p.DRYMultiplier, p.DRYAllowedLength, p.DRYLastN = 0.81237, rapid.IntRange(1, 3).Draw(t, "allowed"), rapid.SampledFrom([]int{-1, 0, 12}).Draw(t, "dry_n")
			if n > 2 && one("breaker") {
				p.DRYBreakers = []int32{2}
			}
		}
		if one("xtc") {
			p.XTCProbability, p.XTCThreshold, p.Seed = 0.7, 0.0412345, uint64(rapid.IntRange(0, 9).Draw(t, "seed"))
		}
		if one("typical") {
			p.TypicalP = rapid.SampledFrom([]float64{0.212345, 0.912345}).Draw(t, "typ")
		}
		p.Order = rapid.Permutation(DefaultOrder()).Draw(t, "order")[:rapid.IntRange(0, int(nSteps)).Draw(t, "steps")]
		if p.Order == nil {
			p.Order = []string{}
		}
		s, err := New(p, n)
		require.NoError(t, err)
		var d Dist
		require.NoError(t, distOf(s, &d, logits, history))
		want := naive{slices.Clone(logits)}
		for _, step := range p.Order {
			want.apply(&p, step, history, len(history))
		}
		got, probs := dense(&d, n), want.probs()
		for id := range probs {
			require.InDelta(t, probs[id], got[id], 1e-11, "token %d of %d", id, n)
		}
	})
}

// TestBorderSplits forces the selection through its bins: many keys, all close, all equal, or with far outliers.
func TestBorderSplits(t *testing.T) {
	const n = 20000
	shapes := map[string]func(i int) float64{
		"close":    func(i int) float64 { return float64(i*7919%n) * 1e-12 },
		"equal":    func(int) float64 { return -3 },
		"far":      func(i int) float64 { return float64(-i*i) * 1e3 },
		"outlier":  func(i int) float64 { return map[bool]float64{true: 1e30, false: float64(i % 1000)}[i == 77] },
		"two":      func(i int) float64 { return float64(i & 1) },
		"rising":   func(i int) float64 { return float64(i) },
		"subnorm":  func(i int) float64 { return float64(i) * 5e-324 },
		"adjacent": func(i int) float64 { return math.Float64frombits(math.Float64bits(1) + uint64(i*31%n)) },
	}
	sel := NewWorkspace(n).sel
	for name, shape := range shapes {
		keys := make([]float64, n)
		for i := range keys {
			keys[i] = shape(i)
		}
		sorted := slices.Clone(keys)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		for _, k := range []int{1, 2, 40, 256, 5000, n - 1, n} {
			c, ok := sel.border(keys, nil, 32, float64(k))
			require.True(t, ok, name)
			require.Equal(t, sorted[k-1], c.key, "%s %d", name, k)
			equal, above := 0, 0
			for _, key := range keys {
				if key == c.key {
					equal++
				} else if key > c.key {
					above++
				}
			}
			require.Equal(t, cut{c.key, k - above, equal}, c, "%s %d", name, k)
			if k <= maxKth {
				require.Equal(t, sorted[k-1], sel.kth(keys, k), "%s %d", name, k)
			}
		}
		_, ok := sel.border(keys, nil, 32, n+1)
		require.False(t, ok, name)
	}
}

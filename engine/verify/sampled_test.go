package verify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/drafter"
	"quickdraft/sample"
	"quickdraft/sample/sampletest"
)

const toyVocab = 64

// toy is a pair of models over 64 tokens: logits depend on the previous token alone.
type toy struct {
	target, draft [toyVocab][]float32
}

// newToy makes a draft that is the target with noise on it.
func newToy(seed uint64, noise float64) *toy {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &toy{}
	for i := range m.target {
		for range toyVocab {
			x := 2.5 * rng.NormFloat64()
			m.target[i] = append(m.target[i], float32(x))
			m.draft[i] = append(m.draft[i], float32(x+noise*rng.NormFloat64()))
		}
	}
	return m
}

// shape fills the tree of a round from the draft's distributions.
type shape func(d func(history []int32) *sample.Dist, history []int32, u func() float64, t *drafter.Tree)

func chain(d func([]int32) *sample.Dist, history []int32, u func() float64, t *drafter.Tree) {
	parent := int32(-1)
	for range 2 {
		q := d(history)
		x := q.Draw(u())
		parent = t.Add(x, parent, q)
		history = append(history, x)
	}
}

func independent(d func([]int32) *sample.Dist, history []int32, u func() float64, t *drafter.Tree) {
	q := d(history)
	for range 3 {
		first := q.Draw(u())
		i := t.Add(first, -1, q)
		q2 := d(append(history, first))
		t.Add(q2.Draw(u()), i, q2)
	}
}

func withoutReplacement(d func([]int32) *sample.Dist, history []int32, u func() float64, t *drafter.Tree) {
	q := d(history)
	for range 3 {
		x := q.Draw(u())
		i := t.Add(x, -1, q)
		q2 := d(append(history, x))
		t.Add(q2.Draw(u()), i, q2)
		q = clone(q)
		if !Remove(q, x) {
			return
		}
	}
}

func mixed(d func([]int32) *sample.Dist, history []int32, u func() float64, t *drafter.Tree) {
	q := d(history)
	t.Add(byProbability(q)[0], -1, nil)
	t.AddGuest(5, -1)
	x := q.Draw(u())
	i := t.Add(x, -1, q)
	t.Add(5, i, nil)
	t.Add(byProbability(d(append(history, x)))[0], i, nil)
}

var shapes = map[string]shape{"chain": chain, "independent": independent, "without replacement": withoutReplacement, "mixed": mixed}

// shares give the exact probability that a guess for the first position is accepted, written down for each shape from the rule:
// a draw from q is accepted with the sum of min(p, q), and what is left of p does not depend on what was drawn.
var shares = map[string]func(p, q []float64) float64{
	"chain": overlap,
	"independent": func(p, q []float64) float64 {
		missed := 1.0
		for range 3 {
			missed *= 1 - overlap(p, q)
			p = left(p, q)
		}
		return 1 - missed
	},
	"without replacement": func(p, q []float64) float64 { return 1 - missedWithout(p, q, 3) },
	"mixed": func(p, q []float64) float64 {
		best, point := 0, make([]float64, len(p))
		for i := range q {
			if q[i] > q[best] {
				best = i
			}
		}
		point[best] = 1
		return p[best] + (1-p[best])*overlap(left(p, point), q)
	},
}

func overlap(p, q []float64) (sum float64) {
	for i := range p {
		sum += min(p[i], q[i])
	}
	return sum
}

// left is norm(max(0, p-q)).
func left(p, q []float64) []float64 {
	r, sum := make([]float64, len(p)), 0.0
	for i := range p {
		r[i] = max(0, p[i]-q[i])
		sum += r[i]
	}
	for i := range r {
		r[i] /= sum
	}
	return r
}

// missedWithout is the probability that n draws without replacement are all rejected.
func missedWithout(p, q []float64, n int) (sum float64) {
	if n == 0 {
		return 1
	}
	rest := left(p, q)
	for x := range q {
		rejected := q[x] - min(p[x], q[x])
		if rejected <= 0 {
			continue
		}
		without, mass := append([]float64(nil), q...), 1-q[x]
		without[x] = 0
		for i := range without {
			without[i] /= mass
		}
		sum += rejected * missedWithout(rest, without, n-1)
	}
	return sum
}

// byProbability returns the ids of q, the most probable first.
func byProbability(q *sample.Dist) []int32 {
	best := 0
	for i, x := range q.P {
		if x > q.P[best] {
			best = i
		}
	}
	return []int32{q.IDs[best]}
}

// walk emits two tokens after history as the engine does, guesses first, plain sampling where they end, and counts how many of
// each position were guesses.
func walk(p func([]int32) *sample.Dist, d *sample.Dist, t *drafter.Tree, history []int32, rng *rand.Rand, accepted *[2]int) []int32 {
	node, n := int32(-1), len(history)
	for len(history) < n+2 {
		full := p(history)
		d.IDs, d.P = append(d.IDs[:0], full.IDs...), append(d.P[:0], full.P...)
		var id int32
		id, node = Sampled(d, t, node, 1, func(sample.Purpose, int) float64 { return rng.Float64() })
		if node >= 0 {
			accepted[len(history)-n]++
		}
		history = append(history, id)
		if node < 0 {
			t.Reset()
		}
	}
	return history[n:]
}

func TestSampledKeepsTheTargetsDistribution(t *testing.T) {
	for name, set := range sampletest.Options {
		for form := range shapes {
			if form != "chain" && name != "temperature 1" && name != "all" {
				continue // the options act before the rule, the shapes inside it
			}
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				p := sample.Default()
				set(&p)
				var mask []uint64
				if name == sampletest.Mask {
					mask = []uint64{0x0f0f_00ff_1234_5678}
				}
				checkDistribution(t, p, mask, form)
			})
		}
	}
}

// checkDistribution draws 200,000 pairs of tokens and compares both positions with what the target gives without guesses.
func checkDistribution(t *testing.T, params sample.Params, mask []uint64, form string) {
	build := shapes[form]
	const nDraws = 200_000
	m := newToy(7, 1.2)
	history := []int32{1, 8, 8, 30, 2}
	dists := func(rows *[toyVocab][]float32) func([]int32) *sample.Dist {
		s, err := sample.New(params, toyVocab)
		require.NoError(t, err)
		require.NoError(t, s.SetMask(mask))
		cache := map[int32]*sample.Dist{}
		return func(h []int32) *sample.Dist {
			key := int32(-1)
			if len(h) > len(history) {
				key = h[len(h)-1]
			}
			if cache[key] == nil {
				cache[key] = &sample.Dist{}
				require.NoError(t, s.Dist(cache[key], rows[h[len(h)-1]], h))
			}
			return cache[key]
		}
	}
	p, q := dists(&m.target), dists(&m.draft)
	rng := rand.New(rand.NewPCG(99, 5))
	var tree drafter.Tree
	var scratch sample.Dist
	var counts [2][toyVocab]float64
	var accepted [2]int
	for range nDraws {
		tree.Reset()
		build(q, append(make([]int32, 0, 16), history...), rng.Float64, &tree)
		out := walk(p, &scratch, &tree, append(make([]int32, 0, 16), history...), rng, &accepted)
		counts[0][out[0]]++
		counts[1][out[1]]++
	}
	share, exact := float64(accepted[0])/nDraws, shares[form](dense(p(history), toyVocab), dense(q(history), toyVocab))
	t.Logf("%.4f of the first guesses accepted, exactly %.4f; %d second ones", share, exact, accepted[1])
	require.InDelta(t, exact, share, 4*math.Sqrt(exact*(1-exact)/nDraws))
	require.Greater(t, exact, 0.3)
	require.Less(t, exact, 0.97)
	require.Greater(t, accepted[1], nDraws/50, "guesses behind accepted ones")
	require.Less(t, accepted[1], accepted[0]*9/10)
	var want [2][toyVocab]float64
	first := p(history)
	for i, x := range first.IDs {
		want[0][x] = first.P[i]
		second := p(append(append([]int32(nil), history...), x))
		for j, y := range second.IDs {
			want[1][y] += first.P[i] * second.P[j]
		}
	}
	for pos := range want {
		chi, df := chiSquare(counts[pos][:], want[pos][:], nDraws)
		require.Less(t, chi, chiLimit(df), "position %d, %d degrees of freedom", pos, df)
	}
}

// chiSquare pools cells that expect fewer than five draws.
func chiSquare(counts, p []float64, n float64) (chi float64, df int) {
	var rareCount, rare float64
	df = -1
	for i, c := range counts {
		e := n * p[i]
		if e == 0 && c > 0 {
			return math.Inf(1), 1
		}
		if e < 5 {
			rareCount, rare = rareCount+c, rare+e
			continue
		}
		chi += (c - e) * (c - e) / e
		df++
	}
	if rare >= 5 {
		chi += (rareCount - rare) * (rareCount - rare) / rare
		df++
	}
	return chi, max(df, 1)
}

// chiLimit is the value that chi-square exceeds with probability 0.001 (Wilson and Hilferty's approximation).
func chiLimit(df int) float64 {
	k := float64(df)
	c := 1 - 2/(9*k) + 3.0902*math.Sqrt(2/(9*k))
	return k * c * c * c
}

func TestChiSquareSeesAWrongRule(t *testing.T) {
	m := newToy(7, 1.2)
	s, err := sample.New(sample.Default(), toyVocab)
	require.NoError(t, err)
	var p, q sample.Dist
	require.NoError(t, s.Dist(&p, m.target[2], nil))
	require.NoError(t, s.Dist(&q, m.draft[2], nil))
	rng := rand.New(rand.NewPCG(3, 3))
	var counts [toyVocab]float64
	for range 200_000 {
		x := q.Draw(rng.Float64())
		if rng.Float64() >= AcceptProb(p.Prob(x), q.Prob(x), 1) {
			x = p.Draw(rng.Float64()) // p itself instead of what is left of it
		}
		counts[x]++
	}
	chi, df := chiSquare(counts[:], dense(&p, toyVocab), 200_000)
	require.Greater(t, chi, 10*chiLimit(df))
}

// TestEveryAttemptHasANumberOfItsOwn rejects three guesses in a row: no random number decides two things.
func TestEveryAttemptHasANumberOfItsOwn(t *testing.T) {
	type number struct {
		purpose sample.Purpose
		attempt int
	}
	for guesses := range 4 {
		p, q := dist([]float64{0.1, 0.1, 0.1, 0.7}), dist([]float64{0.4, 0.3, 0.3, 0})
		var tree drafter.Tree
		for id := range int32(guesses) {
			tree.Add(id, -1, q)
		}
		var used []number
		id, child := Sampled(p, &tree, -1, 1, func(purpose sample.Purpose, attempt int) float64 {
			used = append(used, number{purpose, attempt})
			return 0.9999
		})
		require.EqualValues(t, 3, id)
		require.EqualValues(t, -1, child)
		want := []number{{sample.PurposeSample, 0}}
		if guesses > 0 {
			want = nil
			for i := range guesses {
				want = append(want, number{sample.PurposeAccept, i})
			}
			want = append(want, number{sample.PurposeResidual, 0})
		}
		require.Equal(t, want, used)
	}
}

func TestNothingIsEverNaN(t *testing.T) {
	cases := map[string]struct{ p, q []float64 }{
		"equal":              {[]float64{0.25, 0.75}, []float64{0.25, 0.75}},
		"disjoint":           {[]float64{0.4, 0.6, 0, 0}, []float64{0, 0, 0.5, 0.5}},
		"q without p's mass": {[]float64{0.5, 0.5}, []float64{1, 0}},
		"one token":          {[]float64{1}, []float64{1}},
		"tiny":               {[]float64{1e-308, 1}, []float64{1, 1e-308}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, u := range []float64{0, 0.3, 1 - 0x1p-53} {
				p, q := dist(c.p), dist(c.q)
				var tree drafter.Tree
				for _, x := range q.IDs {
					tree.Add(x, -1, q)
				}
				tree.Add(int32(len(c.p)), -1, q) // q denies this one
				tree.Add(0, -1, nil)
				id, _ := Sampled(p, &tree, -1, 1, func(sample.Purpose, int) float64 { return u })
				require.Greater(t, c.p[id], 0.0, "token %d has no probability", id)
				for _, x := range p.P {
					require.False(t, math.IsNaN(x) || math.IsInf(x, 0) || x < 0)
				}
			}
		})
	}
}

func TestSampledNeverLeavesTheTargetsSupport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "tokens")
		draw := func(name string) *sample.Dist {
			w := rapid.SliceOfN(rapid.IntRange(0, 4), n, n).Draw(t, name)
			sum := 0
			for _, x := range w {
				sum += x
			}
			if sum == 0 {
				w[0], sum = 1, 1
			}
			p := make([]float64, n)
			for i, x := range w {
				p[i] = float64(x) / float64(sum)
			}
			return dist(p)
		}
		p := draw("p")
		before := clone(p)
		var tree drafter.Tree
		for range rapid.IntRange(0, 5).Draw(t, "guesses") {
			q := draw("q")
			if rapid.Bool().Draw(t, "point mass") {
				q = nil
			}
			id := int32(rapid.IntRange(0, n).Draw(t, "id"))
			if rapid.IntRange(0, 3).Draw(t, "guest") == 0 {
				tree.AddGuest(id, -1)
			} else {
				tree.Add(id, -1, q)
			}
		}
		lenience := rapid.SampledFrom([]float64{1, 0.5, 0.1}).Draw(t, "lenience")
		id, child := Sampled(p, &tree, -1, lenience, func(sample.Purpose, int) float64 { return rapid.Float64Range(0, 0.999).Draw(t, "u") })
		if before.Prob(id) <= 0 {
			t.Fatalf("token %d has probability 0 in %v", id, before)
		}
		if child >= 0 && (tree.IDs[child] != id || tree.Guest[child]) {
			t.Fatalf("child %d does not carry token %d", child, id)
		}
	})
}

func TestLenientTakesGoodEnoughGuesses(t *testing.T) {
	p := dist([]float64{0.5, 0.3, 0.15, 0.05})
	for _, c := range []struct {
		l         float64
		guesses   []int32
		id, child int32
	}{
		{1, []int32{1, 0}, 0, 1},
		{1, []int32{1}, 0, -1},
		{0.6, []int32{1}, 1, 0},
		{0.61, []int32{1}, 0, -1},
		{0.3, []int32{2, 1}, 1, 1},
		{0.1, []int32{3, 0}, 0, 1},
		{0.1, nil, 0, -1},
	} {
		var tree drafter.Tree
		for _, x := range c.guesses {
			tree.Add(x, -1, nil)
		}
		id, child := Lenient(p, &tree, -1, c.l)
		require.Equal(t, []int32{c.id, c.child}, []int32{id, child}, "%+v", c)
	}
}

func TestMatchSkipsGuests(t *testing.T) {
	var tree drafter.Tree
	tree.AddGuest(4, -1)
	tree.Add(4, -1, nil)
	tree.Add(6, 1, nil)
	require.Equal(t, int32(1), Match(&tree, -1, 4))
	require.Equal(t, int32(2), Match(&tree, 1, 6))
	require.Equal(t, int32(-1), Match(&tree, -1, 6))
}

// TestMatchFindsTheLongestPath walks trees of few tokens, guests among them, along all texts: the nodes stand for the longest
// beginning of the text that some path of the tree has.
func TestMatchFindsTheLongestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree drafter.Tree
		for i := range rapid.IntRange(0, 24).Draw(t, "nodes") {
			id, parent := rapid.Int32Range(0, 2).Draw(t, "id"), rapid.Int32Range(-1, int32(i)-1).Draw(t, "parent")
			if tree.Add(id, parent, nil); rapid.IntRange(0, 5).Draw(t, "guest") == 0 {
				tree.Guest[i] = true
			}
		}
		text := rapid.SliceOfN(rapid.Int32Range(0, 2), 6, 6).Draw(t, "text")
		longest := 0
		for i := range tree.IDs {
			n, ok := tree.Depth(int32(i)), true
			for at, k := n-1, int32(i); k >= 0; at, k = at-1, tree.Parents[k] {
				ok = ok && at < len(text) && tree.IDs[k] == text[at] && !tree.Guest[k]
			}
			if ok {
				longest = max(longest, n)
			}
		}
		n, node := 0, int32(-1)
		for _, id := range text {
			next := Match(&tree, node, id)
			if next < 0 {
				break
			}
			require.Greater(t, next, node)
			require.Equal(t, id, tree.IDs[next])
			if n++; tree.Depth(next) != n {
				t.Fatalf("node %d is on level %d, want %d", next, tree.Depth(next), n)
			}
			node = next
		}
		require.Equal(t, longest, n)
	})
}

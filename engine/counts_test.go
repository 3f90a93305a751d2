package engine

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/sample"
)

// liar is a hostile drafter that says it has a smaller one within, and counts what it pleases.
type liar struct {
	*hostile
	counts []drafter.Counts // of one call after the other
	calls  int
}

func (d *liar) Small() drafter.Drafter { return &named{name: "small"} }
func (d *liar) Counts() drafter.Counts {
	d.calls++
	return d.counts[(d.calls-1)%len(d.counts)]
}

// TestWrongCountsStayWithinBounds has a drafter lie about the guesses of a smaller one within it and about how often it stopped:
// no count is ever negative or falls, and no more is accepted than was drafted, nor more drafted than a round can have.
func TestWrongCountsStayWithinBounds(t *testing.T) {
	const mostInARound = 1 << 12
	lies := []drafter.Inner{
		{Drafted: 5, Accepted: 3}, {Drafted: math.MinInt, Accepted: math.MinInt}, {Drafted: 2, Accepted: -9}, {Drafted: -9, Accepted: 2},
		{Drafted: 3, Accepted: 9}, {Drafted: math.MaxInt, Accepted: math.MaxInt}, {Drafted: math.MaxInt}, {Accepted: math.MaxInt},
	}
	for _, inUnion := range []bool{false, true} {
		var seen [][]Metric
		var e *Engine
		n := 0
		d := &liar{hostile: &hostile{guess: func(r *drafter.Round) {
			chain(r, 3, 4)
			r.Inner = lies[n%len(lies)]
			n++
		}}, counts: []drafter.Counts{{ContextFull: 7, NaN: 7}, {ContextFull: 3, NoBlocks: math.MinInt64, Unknown: -1}, {}, {NaN: 1e9, ContextFull: -5}, {NaN: 8}}}
		d.in = func(call string) error {
			if call == "Committed" {
				seen = append(seen, e.Metrics())
			}
			return nil
		}
		o := SpecOptions{Drafter: d, Fixed: 2}
		if inUnion {
			o.Drafter = drafter.NewUnion(d, drafter.NewRandom(512, 1))
		}
		e = openTiny(t, Options{Context: 64, Spec: o})
		r := request(1, 9, 40)
		r.Sampling = sample.Greedy()
		s, _ := stats(t, e, r)
		require.Greater(t, n, 2*len(lies))
		for _, all := range []SpecStats{s, e.SpecTotals()} {
			small := all.Parts[len(all.Parts)-1]
			require.Equal(t, "hostile/small", small.Name)
			require.LessOrEqual(t, small.Accepted, small.Drafted)
			require.LessOrEqual(t, small.Drafted, n*mostInARound)
			require.Greater(t, small.Drafted, 2*mostInARound, "what may be true counts")
			checkCounts(t, "hostile", all)
		}
		before := map[string]float64{}
		for _, snapshot := range append(seen, e.Metrics()) {
			for _, m := range snapshot {
				key := m.Name + m.Of
				require.GreaterOrEqual(t, m.Value, before[key], key)
				before[key] = m.Value
			}
		}
		require.Equal(t, []float64{7, 1e9}, []float64{before["quickdraft:spec_decode_num_drafts_stopped_totalcontext_full"], before["quickdraft:spec_decode_num_drafts_stopped_totalnan"]})
		require.NoError(t, e.Close())
	}
}

// counting is a drafter that counts every call.
type counting struct {
	named
	n int64
}

func (d *counting) Counts() drafter.Counts {
	d.n++
	return drafter.Counts{ContextFull: d.n, NaN: 2 * d.n}
}

// TestNoDraftersCountsHideAnothers joins a drafter that counts right with one that has counted as much as there is, and one whose
// counting panics.
func TestNoDraftersCountsHideAnothers(t *testing.T) {
	guess := func(r *drafter.Round) { chain(r, 5) }
	huge := &liar{hostile: &hostile{guess: guess}, counts: []drafter.Counts{{ContextFull: math.MaxInt64, NaN: 5}, {ContextFull: math.MinInt64, NaN: math.MinInt64}}}
	right, none := &counting{named: named{name: "right", id: 3}}, &liar{hostile: &hostile{guess: guess}}
	o := Options{Context: 64, Note: func(string) {}, Spec: SpecOptions{Drafter: drafter.NewUnion(huge, none, right), Fixed: 2}}
	e := openTiny(t, o)
	stopped := func() map[string]float64 {
		n := map[string]float64{}
		for _, m := range e.Metrics() {
			n[m.Of] += m.Value
		}
		return n
	}
	for n := range 2 {
		answer(t, e, request(n, 9, 20))
		require.Greater(t, right.n, int64(5*n), "it was asked")
		require.Equal(t, float64(maxCount+right.n), stopped()["context_full"])
		require.Equal(t, float64(5+2*right.n), stopped()["nan"])
	}
	require.NoError(t, e.Close())
}

// TestEachSmallDrafterHasItsOwnCounts joins two drafters that verify a smaller one's guesses: a copy of the bigger model is always
// right, n-grams are not, and the one that a request leaves out has none.
func TestEachSmallDrafterHasItsOwnCounts(t *testing.T) {
	e := openTiny(t, Options{Context: 160, Spec: SpecOptions{Fixed: 6, Open: func(target *model.Model) (drafter.Drafter, error) {
		model, err := withDrafter(t, "hierarchical", nil)(target)
		require.NoError(t, err)
		grams, err := withDrafter(t, "hierarchical", func(c *drafter.Config) { c.Draft = nil })(target)
		return drafter.NewUnion(&named{name: "first", id: 3}, model, renamed{grams}), err
	}}})
	for method, want := range map[string][2]bool{"": {true, true}, "hierarchical": {true, false}, "renamed": {false, true}, "first": {false, false}} {
		r := request(1, 12, 60)
		r.Sampling = sample.Greedy()
		r.SpecMethod = method
		s, _ := stats(t, e, r)
		require.Len(t, s.Parts, 5)
		model, grams := s.Parts[3], s.Parts[4]
		require.Equal(t, []string{"hierarchical/draft", "renamed/ngram"}, []string{model.Name, grams.Name})
		require.Equal(t, want, [2]bool{model.Drafted > 0, grams.Drafted > 0}, method)
		require.Equal(t, model.Drafted, model.Accepted, "%q: a copy of the bigger model is always right", method)
		if want[1] {
			require.Less(t, grams.Accepted, grams.Drafted, method)
		}
	}
	require.NoError(t, e.Close())
}

// renamed is the same drafter under another name.
type renamed struct{ drafter.Drafter }

func (renamed) Name() string             { return "renamed" }
func (d renamed) Small() drafter.Drafter { return d.Drafter.(drafter.Layered).Small() }

package drafter

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/sample"
)

// path is the tokens from the root down to a node.
func path(t *Tree, node int32) (ids []int32) {
	for ; node >= 0; node = t.Parents[node] {
		ids = append(ids, t.IDs[node])
	}
	slices.Reverse(ids)
	return ids
}

// TestTreesAreWhatTheDraftThinks checks every node against the draft's logits behind its parent, computed from the start,
// in rounds that commit another branch than the best, and with a shortlist.
func TestTreesAreWhatTheDraftThinks(t *testing.T) {
	m, check := tiny(t, "llama3-rope", 64), tiny(t, "llama3-rope", 256)
	rapid.Check(t, func(rt *rapid.T) {
		branch, nodes := rapid.IntRange(1, 4).Draw(rt, "branch"), rapid.IntRange(1, 20).Draw(rt, "nodes")
		depth := rapid.IntRange(1, 8).Draw(rt, "depth")
		budget := Budget{Nodes: nodes, Depth: depth, Branch: branch, MinNode: rapid.Float64Range(0, 0.05).Draw(rt, "node"),
			MinReach: rapid.SliceOfN(rapid.Float64Range(0, 0.1), 0, 4).Draw(rt, "reach")}
		d, err := NewModel(ModelOptions{Model: m, Vocab: 512, KVTokens: 1024})
		require.NoError(rt, err)
		defer d.Close()
		a, b := draftRound(t, d, sequence(20, 1), sample.Greedy(), nodes), draftRound(t, d, sequence(40, 2), sample.Greedy(), nodes)
		rounds := []Round{a, b}
		for range 3 {
			for i := range rounds {
				r := &rounds[i]
				r.Tree.Reset()
				r.Budget = budget
			}
			require.NoError(rt, d.Propose(rounds))
			for i := range rounds {
				r := &rounds[i]
				require.NotZero(rt, r.Tree.Len())
				require.LessOrEqual(rt, r.Tree.Len(), nodes)
				children := map[int32][]int32{}
				for n := range int32(r.Tree.Len()) {
					require.LessOrEqual(rt, r.Tree.Depth(n), depth)
					require.Greater(rt, r.Tree.Belief[n], 0.0)
					children[r.Tree.Parents[n]] = append(children[r.Tree.Parents[n]], r.Tree.IDs[n])
				}
				for parent, ids := range children {
					require.LessOrEqual(rt, len(ids), branch)
					row := lastRow(t, check, append(slices.Clone(r.IDs), path(r.Tree, parent)...))
					for k, c := range new(sample.Ranker).Top(nil, row, len(ids)) {
						require.Equal(rt, c.Index, ids[k], "child %d of node %d", k, parent)
					}
				}
				last := rapid.Int32Range(-1, int32(r.Tree.Len())-1).Draw(rt, "accepted")
				next := append(slices.Clone(r.IDs), path(r.Tree, last)...)
				r.IDs = append(next, 5)
				r.Session.Committed(r.IDs[len(next):])
			}
		}
		for _, r := range rounds {
			r.Session.Close()
		}
		require.Equal(rt, d.cache.Blocks(), d.cache.FreeBlocks())
	})
}

// TestATreeStopsWhereStepsDoNotPay asks for more belief than the draft has.
func TestATreeStopsWhereStepsDoNotPay(t *testing.T) {
	m := tiny(t, "llama3-rope", 64)
	d, err := NewModel(ModelOptions{Model: m, Vocab: 512})
	require.NoError(t, err)
	defer d.Close()
	r := draftRound(t, d, sequence(20, 1), sample.Greedy(), 8)
	r.Budget.MinReach, r.Budget.Branch = []float64{0.9999}, 3
	rounds := []Round{r}
	require.NoError(t, d.Propose(rounds))
	require.Equal(t, 1, rounds[0].Steps)
	require.NotZero(t, r.Tree.Len(), "what was computed is kept")
	for _, parent := range r.Tree.Parents {
		require.EqualValues(t, -1, parent)
	}
}

// TestDraftingStopsWhereNoNumberOfStepsPays compares what a plan says with trying every number of further levels.
func TestDraftingStopsWhereNoNumberOfStepsPays(t *testing.T) {
	c := NewController(16, 0.2)
	for n := 1; n <= 17; n++ {
		c.Calibrate(n, wall(n))
	}
	for n := 1; n <= 16; n++ {
		c.Drafted(n, 0, 8e-3*float64(n))
	}
	s := NewStream()
	for range 200 {
		c.Judged(s, 10, 10, 9)
	}
	s.Room = 100
	c.Plan([]*Stream{s}, 0, 0)
	var b Budget
	c.Limits(s, &b)
	require.Len(t, b.MinReach, 16)
	a := c.arms[0].global.mean()
	for levels := 1; levels < 16; levels++ {
		least := 1.0
		for more := 1; levels+more <= 16; more++ {
			seconds := wall(1+levels+more) - wall(1+levels) + 8e-3*float64(more)
			gain := a * (1 - math.Pow(a, float64(more))) / (1 - a)
			least = min(least, c.rate*seconds/gain)
		}
		require.InDelta(t, min(least, maxReach), b.MinReach[levels-1], 1e-6, "after %d levels", levels)
	}
	require.Greater(t, b.MinReach[6], b.MinReach[5], "the next token is the ninth of the pass")
	require.False(t, b.stops(0, 0))
}

package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

// trimmer has passes that cost 1 and a tenth of it for every token more, and expects a token a second.
func trimmer() *Controller {
	c := NewController(16, 0.01)
	for n := 1; n <= 32; n++ {
		c.Calibrate(n, 0.9+0.1*float64(n))
	}
	c.rate = 2
	return c
}

func TestTrimKeepsTheLikelyNodes(t *testing.T) {
	c, s := trimmer(), NewStream()
	var tree Tree
	add := func(parent int32, belief float64) int32 {
		i := tree.Add(int32(tree.Len()), parent, nil)
		tree.Belief[i] = belief
		return i
	}
	sure := add(-1, 0.9)
	add(-1, 0.05) // a node costs 0.2 tokens
	next := add(sure, 0.8)
	add(sure, 0.1)
	add(next, 0.1)
	add(next, 0.9)
	c.Trim(s, &tree, 1)
	require.Equal(t, []int32{0, 2, 5}, tree.IDs)
	require.Equal(t, []int32{-1, 0, 1}, tree.Parents)
	require.Equal(t, []float64{0.9, 0.8, 0.9}, tree.Belief)
}

func TestTrimLeavesDrawnAndUnratedTreesAlone(t *testing.T) {
	c, s := trimmer(), NewStream()
	var drawn, unrated, guests Tree
	for range 4 {
		drawn.Belief[drawn.Add(1, -1, &sample.Dist{IDs: []int32{1}, P: []float64{1}})] = 0.01
		unrated.Add(1, -1, nil)
		guests.Belief[guests.AddGuest(1, -1)] = 0.01
	}
	for _, tree := range []*Tree{&drawn, &unrated, &guests} {
		c.Trim(s, tree, 1)
		require.Equal(t, 4, tree.Len())
	}
}

func TestBeliefsAreLearned(t *testing.T) {
	var b Beliefs
	require.Equal(t, 0.95, b.Estimate(0.95, false))
	var tree Tree
	tree.Belief[tree.Add(1, -1, nil)] = 0.95
	tree.Belief[tree.Add(2, 0, nil)] = 0.35
	for range 200 {
		b.learn(&tree, nil) // the first is never right, the second never judged
	}
	require.Less(t, b.Estimate(0.95, false), 0.1)
	require.Equal(t, 0.35, b.Estimate(0.35, false))
	for range 600 {
		b.learn(&tree, []int32{0, 1})
	}
	require.Greater(t, b.Estimate(0.95, false), 0.9)
	require.Greater(t, b.Estimate(0.35, false), 0.9)
}

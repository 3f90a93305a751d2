package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGramRingKeepsTheLatest(t *testing.T) {
	var g gramRing
	gram := func(i int) [lookaheadLevel]int32 { return [lookaheadLevel]int32{int32(i), int32(i), int32(i)} }
	order := func() (ids []int32) {
		for i := range min(g.n, lookaheadGrams) {
			ids = append(ids, g.latest(i)[0])
		}
		return ids
	}
	for i := range 5 {
		g.add(gram(i))
	}
	require.Equal(t, []int32{4, 3, 2, 1, 0}, order())
	g.add(gram(1))
	require.Equal(t, []int32{1, 4, 3, 2, 0}, order())
	for i := range 6 {
		g.add(gram(10 + i))
	}
	require.Equal(t, []int32{15, 14, 13, 12, 11, 10, 1, 4}, order())
	g.add(gram(4))
	require.Equal(t, []int32{4, 15, 14, 13, 12, 11, 10, 1}, order())
}

// TestLookaheadLearnsALoop plays a target that counts modulo 7: after a few passes the n-grams it has produced out of
// order say what comes next.
func TestLookaheadLearnsALoop(t *testing.T) {
	d, err := NewLookahead(512, 0)
	require.NoError(t, err)
	s, _ := d.NewSession()
	defer s.Close()
	ids := []int32{3, 1, 4}
	s.Committed(ids)
	next := func(id int32) int32 { return (id + 1) % 7 }
	accepted := 0
	for range 12 {
		tree := &Tree{}
		require.NoError(t, d.Propose([]Round{{Session: s, IDs: ids, Budget: Budget{Nodes: 16, Depth: 16}, Tree: tree}}))
		require.LessOrEqual(t, tree.Len(), 16)
		s.(Observer).Observed(tree, func(n int32) int32 {
			if n < 0 {
				return next(ids[len(ids)-1])
			}
			return next(tree.IDs[n])
		})
		grown := append([]int32(nil), ids...)
		for at := int32(-1); ; {
			id := next(grown[len(grown)-1])
			grown = append(grown, id)
			if at = childOf(tree, at, id); at < 0 {
				break
			}
			accepted++
		}
		s.Committed(grown[len(ids):])
		ids = grown
	}
	require.Greater(t, accepted, 18)
	_, err = NewLookahead(512, 17)
	require.ErrorContains(t, err, "17 columns")
}

func TestLookaheadSpendsSmallBudgetsOnGuesses(t *testing.T) {
	d, _ := NewLookahead(512, 0)
	for nodes := range 20 {
		s, _ := d.NewSession()
		s.Committed([]int32{1, 2})
		tree := &Tree{}
		require.NoError(t, d.Propose([]Round{{Session: s, IDs: []int32{1, 2}, Budget: Budget{Nodes: nodes, Depth: nodes}, Tree: tree}}))
		require.LessOrEqual(t, tree.Len(), nodes)
		for i := range tree.IDs {
			require.True(t, tree.Guest[i])
			require.LessOrEqual(t, tree.Depth(int32(i)), nodes)
		}
	}
}

package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

// TestTheDraftGoesOnFromItsOwnGuesses has rounds end at each of the tokens that the draft's cache holds already, as they do
// when guesses were dropped before they were verified.
func TestTheDraftGoesOnFromItsOwnGuesses(t *testing.T) {
	m, check := tiny(t, "llama3-rope", 64), tiny(t, "llama3-rope", 128)
	for came := range 6 {
		d, err := NewModel(ModelOptions{Model: m, Vocab: 512, KVTokens: 256})
		require.NoError(t, err)
		r := draftRound(t, d, sequence(20, 1), sample.Greedy(), 5)
		require.NoError(t, d.Propose([]Round{r}))
		right := continuation(t, check, r.IDs, 12)
		require.Equal(t, right[:5], r.Tree.IDs)
		r.IDs = append(append([]int32(nil), r.IDs...), right[:came]...)
		r.Tree.Reset()
		require.NoError(t, d.Propose([]Round{r}))
		require.Equal(t, right[came:came+5], r.Tree.IDs, "%d of the guesses came", came)
		r.Session.Close()
		require.NoError(t, d.Check(true))
		require.NoError(t, d.Close())
	}
}

// TestTrimKeepsTheOrderOfNodes has a later branch that is likelier than an earlier one.
func TestTrimKeepsTheOrderOfNodes(t *testing.T) {
	c, s := calibrated(func(n int) float64 { return 40e-3 * (1 + 0.01*float64(n)) }), NewStream()
	c.rate = 25
	var tree Tree
	for _, n := range []struct {
		id, parent int32
		belief     float64
	}{{10, -1, 0.3}, {11, -1, 0.6}, {12, 1, 0.9}, {13, 0, 0.9}, {14, 2, 0.9}} {
		tree.Add(n.id, n.parent, nil)
		tree.Belief[tree.Len()-1] = n.belief
	}
	c.Trim(s, &tree, 1)
	require.Equal(t, []int32{10, 11, 12, 13, 14}, tree.IDs)
	require.Equal(t, []int32{-1, -1, 1, 0, 2}, tree.Parents)
}

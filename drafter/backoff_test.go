package drafter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/internal/invariants"
)

// firsts are the guesses for the next token, the chain's own first.
func firsts(t *Tree) (ids []int32) {
	for i, parent := range t.Parents {
		if parent == -1 {
			ids = append(ids, t.IDs[i])
		}
	}
	return ids
}

func TestBackoffGuessesTheNextTokenOnly(t *testing.T) {
	d, err := NewSuffix(nil)
	require.NoError(t, err)
	wide := Budget{Nodes: 16, Depth: 16, Branch: manyBranches}

	// After 7 came 1, 2 and 3, the latest of which is followed; one token after 9 came 5 twice and 6 once; 7 is the commonest.
	ids := []int32{9, 20, 5, 9, 21, 5, 9, 22, 6, 7, 1, 7, 2, 7, 3, 9, 7}
	tree := proposal(t, d, ids, wide)
	require.Equal(t, []int32{3, 9, 7, 3}, tree.IDs[:4], "the chain comes first")
	require.Equal(t, []int32{3, 2, 1, 5, 7, 9}, firsts(tree), "then others after 7, the one after 9 and any token, and the commonest")
	require.Equal(t, 9, tree.Len(), "once each")
	require.Equal(t, []float64{0.12, 0.08, 0.1, 0.05, 0.04}, tree.Belief[4:])

	for _, b := range []Budget{{Nodes: 16, Depth: 16}, {Nodes: 16, Depth: 16, Branch: 1}} {
		require.Equal(t, tree.IDs[:4], proposal(t, d, ids, b).IDs, "only where it may branch")
	}
	require.Len(t, proposal(t, d, ids, Budget{Nodes: 6, Depth: 16, Branch: manyBranches}).IDs, 6)
	require.Len(t, proposal(t, d, ids, Budget{Nodes: 4, Depth: 16, Branch: manyBranches}).IDs, 4)
	require.Equal(t, []int32{3, 2, 1, 5, 7, 9}, proposal(t, d, ids, Budget{Nodes: 16, Depth: 1, Branch: manyBranches}).IDs)
	require.Equal(t, []int32{3, 2, 1}, firsts(proposal(t, d, ids, Budget{Nodes: 16, Depth: 16, Branch: 3})))
	require.Empty(t, proposal(t, d, ids, Budget{Nodes: 16, Branch: manyBranches}).IDs)
	require.Equal(t, []int32{6, 5}, proposal(t, d, []int32{5, 6}, wide).IDs, "nothing to copy yet: the commonest, the latest first")
	require.Empty(t, proposal(t, d, []int32{5}, wide).IDs)
}

// TestBackoffOfATokenThatRepeats has a text whose end is found in as many contexts as it has tokens.
func TestBackoffOfATokenThatRepeats(t *testing.T) {
	d, _ := NewSuffix(nil)
	s, _ := d.NewSession()
	defer s.Close()
	ids := make([]int32, 100_000)
	s.Committed(ids)
	tree := &Tree{}
	rounds := []Round{{Session: s, IDs: ids, Budget: Budget{Nodes: 16, Depth: 16, Branch: manyBranches}, Tree: tree}}
	took, _ := invariants.Cost(func() {
		for range 2000 {
			tree.Reset()
			require.NoError(t, d.Propose(rounds))
		}
	})
	require.True(t, invariants.Within(took, 600*time.Millisecond), "%v; a second and more where all contexts are searched", took)
}

// TestBackoffOfWhatWasNotCommitted has tokens beyond those that the session was told, as drafters within others see them.
func TestBackoffOfWhatWasNotCommitted(t *testing.T) {
	d, _ := NewSuffix(nil)
	s, _ := d.NewSession()
	defer s.Close()
	ids := []int32{9, 5, 9, 6, 9, 5, 8}
	s.Committed(ids[:5])
	tree := &Tree{}
	require.NoError(t, d.Propose([]Round{{Session: s, IDs: ids, Budget: Budget{Nodes: 16, Depth: 16, Branch: manyBranches}, Tree: tree}}))
	require.Empty(t, tree.IDs, "nothing follows 8, and what follows 9 is not asked for")
}

// TestBackoffAgainstSearch compares what is kept token by token with a search of the whole text.
func TestBackoffAgainstSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 7), 2, 120).Draw(t, "ids")
		d, _ := NewSuffix(nil)
		s, _ := d.NewSession()
		defer s.Close()
		s.Committed(ids)
		b := &s.(*suffixSession).backoff

		latest, count := map[int32]int{}, map[int32]int{}
		var all []int32
		for i, id := range ids {
			if count[id]++; count[id] == 1 {
				all = append(all, id)
			}
			latest[id] = i
		}
		slices.SortFunc(all, func(x, y int32) int {
			return cmp.Or(cmp.Compare(count[y], count[x]), cmp.Compare(latest[y], latest[x]))
		})
		require.Equal(t, all[:min(len(all), nCommon)], b.common)

		seen, best, after := map[int32]int{}, int32(-1), map[int32]bool{}
		for i := 2; i < len(ids); i++ {
			if ids[i-2] == ids[len(ids)-2] {
				if seen[ids[i]]++; best < 0 || seen[ids[i]] >= seen[best] {
					best = ids[i]
				}
			}
		}
		if g := b.skips.contexts.find(skipContext(ids)); best >= 0 {
			require.Equal(t, best, g.best)
		} else {
			require.Nil(t, g)
		}
		for i := 1; i < len(ids); i++ {
			if ids[i-1] == ids[len(ids)-1] {
				after[ids[i]] = true
			}
		}
		tree := &Tree{}
		require.NoError(t, d.Propose([]Round{{Session: s, IDs: ids, Budget: Budget{Nodes: 64, Depth: 64, Branch: manyBranches}, Tree: tree}}))
		first := firsts(tree)
		slices.Sort(first)
		require.Equal(t, slices.Compact(slices.Clone(first)), first, "no token twice")
		others := 0
		for _, id := range first {
			if after[id] {
				others++
			}
		}
		require.GreaterOrEqual(t, others, min(len(after), 1+nOthers), "what followed the last token elsewhere is among them")
	})
}

// TestBackoffFindsWhatCopyingMisses has tokens that follow no pattern but are not all as common.
func TestBackoffFindsWhatCopyingMisses(t *testing.T) {
	d, _ := NewSuffix(nil)
	s, _ := d.NewSession()
	defer s.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	share := map[int]float64{} // of next tokens that were guessed, by Branch
	var ids []int32
	const n = 4000
	tree := &Tree{}
	for range n {
		id := int32(10 + rng.IntN(400)) // half of all
		if rng.IntN(2) == 0 {
			id = int32(rng.IntN(nCommon))
		}
		if len(ids) > 0 {
			for _, branch := range []int{1, manyBranches} {
				tree.Reset()
				require.NoError(t, d.Propose([]Round{{Session: s, IDs: ids, Budget: Budget{Nodes: 16, Depth: 16, Branch: branch}, Tree: tree}}))
				if slices.Contains(firsts(tree), id) {
					share[branch] += 1.0 / n
				}
			}
		}
		ids = append(ids, id)
		s.Committed(ids[len(ids)-1:])
	}
	require.Less(t, share[1], 0.15)
	require.Greater(t, share[manyBranches], 0.45)
}

// offered is a chain of one guess and three others for the same token.
func offered() *Tree {
	t := &Tree{}
	for i, p := range []float64{0.35, 0.12, 0.08, 0.05} {
		t.Belief[t.Add(int32(i), -1, nil)] = p
	}
	return t
}

// knownPasses makes a controller of one instant drafter for a machine whose passes were measured.
func knownPasses(pass func(int) float64, nParts int) *Controller {
	c := NewController(nMax, make([]float64, nParts)...)
	c.SetInstant(0)
	for n := 1; n <= nMax+1; n++ {
		c.Calibrate(n, pass(n))
	}
	return c
}

func flat(n int) float64 { return 40e-3 * max(1, 0.25*float64(n)) } // up to 4 tokens cost as much as one

func steep(n int) float64 { return 40e-3 * (0.75 + 0.25*float64(n)) }

func TestWhatAPassHasRoomForIsGuessedBesideTheChain(t *testing.T) {
	round := func(c *Controller, s *Stream) int {
		s.Room, s.Offers = 50, []*Tree{offered()}
		c.Plan([]*Stream{s}, 0, 0)
		return s.Guesses
	}
	require.Equal(t, 3, round(knownPasses(flat, 1), NewStream()), "the chain's guess and the two best of the others are free, the fifth token is not")
	require.Equal(t, 1, round(knownPasses(steep, 1), NewStream()), "the chain's guess alone is worth it")

	c, s := knownPasses(flat, 1), NewStream()
	s.Room, s.Offers = 2, []*Tree{offered()}
	c.Plan([]*Stream{s}, 0, 0)
	require.Equal(t, 2, s.Guesses, "no more than there is room for")

	c, s = knownPasses(flat, 2), NewStream()
	s.Room, s.Offers, s.Only = 50, []*Tree{offered(), {}}, 2
	c.Plan([]*Stream{s}, 0, 0)
	require.Zero(t, s.Guesses, "they are another drafter's than the one that the request wants")

	c, s = knownPasses(flat, 1), NewStream()
	for range 200 { // the chain's guess is never right, the last of the others always
		round(c, s)
		c.Followed(s, 0, offered(), []int32{3})
	}
	tree := offered()
	s.Guesses = 0
	require.Positive(t, round(c, s))
	c.Trim(s, tree, 1)
	require.Contains(t, tree.IDs, int32(3))

	c, s = knownPasses(dear, 1), NewStream()
	for range 200 { // none is ever right
		round(c, s)
		c.Followed(s, 0, offered(), []int32{9})
	}
	require.Zero(t, round(c, s))

	c = knownPasses(flat, 1)
	c.credit = 1e-9
	s = NewStream()
	s.judged = true
	s.Room, s.Offers = 50, []*Tree{offered()}
	c.Calibrate(2, 41e-3)
	c.Calibrate(3, 42e-3)
	c.Plan([]*Stream{s}, 0, 0)
	require.Zero(t, s.Guesses, "nothing without credit")
}

// TestGuessesBesideAChainDoNotKeepADraftFromItsProbes has a draft model whose guesses did not pay, next to an instant drafter that
// always has something to add.
func TestGuessesBesideAChainDoNotKeepADraftFromItsProbes(t *testing.T) {
	c, s := knownPasses(flat, 2), NewStream()
	c.parts[1].draft.Set(1, 1) // as long as 25 passes
	probes, widened := 0, 0
	for i := range 8 * maxInterval {
		s.Room, s.Lag, s.Offers = 50, 0, []*Tree{offered(), nil, nil}
		c.credit = 40
		c.Plan([]*Stream{s}, 0, 0)
		if s.Arm == 0 && s.Guesses > 0 {
			widened++
		}
		if c.Probing() {
			probes++
		}
		c.Followed(s, 0, s.Offers[0], []int32{int32(3 + i%4)}) // the last of the others is right one time in four
		c.Judged(s, s.Guesses, min(1, s.Guesses), 0)
		c.Passed(1+s.Guesses, 1, 1, flat(1+s.Guesses), 0, 0)
	}
	require.Greater(t, widened, 4*maxInterval)
	require.GreaterOrEqual(t, probes, 4)
}

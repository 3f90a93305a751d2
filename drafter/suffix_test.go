package drafter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAutomatonAgainstSearch compares lengths and places with a search of the whole text.
func TestAutomatonAgainstSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 80).Draw(t, "ids")
		a := newAutomaton()
		for i, id := range ids {
			length, end := a.extend(id)
			text := ids[:i+1]
			want, _ := longestEarlier(text, text)
			require.EqualValues(t, want, length, "%v", text)
			if length > 0 {
				require.Less(t, int(end), len(text))
				require.Equal(t, text[len(text)-int(length):], text[int(end-length):end])
			}
		}
		require.LessOrEqual(t, len(a.states), 2*len(ids)+1)
		require.LessOrEqual(t, len(a.edges), 3*len(ids)+1)
		var m suffixMatch
		query := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 40).Draw(t, "query")
		for i, id := range query {
			m = a.step(m, id)
			want, _ := longestEarlier(append(append([]int32(nil), ids...), -1), query[:i+1])
			require.EqualValues(t, want, m.length)
			if end := a.states[m.state].end; m.length > 0 {
				require.Equal(t, query[i+1-int(m.length):i+1], ids[end-m.length:end])
			}
		}
	})
}

// longestEarlier finds the longest suffix of query that ends in text before its last token.
func longestEarlier(text, query []int32) (length, end int) {
	for e := len(text) - 1; e > 0; e-- {
		n := 0
		for n < e && n < len(query) && text[e-1-n] == query[len(query)-1-n] {
			n++
		}
		if n > length {
			length, end = n, e
		}
	}
	return length, end
}

func TestSuffixReachFollowsTheMatch(t *testing.T) {
	d, err := NewSuffix(nil)
	require.NoError(t, err)
	deep := Budget{Nodes: 16, Depth: 16}
	ids := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 1, 2, 3}
	require.Equal(t, []int32{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 1}, proposal(t, d, ids, deep).IDs, "three tokens are followed for twelve")
	require.Equal(t, []int32{4, 5}, proposal(t, d, ids, Budget{Nodes: 2, Depth: 9}).IDs)
	require.Equal(t, []int32{4, 5, 6}, proposal(t, d, ids, Budget{Nodes: 9, Depth: 3}).IDs)
	require.Equal(t, []int32{2, 3, 4, 5}, proposal(t, d, ids[:15], deep).IDs)
	require.Empty(t, proposal(t, d, ids[:14], deep).IDs)
	require.Equal(t, []int32{9, 5, 9, 5}, proposal(t, d, []int32{5, 7, 5, 9, 5}, deep).IDs, "the latest occurrence counts")

	require.Equal(t, []int32{4, 4, 4, 4, 4, 4, 4, 4}, proposal(t, d, []int32{1, 4, 4, 4}, deep).IDs, "a loop goes on")
	require.Equal(t, []int32{2, 3, 2, 3, 2, 3}, proposal(t, d, []int32{2, 3, 2, 3, 2, 3}, Budget{Nodes: 6, Depth: 6}).IDs)

	require.Equal(t, []int32{8, 6, 3, 8}, proposal(t, d, []int32{7, 3, 4, 1, 2, 3, 9, 1, 2, 3, 8, 6, 3}, deep).IDs, "shorter suffixes learn of later places too")
	b := proposal(t, d, ids, deep).Belief
	require.Less(t, b[0], b[1], "a guess that is right makes the match longer")
	require.Less(t, b[1], b[5])

	s, _ := d.NewSession()
	s.Committed(ids[:15])
	tree := &Tree{}
	require.NoError(t, d.Propose([]Round{{Session: s, IDs: ids, Budget: deep, Tree: tree}}))
	require.Equal(t, []int32{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 1}, tree.IDs, "tokens beyond the committed ones count as well")
	s.Close()
}

// TestSuffixGoesOnWhereItWas copies a text with changes: short matches are followed near the place of the last copy, for as
// long as that is not too far back.
func TestSuffixGoesOnWhereItWas(t *testing.T) {
	d, err := NewSuffix(nil)
	require.NoError(t, err)
	one := Budget{Nodes: 1, Depth: 1}
	source := []int32{50, 51, 52, 53, 9, 54, 55, 56, 57, 58, 59, 60, 9, 70, 71, 72, 73, 9, 80}
	after := func(copied ...int32) []int32 {
		return proposal(t, d, append(append([]int32{}, source...), copied...), one).IDs
	}
	require.Equal(t, []int32{54}, after(50, 51, 52, 53, 9), "a copy goes on")
	require.Equal(t, []int32{54}, after(50, 51, 52, 53, 99, 9), "a token was put in before the 9, of which there are three")
	require.Equal(t, []int32{70}, after(55, 56, 57, 58, 99, 9), "one was put in the place of two")
	require.Equal(t, []int32{80}, after(70, 71, 72, 73, 99, 9, 81, 9), "the 9 that was due is nearer than the one just written")
	require.Equal(t, []int32{80}, after(52, 53, 99, 9), "two tokens are no copy: the latest counts")
	long := []int32{55, 56, 57, 58}
	for range giveUp + 1 {
		long = append(long, int32(200+len(long)))
	}
	require.Equal(t, []int32{80}, after(append(long, 9)...), "the copy is long over")
	require.Equal(t, []int32{70}, after(append(long[:4+giveUp-1], 9)...), "and not quite")
	far := append([]int32{50, 51, 52, 53, 9, 54}, make([]int32, lookAhead+lookBack)...)
	for i := 6; i < len(far); i++ {
		far[i] = int32(300 + i)
	}
	far = append(far, 9, 55, 50, 51, 52, 53, 98)
	require.Equal(t, []int32{54}, proposal(t, d, append(far, 9), one).IDs, "the place is nearer than the latest occurrence")
}

func TestSuffixCorpus(t *testing.T) {
	d, err := NewSuffix([]int32{50, 51, 52, 53, 54, 55, 1, 2, 9, 9})
	require.NoError(t, err)
	require.Positive(t, d.Bytes())
	require.Equal(t, []int32{53, 54, 55, 1, 2, 9}, proposal(t, d, []int32{7, 50, 51, 52}, Budget{Nodes: 6, Depth: 9}).IDs)
	require.Equal(t, []int32{3, 1, 2, 3}, proposal(t, d, []int32{1, 2, 3, 1, 2}, Budget{Nodes: 4, Depth: 4}).IDs, "the request's own text wins a tie")
	_, err = NewSuffix(make([]int32, maxCorpus+1))
	require.ErrorContains(t, err, "corpus of 67108865 tokens")
}

func TestSuffixAllocatesLittle(t *testing.T) {
	d, _ := NewSuffix(nil)
	s, _ := d.NewSession()
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, 20000)
	for i := range ids {
		ids[i] = int32(rng.IntN(50))
	}
	at := 10000
	s.Committed(ids[:at])
	tree := &Tree{}
	rounds := []Round{{Session: s, Tree: tree, Budget: Budget{Nodes: 8, Depth: 8}}}
	require.Less(t, testing.AllocsPerRun(3000, func() {
		tree.Reset()
		s.Committed(ids[at : at+3])
		at += 3
		rounds[0].IDs = ids[:at]
		if err := d.Propose(rounds); err != nil {
			panic(err)
		}
	}), 0.01, "only growth may allocate")
}

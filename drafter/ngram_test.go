package drafter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// proposal drafts once for a sequence that a new session was told token by token.
func proposal(t testing.TB, d Drafter, ids []int32, b Budget) *Tree {
	t.Helper()
	s, err := d.NewSession()
	require.NoError(t, err)
	defer s.Close()
	s.Committed(ids)
	tree := &Tree{}
	require.NoError(t, d.Propose([]Round{{Session: s, IDs: ids, Budget: b, Tree: tree}}))
	return tree
}

func TestNGramBacksOffAndChains(t *testing.T) {
	const the, cat, sat, on, mat, dot, dog = 1, 2, 3, 4, 5, 6, 7
	ids := []int32{the, cat, sat, on, the, mat, dot, dog, the, cat, sat}
	d, err := NewNGram(0)
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		ids  []int32
		b    Budget
		want []int32
	}{
		{"4-gram, chained", ids, Budget{Nodes: 16, Depth: 16}, []int32{on, the, mat, dot}},
		{"budget", ids, Budget{Nodes: 2, Depth: 16}, []int32{on, the}},
		{"backs off to a 2-gram", []int32{1, 2, 3, 9, 2}, Budget{Nodes: 1, Depth: 1}, []int32{3}},
		{"most frequent", []int32{5, 1, 5, 1, 5, 2, 9, 5}, Budget{Nodes: 1, Depth: 1}, []int32{1}},
		{"longest context wins over counts", []int32{1, 2, 3, 8, 7, 3, 9, 7, 3, 9, 1, 2, 3}, Budget{Nodes: 1, Depth: 1}, []int32{8}},
		{"nothing known", []int32{1, 2, 3}, Budget{Nodes: 4, Depth: 4}, nil},
		{"one token", []int32{1}, Budget{Nodes: 4, Depth: 4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := proposal(t, d, c.ids, c.b)
			require.Equal(t, c.want, append([]int32(nil), tree.IDs...))
			for i, p := range tree.Parents {
				require.EqualValues(t, i-1, p)
			}
		})
	}
	_, err = NewNGram(-1)
	require.ErrorContains(t, err, "-1 guesses")
}

// TestPoolsArePerRequest tells one request's session a text that repeats itself, with a secret in it, and asks that of another one,
// whose text ends where the secret would follow: nothing is guessed there, and the first goes on guessing it.
func TestPoolsArePerRequest(t *testing.T) {
	secret := []int32{1, 2, 3, 4, 90, 91, 92, 93}
	var known []int32
	for range 6 {
		known = append(known, secret...)
	}
	known = append(known, secret[:4]...)
	ngram, err := NewNGram(0)
	require.NoError(t, err)
	suffix, err := NewSuffix(nil)
	require.NoError(t, err)
	for _, d := range []Drafter{ngram, suffix} {
		owner, err := d.NewSession()
		require.NoError(t, err)
		owner.Committed(known)
		other, err := d.NewSession()
		require.NoError(t, err)
		other.Committed(secret[:4])
		rounds := []Round{
			{Session: other, IDs: secret[:4], Budget: Budget{Nodes: 4, Depth: 4}, Tree: &Tree{}}, {Session: owner, IDs: known, Budget: Budget{Nodes: 4, Depth: 4}, Tree: &Tree{}},
		}
		require.NoError(t, d.Propose(rounds))
		require.Empty(t, rounds[0].Tree.IDs, d.Name())
		require.Equal(t, secret[4:], rounds[1].Tree.IDs, d.Name())
	}
}

// TestNGramAgainstCounting compares the tables with counts made from the whole sequence.
func TestNGramAgainstCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 5), 1, 700).Draw(t, "ids")
		d, _ := NewNGram(1)
		s, _ := d.NewSession()
		for len(ids) > 0 && s.(*ngramSession).nHistory < len(ids) {
			at := s.(*ngramSession).nHistory
			s.Committed(ids[at:min(len(ids), at+7)])
		}
		tree := &Tree{}
		s.(*ngramSession).predict(tree, ids, 1)
		for n := 3; n >= 1; n-- {
			counts := countAfter(ids, n)
			if len(counts) == 0 {
				continue
			}
			require.Equal(t, 1, tree.Len())
			for _, c := range counts {
				require.LessOrEqual(t, c, counts[tree.IDs[0]])
			}
			return
		}
		require.Zero(t, tree.Len())
	})
}

// countAfter counts what followed earlier occurrences of the last n tokens.
func countAfter(ids []int32, n int) map[int32]int {
	counts := map[int32]int{}
	for at := n; n <= len(ids) && at < len(ids); at++ {
		same := true
		for i := range n {
			same = same && ids[at-n+i] == ids[len(ids)-n+i]
		}
		if same {
			counts[ids[at]]++
		}
	}
	return counts
}

func TestNGramSteadyStateAllocatesNothing(t *testing.T) {
	d, _ := NewNGram(0)
	s, _ := d.NewSession()
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, 3000)
	for i := range ids {
		ids[i] = int32(rng.IntN(5))
	}
	s.Committed(ids)
	tree := &Tree{}
	rounds := []Round{{Session: s, IDs: ids, Budget: Budget{Nodes: 4, Depth: 4}, Tree: tree}}
	at := 0
	require.Zero(t, testing.AllocsPerRun(500, func() {
		tree.Reset()
		s.Committed(ids[at : at+2])
		at += 2
		if err := d.Propose(rounds); err != nil || tree.Len() == 0 {
			panic("no guess")
		}
	}))
}

func TestNGramTakesTheLatestOnATie(t *testing.T) {
	d, err := NewNGram(0)
	require.NoError(t, err)
	one := Budget{Nodes: 1, Depth: 1}
	require.Equal(t, []int32{3}, proposal(t, d, []int32{1, 2, 1, 3, 1}, one).IDs)
	require.Equal(t, []int32{2}, proposal(t, d, []int32{1, 2, 1, 2, 1, 3, 1}, one).IDs, "more often wins")
}

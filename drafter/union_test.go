package drafter

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

// fixed proposes the same tree always.
type fixed struct {
	noSession
	tree     Tree
	err      error
	inner    Inner
	observed *[]int32
	closed   bool
}

func (d *fixed) Name() string                 { return "fixed" }
func (d *fixed) Bytes() int64                 { return 3 }
func (d *fixed) Close() error                 { d.closed = true; return nil }
func (d *fixed) NewSession() (Session, error) { return d.session(), nil }
func (d *fixed) session() Session {
	if d.observed == nil {
		return noSession{}
	}
	return fixedObserver{d: d}
}

func (d *fixed) Propose(rounds []Round) error {
	for k, r := range rounds {
		rounds[k].Inner = d.inner
		for i := range d.tree.IDs {
			n := r.Tree.Add(d.tree.IDs[i], d.tree.Parents[i], d.tree.Q[i])
			r.Tree.Guest[n] = d.tree.Guest[i]
		}
	}
	return d.err
}

type fixedObserver struct {
	noSession
	d *fixed
}

func (o fixedObserver) Observed(t *Tree, argmax func(int32) int32) {
	for i := int32(-1); int(i) < t.Len(); i++ {
		*o.d.observed = append(*o.d.observed, argmax(i))
	}
}

func chainOf(ids ...int32) (t Tree) {
	for i, id := range ids {
		t.Add(id, int32(i-1), nil)
	}
	return t
}

func TestUnionMergesPaths(t *testing.T) {
	var seen []int32
	a := &fixed{tree: chainOf(1, 2, 3, 4)}
	b := &fixed{tree: chainOf(1, 2, 9, 8), observed: &seen}
	c := &fixed{tree: chainOf(7, 7)}
	c.tree.AddGuest(1, -1)
	failing := &fixed{tree: chainOf(55), err: errors.New("no")}
	d := NewUnion(a, b, failing, c)
	require.Equal(t, "fixed+fixed+fixed+fixed", d.Name())
	require.EqualValues(t, 12, d.Bytes())
	s, err := d.NewSession()
	require.NoError(t, err)
	tree := &Tree{}
	rounds := []Round{{Session: s, IDs: []int32{1}, Budget: Budget{Nodes: 16, Depth: 16}, Tree: tree}}
	require.NoError(t, d.Propose(rounds))
	require.Equal(t, []int32{1, 7, 2, 7, 3, 9, 1, 4, 8}, tree.IDs)
	require.Equal(t, []int32{-1, -1, 0, 1, 2, 2, -1, 4, 5}, tree.Parents)
	require.Equal(t, []bool{false, false, false, false, false, false, true, false, false}, tree.Guest)
	s.(Observer).Observed(tree, func(n int32) int32 { return 100 + n })
	require.Equal(t, []int32{99, 100, 102, 105, 108}, seen)

	for nodes := range 10 { // smaller budgets give the beginning of the same tree
		small := &Tree{}
		rounds[0].Tree, rounds[0].Budget.Nodes = small, nodes
		require.NoError(t, d.Propose(rounds))
		require.Equal(t, tree.IDs[:min(nodes, 9)], append([]int32{}, small.IDs...))
	}
	rounds[0].Tree, rounds[0].Budget = &Tree{}, Budget{Nodes: 16, Depth: 1}
	require.NoError(t, d.Propose(rounds))
	require.Equal(t, []int32{1, 7, 1}, rounds[0].Tree.IDs)
	rounds[0].Tree = &Tree{}
	require.NoError(t, d.Close())
	require.True(t, a.closed && b.closed && c.closed)

	all := NewUnion(failing)
	s, _ = all.NewSession()
	rounds[0].Session = s
	require.ErrorIs(t, all.Propose(rounds), failing.err)
	require.Zero(t, rounds[0].Tree.Len())
}

func TestUnionRenormalisesSiblings(t *testing.T) {
	q := &sample.Dist{IDs: []int32{1, 2, 3}, P: []float64{0.5, 0.25, 0.25}}
	a, b := &fixed{tree: chainOf(1)}, &fixed{}
	b.tree.Add(2, -1, q)
	d := NewUnion(a, b)
	s, _ := d.NewSession()
	tree := &Tree{}
	require.NoError(t, d.Propose([]Round{{Session: s, Budget: Budget{Nodes: 4, Depth: 4}, Tree: tree}}))
	require.Equal(t, []int32{1, 2}, tree.IDs)
	require.Nil(t, tree.Q[0])
	require.Equal(t, []float64{0, 0.5, 0.5}, tree.Q[1].P)
	require.Equal(t, []float64{0.5, 0.25, 0.25}, q.P, "the part's own distribution is not touched")
}

func TestRegistry(t *testing.T) {
	m := tiny(t, "llama3-rope", 64)
	require.Subset(t, Names(), []string{"adversarial", "crossvocab", "draft", "hierarchical", "layerskip", "lookahead", "ngram", "random", "suffix"})
	for name, want := range map[string]string{
		"nonsense":       `"nonsense" is unknown, want one of adversarial, crossvocab`,
		"ngram+":         `"" is unknown`,
		"draft":          "no draft model given",
		"suffix+draft":   "no draft model given",
		"hierarchical":   "no bigger draft model given",
		"crossvocab":     "no translation",
		"ngram+nonsense": `"nonsense" is unknown`,
	} {
		_, err := New(name, Config{Target: m})
		require.ErrorContains(t, err, want)
	}
	_, err := New("ngram", Config{})
	require.ErrorContains(t, err, "no target model")
	d, err := New("ngram+suffix+lookahead", Config{Target: m})
	require.NoError(t, err)
	require.Equal(t, "ngram+suffix+lookahead", d.Name())
	require.NoError(t, d.Close())
}

// TestAUnionAsksWhomTheRoundWants previews the instant part and then asks one part, the other, and both.
func TestAUnionAsksWhomTheRoundWants(t *testing.T) {
	suffix, err := NewSuffix(nil)
	require.NoError(t, err)
	slow := &fixed{tree: chainOf(77, 78), inner: Inner{2, 3}}
	d := NewUnion(suffix, slow)
	s, err := d.NewSession()
	require.NoError(t, err)
	ids := []int32{1, 2, 3, 4, 5, 1, 2}
	s.Committed(ids)
	for arm, want := range [][]int32{{3, 77, 4, 78}, {3, 4, 5, 1}, {77, 78}} {
		for _, preview := range []bool{true, false} {
			r := Round{Session: s, IDs: ids, Budget: Budget{Nodes: 4, Depth: 4}, Tree: &Tree{}}
			if preview {
				d.Preview([]Round{r})
				offers := d.Offers(nil, s)
				require.Equal(t, []int32{3, 4, 5, 1}, offers[0].IDs)
				require.Nil(t, offers[1])
				require.Zero(t, r.Tree.Len())
			}
			r.Budget.Arm = arm
			require.NoError(t, d.Propose([]Round{r}))
			require.Equal(t, want, r.Tree.IDs, "arm %d", arm)
			costs := d.Costs()
			require.Equal(t, !preview && arm != 2, costs[0].Asked)
			require.Equal(t, arm != 1, costs[1].Asked)
			require.Zero(t, d.Inner(s, 0))
			if arm == 1 {
				require.Zero(t, d.Inner(s, 1), "of this round")
			} else {
				require.Equal(t, Inner{2, 2}, d.Inner(s, 1), "no more taken than there were")
				require.Equal(t, 2, costs[1].Steps, "levels, where no model takes steps")
			}
		}
	}
	s.Close()
}

// ticking is a drafter that takes a while on the clock of its test.
type ticking struct {
	fixed
	at   *time.Time
	took time.Duration
}

func (d *ticking) Propose(rounds []Round) error {
	*d.at = d.at.Add(d.took)
	return d.fixed.Propose(rounds)
}

// TestUnionMeasuresByItsClock gives a union a clock that only its parts move.
func TestUnionMeasuresByItsClock(t *testing.T) {
	at := time.Unix(100, 0)
	u := NewUnion(&ticking{at: &at, took: 5 * time.Millisecond}, &ticking{at: &at, took: 2 * time.Second})
	u.Clock(func() time.Time { return at })
	s, err := u.NewSession()
	require.NoError(t, err)
	require.NoError(t, u.Propose([]Round{{Session: s, IDs: []int32{1}, Budget: Budget{Nodes: 4, Depth: 4}, Tree: &Tree{}}}))
	require.Equal(t, []float64{0.005, 2}, []float64{u.Costs()[0].Seconds, u.Costs()[1].Seconds})
}

package drafter

import (
	"cmp"
	"slices"
)

// Beliefs learn how often guesses are accepted of which a drafter was so and so sure. Guesses that were drawn by chance
// count apart: their drafter says how sure it was of its best one.
type Beliefs struct {
	judged, accepted [2][beliefBins]float64
}

const beliefBins = 10

// chance is the index of guesses chosen without and with it.
func chance(drawn bool) int {
	if drawn {
		return 1
	}
	return 0
}

// beliefBin is the bin of a belief, whatever number that is.
func beliefBin(p float64) int {
	if !(p > 0) {
		return 0
	}
	return int(min(p*beliefBins, beliefBins-1))
}

// Estimate is the probability that a guess is accepted of which the drafter believes p.
func (b *Beliefs) Estimate(p float64, drawn bool) float64 {
	k, i := chance(drawn), beliefBin(p)
	return shrink(b.accepted[k][i], b.judged[k][i], p, levelWeight)
}

// follow takes in what an instant drafter proposed, of which so many levels of its chain were compared with what came and so many
// were right; first is the token that came next, with which its other guesses for that are compared.
func (b *Beliefs) follow(t *Tree, levels, accepted int, first int32) {
	for i := range min(levels, accepted+1) {
		b.count(t.Belief[i], i < accepted)
	}
	for i := t.Levels(); i < t.Len(); i++ {
		if t.Parents[i] == -1 {
			b.count(t.Belief[i], t.IDs[i] == first)
		}
	}
}

// count takes in a guess that was chosen without chance.
func (b *Beliefs) count(p float64, accepted bool) {
	if p <= 0 {
		return
	}
	b.judged[0][beliefBin(p)]++
	if accepted {
		b.accepted[0][beliefBin(p)]++
	}
}

// learn takes in a tree of which the nodes of path were accepted: every child of the path's nodes was judged.
func (b *Beliefs) learn(t *Tree, path []int32) {
	for k := range b.judged {
		for i := range b.judged[k] {
			b.judged[k][i] *= globalDecay
			b.accepted[k][i] *= globalDecay
		}
	}
	for i, p := range t.Belief {
		if p <= 0 || t.Guest[i] || t.Parents[i] >= 0 && !slices.Contains(path, t.Parents[i]) {
			continue
		}
		k := chance(t.Q[i] != nil)
		b.judged[k][beliefBin(p)]++
		if slices.Contains(path, int32(i)) {
			b.accepted[k][beliefBin(p)]++
		}
	}
}

// Trim keeps the nodes of a tree that are worth their share of the pass, now that the drafter has said how sure it is of
// each: it adds the node that is most likely to be accepted, one after the other, and keeps those up to where tokens gained
// less tokens lost in the time are most. width is the tokens of the pass without the tree. Trees with drawn nodes are left
// alone: choosing among these by their tokens would bias the answer.
func (c *Controller) Trim(s *Stream, t *Tree, width int) {
	if t.Len() == 0 || c.probing || t.Drawn() || slices.Contains(t.Guest, true) || !slices.ContainsFunc(t.Belief, func(p float64) bool { return p > 0 }) {
		return
	}
	beliefs := &c.arms[s.Arm].beliefs
	c.reach, c.order = c.reach[:0], c.order[:0]
	for i, p := range t.Belief {
		if p > 0 {
			p = beliefs.Estimate(p, false)
		} else {
			p = c.acceptance(s, s.Arm, t.Depth(int32(i))-1)
		}
		if parent := t.Parents[i]; parent >= 0 {
			p *= c.reach[parent]
		}
		c.reach, c.order = append(c.reach, p), append(c.order, int32(i))
	}
	slices.SortStableFunc(c.order, func(a, b int32) int { // parents come before their children, which are no likelier
		switch {
		case c.reach[a] > c.reach[b]:
			return -1
		case c.reach[a] < c.reach[b]:
			return 1
		}
		return 0
	})
	keep, _ := c.worthwhile(len(c.order), width, c.rate, func(n int) float64 { return c.reach[c.order[n]] })
	slices.Sort(c.order[:keep])
	t.keep(c.order[:keep])
}

// worthwhile is how many of some guesses, the likeliest first, are worth their share of a pass that has width tokens without them,
// where a second is worth rate tokens, and the tokens that they gain less those lost in the time.
func (c *Controller) worthwhile(guesses, width int, rate float64, reach func(n int) float64) (most int, net float64) {
	gain := 0.0
	for n := range guesses {
		gain += reach(n)
		if g := gain - float64(rate*(c.pass.At(width+n+1)-c.pass.At(width))); g > net {
			most, net = n+1, g
		}
	}
	return most, net
}

// widen gives a stream the guesses for its next token that its drafter offers beside a chain, as far as these are worth it beside
// the levels that are planned; worth is the tokens that a second is worth. It reports whether there are any.
func (c *Controller) widen(s *Stream, base int, worth float64) bool {
	k := s.Arm
	if s.Guesses == 0 {
		k = slices.IndexFunc(s.Offers, func(t *Tree) bool { return t != nil && t.Len() > 0 })
	}
	if k < 0 || k >= len(s.Offers) || s.Offers[k] == nil || !s.allows(k) {
		return false
	}
	t := s.Offers[k]
	c.reach = c.reach[:0]
	for i := t.Levels(); i < t.Len(); i++ {
		if t.Parents[i] == -1 {
			c.reach = append(c.reach, c.arms[k].beliefs.Estimate(t.Belief[i], false))
		}
	}
	slices.SortFunc(c.reach, func(a, b float64) int { return cmp.Compare(b, a) })
	width := base + s.Guesses
	n, net := c.worthwhile(min(len(c.reach), min(c.nMax, s.Room)-s.Guesses), width, worth, func(n int) float64 { return c.reach[n] })
	if n == 0 || net < margin-1 || c.pass.At(width+n)-c.pass.At(base) > c.credit {
		return false
	}
	s.Arm, s.Guesses, s.Depth, c.rate = k, s.Guesses+n, max(s.Depth, 1), worth
	return true
}

// keep drops all nodes but those listed in ascending order, with whom their parents are.
func (t *Tree) keep(nodes []int32) {
	for to, from := range nodes {
		parent := t.Parents[from]
		if parent >= 0 {
			at, _ := slices.BinarySearch(nodes, parent)
			parent = int32(at)
		}
		t.IDs[to], t.Parents[to], t.Q[to], t.Guest[to] = t.IDs[from], parent, t.Q[from], t.Guest[from]
		t.Belief[to], t.By[to] = t.Belief[from], t.By[from]
	}
	t.Cut(len(nodes))
}

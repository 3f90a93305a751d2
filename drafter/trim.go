package drafter

import "slices"

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

// follow takes in a chain whose first levels were compared with what came: so many of these were right.
func (b *Beliefs) follow(t *Tree, levels, accepted int) {
	for i := range min(levels, accepted+1) {
		if p := t.Belief[i]; p > 0 {
			b.judged[0][beliefBin(p)]++
			if i < accepted {
				b.accepted[0][beliefBin(p)]++
			}
		}
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
	best, keep, gain := 0.0, 0, 0.0
	for n, i := range c.order {
		gain += c.reach[i]
		if net := gain - float64(c.rate*(c.pass.At(width+n+1)-c.pass.At(width))); net > best {
			best, keep = net, n+1
		}
	}
	slices.Sort(c.order[:keep])
	t.keep(c.order[:keep])
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

package drafter

import (
	"slices"

	"quickdraft/sample"
)

// merge adds node n of every part, then node n+1. Whether a node gets in depends on its ancestors and on other branches
// but never on its own token, except that a token which a sibling carries already is not added again; the others' chance
// is then as if the drafter had drawn without that token, and so says the distribution they carry.
func (s *unionSession) merge(t *Tree, b Budget) {
	s.nDist = 0
	longest := 0
	for i := range s.parts {
		s.parts[i].at = s.parts[i].at[:0]
		if s.parts[i].asked {
			longest = max(longest, s.parts[i].tree.Len())
		}
	}
	for n := range longest {
		for i := range s.parts {
			if p := &s.parts[i]; p.asked && n < p.tree.Len() {
				at := s.place(t, b, &p.tree, p.at, n)
				if p.at = append(p.at, at); at >= 0 {
					t.By[at] |= 1 << i
				}
			}
		}
	}
}

// place puts node n of a part into the merged tree and returns where it is, -1 when it does not fit.
func (s *unionSession) place(t *Tree, b Budget, from *Tree, at []int32, n int) int32 {
	parent := from.Parents[n]
	if parent < -1 || int(parent) >= n {
		return -1
	}
	if parent >= 0 {
		if parent = at[parent]; parent < 0 {
			return -1
		}
	}
	id, q, guest := from.IDs[n], from.Q[n], from.Guest[n]
	siblings := false
	for i := parent + 1; int(i) < t.Len(); i++ {
		if t.Parents[i] != parent || t.Guest[i] != guest {
			continue
		}
		if t.IDs[i] == id {
			return i
		}
		siblings = true
	}
	if t.Len() >= b.Nodes || t.Depth(parent) >= b.Depth {
		return -1
	}
	if guest {
		return t.AddGuest(id, parent)
	}
	if q != nil && siblings {
		q = s.without(q, t, parent)
	}
	i := t.Add(id, parent, q)
	t.Belief[i] = from.Belief[n]
	return i
}

// without is q given that none of the tokens below parent was drawn.
func (s *unionSession) without(q *sample.Dist, t *Tree, parent int32) *sample.Dist {
	if s.nDist == len(s.dists) {
		s.dists = append(s.dists, &sample.Dist{})
	}
	d := s.dists[s.nDist]
	s.nDist++
	d.IDs, d.P = append(d.IDs[:0], q.IDs...), append(d.P[:0], q.P...)
	for i := parent + 1; int(i) < t.Len(); i++ {
		if t.Parents[i] == parent && !t.Guest[i] {
			if k, ok := slices.BinarySearch(d.IDs, t.IDs[i]); ok {
				d.P[k] = 0
			}
		}
	}
	sum := 0.0
	for _, p := range d.P {
		sum += p
	}
	for i := range d.P {
		d.P[i] /= sum
	}
	return d
}

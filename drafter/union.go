package drafter

import (
	"slices"
	"strings"

	"quickdraft/sample"
)

// Union merges the proposals of several drafters into one tree. Guesses of the same path become one node, and when the
// budget does not hold all, the drafters take turns node by node, the first one first.
type Union struct {
	drafters []Drafter
	rounds   []Round // of one drafter
}

// NewUnion makes the drafter; Close closes the parts.
func NewUnion(drafters ...Drafter) *Union { return &Union{drafters: drafters} }

// Name joins the names of the parts with +.
func (d *Union) Name() string {
	var names []string
	for _, part := range d.drafters {
		names = append(names, part.Name())
	}
	return strings.Join(names, "+")
}

// Bytes adds up those of the parts, which all draft in every round.
func (d *Union) Bytes() (n int64) {
	for _, part := range d.drafters {
		n += part.Bytes()
	}
	return n
}

// Counts adds up those of the parts.
func (d *Union) Counts() (sum Counts) {
	for _, part := range d.drafters {
		if c, ok := part.(Counter); ok {
			n := c.Counts()
			sum.ContextFull, sum.NoBlocks = sum.ContextFull+n.ContextFull, sum.NoBlocks+n.NoBlocks
			sum.Unknown, sum.NaN = sum.Unknown+n.Unknown, sum.NaN+n.NaN
		}
	}
	return sum
}

// Close closes every part and returns the first error.
func (d *Union) Close() error { return closeAll(d.drafters) }

// NewSession opens a session of each part; when one fails, those before it are closed.
func (d *Union) NewSession() (Session, error) {
	s := &unionSession{parts: make([]unionPart, len(d.drafters))}
	for i, part := range d.drafters {
		session, err := part.NewSession()
		if err != nil {
			for _, p := range s.parts[:i] {
				p.session.Close()
			}
			return nil, err
		}
		s.parts[i].session = session
	}
	return s, nil
}

// Propose asks every part for the whole budget and merges. A part that fails adds nothing; the error is the first one,
// and only when all fail.
func (d *Union) Propose(rounds []Round) error {
	var first error
	failed := 0
	for i, part := range d.drafters {
		d.rounds = d.rounds[:0]
		for _, r := range rounds {
			p := &r.Session.(*unionSession).parts[i]
			p.tree.Reset()
			r.Session, r.Tree = p.session, &p.tree
			d.rounds = append(d.rounds, r)
		}
		err := part.Propose(d.rounds)
		for k := range rounds {
			rounds[k].Steps += d.rounds[k].Steps
		}
		if err != nil {
			for _, r := range d.rounds {
				r.Tree.Reset()
			}
			if failed++; first == nil {
				first = err
			}
		}
	}
	for i := range rounds {
		rounds[i].Session.(*unionSession).merge(rounds[i].Tree, rounds[i].Budget)
	}
	if failed == len(d.drafters) {
		return first
	}
	return nil
}

type unionSession struct {
	parts []unionPart
	dists []*sample.Dist // reused from round to round
	nDist int
}

// unionPart is one drafter's share of a round.
type unionPart struct {
	session Session
	tree    Tree
	at      []int32 // (nodes) place in the merged tree, -1: left out
}

// Committed tells every part.
func (s *unionSession) Committed(ids []int32) {
	for i := range s.parts {
		s.parts[i].session.Committed(ids)
	}
}

// Close closes the sessions of all parts.
func (s *unionSession) Close() {
	for i := range s.parts {
		s.parts[i].session.Close()
	}
}

// Observed shows each part its own tree; -1 stands for what was not computed.
func (s *unionSession) Observed(t *Tree, argmax func(node int32) int32) {
	for i := range s.parts {
		p := &s.parts[i]
		o, ok := p.session.(Observer)
		if !ok {
			continue
		}
		o.Observed(&p.tree, func(node int32) int32 {
			if node < 0 {
				return argmax(-1)
			}
			if int(node) >= len(p.at) || p.at[node] < 0 || int(p.at[node]) >= t.Len() {
				return -1
			}
			return argmax(p.at[node])
		})
	}
}

// merge adds node n of every part, then node n+1. Whether a node gets in depends on its ancestors and on other branches
// but never on its own token, except that a token which a sibling carries already is not added again; the others' chance
// is then as if the drafter had drawn without that token, and so says the distribution they carry.
func (s *unionSession) merge(t *Tree, b Budget) {
	s.nDist = 0
	longest := 0
	for i := range s.parts {
		s.parts[i].at = s.parts[i].at[:0]
		longest = max(longest, s.parts[i].tree.Len())
	}
	for n := range longest {
		for i := range s.parts {
			if p := &s.parts[i]; n < p.tree.Len() {
				p.at = append(p.at, s.place(t, b, &p.tree, p.at, n))
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

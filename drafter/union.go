package drafter

import (
	"strings"
	"time"

	"quickdraft/sample"
)

// Union merges the proposals of several drafters into one tree. Guesses of the same path become one node, and when the
// budget does not hold all, the drafters take turns node by node, the first one first. Which of them are asked is for each
// round to say.
type Union struct {
	drafters []Drafter
	costs    []PartCost // of the last Propose
	rounds   []Round    // of one drafter
	of       []int      // (rounds of one drafter) index of the round
	now      func() time.Time
}

// PartCost is what one drafter of a union did in a call of Propose.
type PartCost struct {
	Asked   bool
	Steps   int     // passes of its model, or levels where it has none; 0: it proposed nothing
	Seconds float64 // that it took
	Read    int     // tokens that it read for all rounds
	Longest int     // and for one of them
}

// Count adds a round. What the drafter says it has read is believed within bounds.
func (c *PartCost) Count(r *Round) {
	r.Read = min(max(r.Read, 0), maxRead)
	c.Read, c.Longest = c.Read+r.Read, max(c.Longest, r.Read)
	c.Steps = max(c.Steps, r.DraftSteps())
}

// maxRead is what a round's reading counts for at most.
const maxRead = 1 << 20

// NewUnion makes the drafter; Close closes the parts.
func NewUnion(drafters ...Drafter) *Union {
	return &Union{drafters: drafters, costs: make([]PartCost, len(drafters)), now: time.Now}
}

// Clock has a clock say what the parts take, by default the machine's.
func (d *Union) Clock(now func() time.Time) { d.now = now }

// Parts returns the drafters.
func (d *Union) Parts() []Drafter { return d.drafters }

// Costs returns what each drafter did in the last Propose; it is valid until the next.
func (d *Union) Costs() []PartCost { return d.costs }

// Inner returns what one of the drafters said in a session's last round of the guesses of a smaller one within it.
func (d *Union) Inner(s Session, part int) Inner { return s.(*unionSession).parts[part].inner }

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
			sum.add(c.Counts())
		}
	}
	return sum
}

// Close closes every part and returns the first error.
func (d *Union) Close() error { return closeAll(d.drafters) }

// NewSession opens a session of each part; when one fails or panics, those before it are closed.
func (d *Union) NewSession() (Session, error) {
	s, complete := &unionSession{}, false
	defer func() {
		if !complete {
			s.Close()
		}
	}()
	for _, part := range d.drafters {
		session, err := newSession(part)
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, unionPart{session: session})
	}
	complete = true
	return s, nil
}

// Preview asks the instant drafters what they propose within the rounds' budgets, with several guesses for the next token unless
// these say how many; Offers returns it, and a Propose that follows does not ask them again.
func (d *Union) Preview(rounds []Round) {
	for i, p := range d.drafters {
		if _, ok := p.(Instant); !ok {
			continue
		}
		d.gather(rounds, i, false)
		for k := range d.rounds {
			if b := &d.rounds[k].Budget; b.Branch == 0 {
				b.Branch = manyBranches
			}
		}
		err := p.Propose(d.rounds)
		for k := range d.rounds {
			p := &rounds[d.of[k]].Session.(*unionSession).parts[i]
			if p.tree.Repair(rounds[d.of[k]].Budget.Nodes); err != nil {
				p.tree.Reset()
			}
			p.previewed = true
		}
	}
}

// Offers appends what the drafters of a session proposed in the last Preview: nil for those that are not instant.
func (d *Union) Offers(dst []*Tree, s Session) []*Tree {
	for i := range s.(*unionSession).parts {
		p := &s.(*unionSession).parts[i]
		if p.previewed {
			dst = append(dst, &p.tree)
		} else {
			dst = append(dst, nil)
		}
	}
	return dst
}

// gather makes the rounds of one part: those that ask it, where asked says so, and that it has not answered yet.
func (d *Union) gather(rounds []Round, i int, asked bool) {
	d.rounds, d.of = d.rounds[:0], d.of[:0]
	for k, r := range rounds {
		p := &r.Session.(*unionSession).parts[i]
		p.inner = Inner{}
		if asked && (p.previewed || r.Budget.Arm != 0 && r.Budget.Arm != i+1) {
			if p.asked = r.Budget.Arm == 0 || r.Budget.Arm == i+1; !p.asked {
				p.at = p.at[:0]
			}
			continue
		}
		p.tree.Reset()
		p.asked = true
		r.Session, r.Tree, r.Steps, r.Inner, r.Read, r.Behind, r.Part = p.session, &p.tree, 0, Inner{}, 0, 0, i
		d.rounds, d.of = append(d.rounds, r), append(d.of, k)
	}
}

// Propose asks the parts that the rounds want, each for the whole budget, and merges. A part that fails adds nothing; the
// error is the first one, and only when all that were asked fail.
func (d *Union) Propose(rounds []Round) error {
	var first error
	failed, asked := 0, 0
	for i, p := range d.drafters {
		d.costs[i] = PartCost{}
		d.gather(rounds, i, true)
		if len(d.rounds) == 0 {
			continue
		}
		asked++
		began := d.now()
		err := p.Propose(d.rounds)
		c := &d.costs[i]
		c.Asked, c.Seconds = true, d.now().Sub(began).Seconds()
		for k := range d.rounds {
			r, of := &d.rounds[k], &rounds[d.of[k]]
			r.Tree = &of.Session.(*unionSession).parts[i].tree // the part may have put anything there
			if r.Tree.Repair(of.Budget.Nodes); err != nil {
				r.Tree.Reset()
			}
			r.Steps = min(max(r.Steps, 0), maxSteps)
			of.Steps += r.Steps
			of.Session.(*unionSession).parts[i].inner = r.InnerCounts()
			c.Count(r)
			of.Read, of.Behind = max(of.Read, r.Read), max(of.Behind, r.Behind)
		}
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	merged := 0
	for i := range rounds {
		s := rounds[i].Session.(*unionSession)
		s.merge(rounds[i].Tree, rounds[i].Budget)
		merged += rounds[i].Tree.Len()
		for k := range s.parts {
			s.parts[k].previewed = false
		}
	}
	if failed == asked && merged == 0 {
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
	inner   Inner   // what it says of a smaller drafter within

	previewed bool // tree is the answer to this round already
	asked     bool // this round wants it
}

// Committed tells every part.
func (s *unionSession) Committed(ids []int32) {
	for i := range s.parts {
		s.parts[i].session.Committed(ids)
	}
}

// Close closes the sessions of all parts, also when one panics.
func (s *unionSession) Close() {
	for i := range s.parts {
		defer s.parts[i].session.Close()
	}
}

// Observed shows each part its own tree; -1 stands for what was not computed.
func (s *unionSession) Observed(t *Tree, argmax func(node int32) int32) {
	for i := range s.parts {
		p := &s.parts[i]
		o, ok := p.session.(Observer)
		if !ok || !p.asked {
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

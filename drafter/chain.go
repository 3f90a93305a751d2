package drafter

import (
	"quickdraft/sample"
)

// chain grows a round's tree by one guess after the other.
type chain struct {
	round  *Round
	hist   []int32        // the round's sequence and the guesses
	parent int32          // last guess
	dists  []*sample.Dist // (guesses) reused from round to round
	match  Matcher        // at the end of the guesses; nil: every token is allowed
	reach  float64        // probability that all guesses are right
}

func (c *chain) begin(r *Round) {
	c.round, c.parent, c.reach = r, -1, 1
	c.hist = append(c.hist[:0], r.IDs...)
	if c.match = nil; r.Matcher != nil {
		c.match = r.Matcher.Fork()
	}
}

// full reports whether the budget is used up or another guess is not worth a step.
func (c *chain) full() bool {
	b := &c.round.Budget
	return c.round.Tree.Len() >= min(b.Nodes, b.Depth) || b.stops(c.round.Tree.Len(), c.reach)
}

// dist returns memory for the distribution of the next guess.
func (c *chain) dist() *sample.Dist {
	n := c.round.Tree.Len()
	if n == len(c.dists) {
		c.dists = append(c.dists, &sample.Dist{})
	}
	return c.dists[n]
}

// guess chooses the next token from a row of logits in the target's numbering. It reports false where the drafter
// believes too little in its best one, which never depends on what would be drawn: that would bias sampling.
func (c *chain) guess(row []float32) (id int32, ok bool, err error) {
	r := c.round
	if c.match != nil {
		if err := r.Sampler.SetMask(c.match.Mask()); err != nil {
			return 0, false, err
		}
	}
	if r.Sampler.IsGreedy() {
		id, err = r.Sampler.Sample(row, c.hist)
		belief := 0.0
		if err == nil && (r.Budget.MinP > 0 || len(r.Budget.MinReach) > 0) {
			belief = r.Sampler.Probability(row, id)
		}
		if err != nil || belief < r.Budget.MinP {
			return 0, false, err
		}
		c.add(id, nil, belief)
		return id, true, nil
	}
	q := c.dist()
	if err = r.Sampler.Dist(q, row, c.hist); err != nil {
		return 0, false, err
	}
	best := 0.0
	for _, p := range q.P {
		best = max(best, p)
	}
	if best < r.Budget.MinP {
		return 0, false, nil
	}
	purpose := sample.PurposeDraft + sample.Purpose(r.Part)*sample.PurposeStride
	if r.Coupled {
		purpose = sample.PurposeSample
	}
	id = q.Draw(sample.Uniform(r.Seed, len(c.hist), purpose))
	c.add(id, q, best)
	return id, true, nil
}

func (c *chain) add(id int32, q *sample.Dist, belief float64) {
	c.parent = c.round.Tree.Add(id, c.parent, q)
	c.round.Tree.Belief[c.parent] = belief
	c.reach *= c.round.Budget.trust(belief, q != nil)
	c.hist = append(c.hist, id)
	if c.match != nil {
		c.match.Accept(id)
	}
}

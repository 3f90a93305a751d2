package drafter

import (
	"math"
	"slices"
)

// Limits fills in what a plan says about how a request's tree is to grow: where further steps stop to pay, from which
// probability on a node is worth its share of the pass, and what the drafter's beliefs are worth. It is valid until the next plan.
func (c *Controller) Limits(s *Stream, b *Budget) {
	a := &c.arms[s.Arm]
	b.Trust, b.MinReach, b.MinNode, b.Branch = &a.beliefs, nil, 0, 1
	if c.pass.At(2) == 0 || c.free(a) || c.probing {
		return
	}
	if measured := func(i int) bool { return !c.parts[i].instant && c.parts[i].draft.Known() }; slices.ContainsFunc(a.parts, measured) {
		for i := len(a.minReach); i < min(c.nMax, trackedDepth); i++ {
			a.minReach = append(a.minReach, min(c.leastReach(a, i+1), maxReach))
		}
		b.MinReach, b.MinNode, b.Branch = a.minReach, max(float64(c.rate*c.pass.slopeAt(4)), 0.01), branches
	}
}

// leastReach is the probability of guesses on so many levels being right from which on some number of further levels pays: each
// gives a token with the mean acceptance if those before it are right, and all of them have to earn the time of their steps and
// of their share of the pass at the rate of the plan.
func (c *Controller) leastReach(a *arm, levels int) float64 {
	accept := max(a.global.mean(), 0.2)
	least, gain, reach := math.Inf(1), 0.0, 1.0
	for next := levels + 1; next <= c.nMax; next++ {
		reach = deeper(reach, accept)
		gain += reach
		cost := c.pass.At(c.width+next) - c.pass.At(c.width+levels) + c.armSeconds(a, next) - c.armSeconds(a, levels)
		least = min(least, float64(c.rate*cost)/gain)
	}
	return least
}

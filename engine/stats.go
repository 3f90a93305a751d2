package engine

import (
	"time"

	"quickdraft/drafter"
	"quickdraft/tensor"
)

// passStats measures passes: where their time goes, and how many prompt tokens fit into the stall target.
type passStats struct {
	pace
	nPasses, nTokens          int
	schedule, forward, sample time.Duration
	each                      func(Pass)    // of WatchPasses
	watch                     *tensor.Watch // of the model, when there is each
}

// add records one pass.
func (s *passStats) add(p *plan, schedule, forward, sample time.Duration) {
	n := len(p.batch.Tokens)
	s.nPasses++
	s.nTokens += n
	s.schedule += schedule
	s.forward += forward
	s.sample += sample
	s.report(p, schedule, forward, sample)
	s.learn(n, schedule+forward+sample)
}

// longer returns counts with at least n entries; new ones are 0.
func longer(counts []int, n int) []int {
	for len(counts) < n {
		counts = append(counts, 0)
	}
	return counts
}

// makeRoom lets guesses of all depths be counted without allocating.
func (s *SpecStats) makeRoom(depth int) {
	s.PerDepth, s.Offered, s.Widths = make([]int, 0, depth), make([]int, 0, depth), make([]int, 0, depth)
}

// countInner counts the guesses that small drafters made within the parts for a round of r.
func (k *control) countInner(s *SpecStats, r *run, round *drafter.Round) {
	for i, part := range k.layered {
		inner := round.InnerCounts()
		if k.union != nil {
			inner = k.union.Inner(r.spec.session, part)
		}
		p := &s.Parts[len(k.names)+i]
		p.Drafted, p.Accepted = p.Drafted+inner.Drafted, p.Accepted+inner.Accepted
	}
}

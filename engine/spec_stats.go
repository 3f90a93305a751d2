package engine

import (
	"slices"

	"quickdraft/drafter"
)

// SpecStats count what speculation did.
type SpecStats struct {
	Rounds   int   // passes in which guesses were verified
	Drafted  int   // guesses verified
	Accepted int   // guesses accepted
	Failed   int   // rounds without a guess because the drafter reported an error or panicked, the last one of a request
	PerDepth []int // accepted guesses by depth, from 1
	Offered  []int // rounds with a guess at a depth, from 1
	Widths   []int // rounds by the guesses that were verified, from 1
	Asks     int   // times that a draft model was asked for guesses
	Steps    int   // passes of a draft model that this took
	Lossy    bool  // lenience below 1 was in force
	// Parts are the drafters, of a union all of them, and behind them the small ones inside others; nil before there is
	// a drafter. Searches are counted above alone.
	Parts []PartStats
}

// PartStats count what one drafter did.
type PartStats struct {
	Name     string // the method's; "hierarchical/ngram" for a small one, whose guesses the bigger verifies
	Drafted  int    // guesses of its own that were verified; one that two drafters had counts for both
	Accepted int    // guesses of these that were accepted
}

func (e *Engine) countAccepted(r *run, t *drafter.Tree, node int32) {
	depth := t.Depth(node)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range []*SpecStats{&r.stats.Spec, &e.specTotals} {
		s.Accepted++
		s.PerDepth = longer(s.PerDepth, depth)
		s.PerDepth[depth-1]++
		for i := range s.Parts {
			if e.control.guessed(t, node, i) {
				s.Parts[i].Accepted++
			}
		}
	}
}

func (e *Engine) countRound(r *run, t *drafter.Tree) {
	e.mu.Lock()
	defer e.mu.Unlock()
	levels := t.Levels()
	for _, s := range []*SpecStats{&r.stats.Spec, &e.specTotals} {
		s.Rounds++
		s.Drafted += t.Len()
		s.Lossy = e.opts.Spec.Lenience < 1
		s.Widths = longer(s.Widths, t.Len())
		s.Widths[t.Len()-1]++
		s.Offered = longer(s.Offered, levels)
		for d := range levels {
			s.Offered[d]++
		}
		for i := range s.Parts {
			for node := range int32(t.Len()) {
				if e.control.guessed(t, node, i) {
					s.Parts[i].Drafted++
				}
			}
		}
	}
}

// SpecTotals returns what speculation did over all requests since the engine was opened.
func (e *Engine) SpecTotals() SpecStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.specTotals.clone()
}

// clone returns a copy that later passes do not write to.
func (s SpecStats) clone() SpecStats {
	s.PerDepth, s.Offered, s.Widths, s.Parts = slices.Clone(s.PerDepth), slices.Clone(s.Offered), slices.Clone(s.Widths), slices.Clone(s.Parts)
	return s
}

package engine

import (
	"slices"

	"quickdraft/drafter"
	"quickdraft/quant"
)

// feedTokens is what a draft model reads of prompts at least between two passes: two whole tiles of the kernels.
const feedTokens = 32

// maxSpelling bounds the tokens that a draft of another vocabulary is believed to have for one of the target's.
const maxSpelling = 16

// reading is what a session's models know of a request's tokens. They read a long text in pieces, since other requests wait
// meanwhile; see drafter.Budget.Feed.
type reading struct {
	asked    int  // tokens when the models were last asked for guesses; fewer where they had no time to read all
	behind   int  // tokens that they were then yet to read
	on       bool // and these get fewer
	caughtUp bool // they have known all tokens once
	waits    bool // in this pass the request stands still until its models have read, see Engine.ration
}

// note takes in that of nIDs tokens all but so many are known to the models. It returns how many were read for that, and whether
// of a prompt that they had not read to its end before.
func (s *reading) note(nIDs, behind int) (tokens int, late bool) {
	before := s.asked
	behind = min(max(0, behind), maxSpelling*nIDs)
	s.asked = max(before, nIDs-behind)
	late = !s.caughtUp
	s.on = behind > 0 && (s.behind == 0 || behind <= s.behind-quant.MaxM/2) // ration grants more, and the request may go on by a token
	s.behind = behind
	s.caughtUp = s.caughtUp || !s.on
	return s.asked - before, late
}

// ration shares out what draft models may read before the pass: half of what the pass may take beside running answers, and
// not less than feedTokens. Requests for which nothing is left have no guesses in this pass. The controller's go on plainly
// meanwhile, as they do while their models read; those with forced guesses wait for their models, whose pace depends on the
// neighbours and must not decide from which token on an answer has guesses.
func (e *Engine) ration(decoding []*run) {
	left := -1
	e.readers = append(e.readers[:0], decoding...)
	slices.SortFunc(e.readers, (*run).compare) // turns would let those that come now go before one that has to read anew
	for _, r := range e.readers {
		s := &r.spec
		if s.read.waits = false; s.budget.Nodes < 1 {
			continue
		}
		lag, few := len(r.ids)-s.read.asked, 1+e.opts.Spec.NMax // what a round may have accepted is no text to read
		if s.budget.Feed = max(feedTokens, few); lag <= few || !e.control.c.Models(s.stream) {
			continue
		}
		if left < 0 {
			left = e.readRoom(s.stream)
		}
		if s.budget.Feed = left; left < min(lag, quant.MaxM) {
			s.budget, s.read.waits = drafter.Budget{}, e.forced(r) > 0
		}
		left = max(0, left-lag)
	}
}

// readRoom is how many tokens the models that draft for s may read before a pass.
func (e *Engine) readRoom(s *drafter.Stream) int {
	n := feedTokens
	if per := e.control.c.ReadSeconds(s); per > 0 {
		n = max(n, int(min(e.passes.target.Seconds()/2/per, float64(e.opts.Chunk))))
	}
	return n - n%quant.MaxM
}

// readOn reports whether a request that nobody else waits for is to have its models read another piece before its pass.
func (e *Engine) readOn(decoding []*run) bool {
	if len(decoding) != 1 || !e.undisturbed() {
		return false
	}
	r := decoding[0]
	return r.spec.read.on && r.ctx.Err() == nil && r.harm.err == nil && (r.spec.tree.Len() == 0 || e.forced(r) > 0)
}

// undisturbed reports whether one request or search is all there is to do.
func (e *Engine) undisturbed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.active)+e.nSearches == 1 && len(e.queue)+len(e.searches.waiting)+len(e.calls) == 0 && !e.closed
}

// standStill takes those out of a pass that wait for their models.
func standStill(decoding []*run) []*run {
	return slices.DeleteFunc(decoding, func(r *run) bool { return r.spec.read.waits })
}

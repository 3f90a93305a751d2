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
	stuck    bool // they could not read, for want of room or because they failed
	probe    bool // the text is read for guesses that the controller only tries
	waits    bool // in this pass the request stands still until its models have read, see Engine.ration
}

// note takes in that of nIDs tokens all but so many are known to the models, which might read so many, unless they were stuck.
func (s *reading) note(nIDs, behind, feed int, stuck bool) {
	if s.stuck = stuck && behind <= 0; s.stuck {
		s.on, s.behind = false, 0
		return
	}
	behind = min(max(0, behind), maxSpelling*nIDs)
	s.asked = max(s.asked, nIDs-behind)
	s.on = behind > 0 && (s.behind == 0 || behind <= s.behind-feed/2) // not all of it, for the request may go on by a token
	s.behind = behind
	s.caughtUp = s.caughtUp || !s.on
}

// few is what a session may have to read after a round: what was accepted is no text to read.
func (e *Engine) few() int { return 1 + e.opts.Spec.NMax }

// ration shares out what draft models may read before the pass: half of what the pass may take beside running answers, and
// not less than feedTokens. Requests for which nothing is left have no guesses in this pass. The controller's go on plainly
// meanwhile, as they do while their models read; those with forced guesses wait for their models, whose pace depends on the
// neighbours and must not decide from which token on an answer has guesses; where the draft's cache is full, they go on without.
func (e *Engine) ration(decoding []*run) {
	left := -1
	e.readers = append(e.readers[:0], decoding...)
	slices.SortFunc(e.readers, (*run).compare) // turns would let those that come now go before one that has to read anew
	for _, r := range e.readers {
		s := &r.spec
		if s.read.waits = false; s.budget.Nodes < 1 {
			continue
		}
		lag := len(r.ids) - s.read.asked
		if s.budget.Feed = max(feedTokens, e.few()); lag <= e.few() || s.read.stuck || !e.control.reads(s.stream) {
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

package engine

import (
	"fmt"

	"quickdraft/drafter"
	"quickdraft/tensor"
)

// guarded calls a drafter and turns a panic into an error, so that a drafter ends no process; Options.Note hears of it.
func (e *Engine) guarded(call func() error) (err error, panicked bool) {
	defer func() {
		if x := recover(); x != nil {
			err, panicked = fmt.Errorf("speculation: the drafter panicked: %v", x), true
			if e.opts.Note != nil {
				e.opts.Note(fmt.Sprintf("%v; its requests go on without guesses", err))
			}
		}
	}()
	return call(), false
}

// silence has r go on without guesses, because the drafter did not survive r: a round without a guess.
func (e *Engine) silence(r *run) {
	r.spec.off = true
	r.spec.tree.Reset()
	r.spec.budget = drafter.Budget{}
	if r.spec.stream != nil {
		r.spec.stream.Offers = nil
	}
	e.endSession(r)
	e.countFailed(r)
}

// countFailed counts a round of r that has no guess through the drafter's fault.
func (e *Engine) countFailed(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.stats.Spec.Failed++
	e.specTotals.Failed++
}

// speculates reports whether r may have guesses in this pass.
func (e *Engine) speculates(r *run) bool {
	if e.opts.Spec.Drafter == nil || r.NoSpec || r.spec.off || len(r.others) > 0 || r.endsPrompt() {
		return false
	}
	if r.spec.session != nil {
		return true
	}
	var s drafter.Session
	err, _ := e.guarded(func() (err error) {
		s, err = e.control.drafter.NewSession()
		return err
	})
	if err != nil || s == nil {
		e.silence(r)
		return false
	}
	r.spec.session, r.spec.told = s, 0
	return true
}

// tell reports the tokens that were committed since the session last heard.
func (e *Engine) tell(r *run) {
	s := &r.spec
	if s.session == nil || s.told >= len(r.ids) {
		return
	}
	if s.ids == nil {
		s.ids = make([]int32, 0, r.limit)
	}
	s.ids = append(s.ids, r.ids[len(s.ids):]...)
	if _, panicked := e.guarded(func() error { s.session.Committed(s.ids[s.told:]); return nil }); panicked {
		e.silence(r)
		return
	}
	s.told = len(r.ids)
}

// observe shows the target's view of every node to a session that asks for it.
func (e *Engine) observe(r *run, logits tensor.F32, row int) {
	o, ok := r.spec.session.(drafter.Observer)
	if !ok {
		return
	}
	n := int32(r.spec.tree.Len())
	_, panicked := e.guarded(func() error {
		o.Observed(&r.spec.tree, func(node int32) int32 {
			if node < -1 || node >= n {
				return -1
			}
			return e.samples.Argmax(logits.Row(row + int(node) + 1))
		})
		return nil
	})
	if panicked {
		e.silence(r)
	}
}

// endSession closes what the drafter keeps for r.
func (e *Engine) endSession(r *run) {
	s := &r.spec
	if s.session == nil {
		return
	}
	if _, panicked := e.guarded(func() error { s.session.Close(); return nil }); panicked {
		s.off = true
	}
	s.session, s.ids, s.told, s.shown, s.read = nil, s.ids[:0], 0, 0, reading{}
}

// sane makes a tree that a drafter filled one that the engine can use: at most so many nodes, in the order and with all that
// drafter.Tree.Repair makes whole. Tokens outside the vocabulary stay, see target.
func (e *Engine) sane(r *run) {
	if r.spec.budget.Nodes <= 0 {
		r.spec.tree.Reset() // nothing was asked for
		return
	}
	r.spec.tree.Repair(min(e.opts.Spec.NMax, e.room(r)))
}

// target is the token that the target computes for a guess. A guess outside the vocabulary has no probability, so it is
// always rejected, and that has to happen where it was drawn: without it, the token after it would come from the target's
// distribution instead of what the rejection leaves of it. In the pass a token stands for it that the target can compute.
func (e *Engine) target(guess, harmless int32) int32 {
	if guess < 0 || int(guess) >= e.model.Config().Vocab {
		return harmless
	}
	return guess
}

// raiseCounts takes over what the i-th drafter counts where that is more than it was: nothing was undone since, and servers publish
// these as counters, which never fall.
func (e *Engine) raiseCounts(i int, n drafter.Counts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.draftCounts[i]
	for _, f := range []struct {
		to  *int64
		now int64
	}{{&c.ContextFull, n.ContextFull}, {&c.NoBlocks, n.NoBlocks}, {&c.Unknown, n.Unknown}, {&c.NaN, n.NaN}, {&c.Fed, n.Fed}} {
		*f.to = max(*f.to, min(f.now, maxCount))
	}
}

// maxCount is where the counts of one drafter end, so that the sum over all goes on.
const maxCount = 1 << 48

// stoppedDrafts is how often the drafters could not follow a request, by reason. e.mu is held.
func (e *Engine) stoppedDrafts() (sum drafter.Counts) {
	for _, c := range e.draftCounts {
		sum.ContextFull, sum.NoBlocks, sum.Unknown, sum.NaN = sum.ContextFull+c.ContextFull, sum.NoBlocks+c.NoBlocks, sum.Unknown+c.Unknown, sum.NaN+c.NaN
	}
	return sum
}

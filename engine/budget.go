package engine

import (
	"slices"

	"quickdraft/drafter"
)

// planGuesses sets the budget of every decoding request: what is forced, or what the controller thinks best. It is not asked
// anew about a request whose models are still reading for the guesses that it wanted.
func (e *Engine) planGuesses(decoding []*run) {
	o, k := &e.opts.Spec, &e.control
	k.streams, k.committed, k.draft, k.late, k.expected = k.streams[:0], 0, 0, 0, 0
	decided := false
	for _, r := range decoding {
		r.spec.budget = drafter.Budget{}
		if !e.speculates(r) {
			continue
		}
		if r.spec.stream == nil {
			r.spec.stream = drafter.NewStream()
			r.spec.stream.Only = e.control.arm(r.SpecMethod)
			r.spec.read.asked = e.known(r)
		}
		if n := min(e.forced(r), e.room(r)); n > 0 {
			r.spec.budget = drafter.Budget{Nodes: n, Depth: n, MinP: r.leastBelief(o), Branch: o.Branch, Arm: r.spec.stream.Only}
			k.c.All(r.spec.stream)
			r.spec.stream.Offers = nil
			continue
		}
		s := r.spec.stream
		s.Room, s.Lag, s.Done, s.Left = e.room(r), len(r.ids)-r.spec.read.asked, r.emitted(), r.limit-len(r.ids)
		if decided = true; !r.spec.read.on {
			k.streams = append(k.streams, r.spec.stream)
		}
	}
	if decided {
		e.decide(decoding)
	}
	e.ration(decoding)
}

// known is how many of r's tokens the drafter's models need not read, which an earlier request has left in their caches.
func (e *Engine) known(r *run) (n int) {
	k, ok := e.control.drafter.(drafter.Keeper)
	if !ok {
		return 0
	}
	_, _ = e.guarded(func() error { n = k.Known(slices.Clone(r.ids)); return nil }) // one that panics knows nothing
	return min(max(n, 0), len(r.ids)-1)
}

// decide has the controller set the budgets that are not forced.
func (e *Engine) decide(decoding []*run) {
	o, k := &e.opts.Spec, &e.control
	e.preview(decoding)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c.Plan(k.streams, len(decoding)-len(k.streams), e.promptTokens())
	for _, r := range decoding {
		if s := r.spec.stream; e.decides(r) && s.Guesses > 0 {
			if !r.spec.read.on {
				r.spec.read.probe = k.c.Probing()
			}
			b := &r.spec.budget
			*b = drafter.Budget{Nodes: min(s.Guesses, s.Room), Depth: min(s.Depth, s.Room), MinP: r.leastBelief(o)}
			if k.c.Limits(s, b); o.Branch > 0 {
				b.Branch = o.Branch
			}
			if k.union != nil && s.Arm < len(k.union.Parts()) {
				b.Arm = s.Arm + 1
			}
		}
	}
}

// forced returns the guesses that r has in every round, 0 where the controller decides.
func (e *Engine) forced(r *run) int {
	if r.SpecFixed > 0 {
		return r.SpecFixed
	}
	return e.opts.Spec.Fixed
}

// decides reports whether the controller decides for r.
func (e *Engine) decides(r *run) bool { return e.speculates(r) && e.forced(r) == 0 }

// preview asks instant drafters what they propose, after the controller has heard what became of what they proposed last.
func (e *Engine) preview(decoding []*run) {
	k := &e.control
	if k.union == nil {
		return
	}
	rounds := e.rounds[:0]
	k.mu.Lock()
	for _, r := range decoding {
		if !e.decides(r) {
			continue
		}
		s := &r.spec
		if ids := r.ids[min(s.shown, len(r.ids)):]; s.shown > 0 && len(ids) > 0 {
			for i, t := range s.offers {
				if t != nil {
					t.Repair(e.opts.Spec.NMax) // its drafter has been called since
					k.c.Followed(s.stream, i, t, ids)
				}
			}
		}
	}
	k.mu.Unlock()
	for _, r := range decoding {
		if !e.decides(r) {
			continue
		}
		if e.tell(r); r.spec.off {
			continue
		}
		n := min(e.opts.Spec.NMax, e.room(r))
		round := r.round()
		round.Budget = drafter.Budget{Nodes: n, Depth: n, MinP: r.leastBelief(&e.opts.Spec), Branch: e.opts.Spec.Branch}
		r.spec.shown = len(r.ids)
		rounds = append(rounds, round)
	}
	e.rounds = rounds
	_, panicked := e.guarded(func() error { k.union.Preview(rounds); return nil })
	for _, r := range decoding {
		switch {
		case !e.decides(r):
		case panicked:
			e.silence(r)
		default:
			r.spec.offers = k.union.Offers(r.spec.offers[:0], r.spec.session)
			r.spec.stream.Offers = r.spec.offers
		}
	}
}

// promptTokens is how many tokens of prompts will ride beside the decoding requests.
func (e *Engine) promptTokens() int {
	n := 0
	for _, r := range e.active {
		if p := len(r.pending()); p > 1 {
			n += p
		}
	}
	return min(n, e.passes.chunkBeside())
}

// prune leaves of every tree what is worth its share of the pass, and none of which that is too little to verify.
func (e *Engine) prune(decoding []*run) {
	k := &e.control
	if k.c == nil {
		return
	}
	width := len(decoding)
	for _, r := range decoding {
		width += r.spec.tree.Len()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range decoding {
		r.spec.levels = r.spec.tree.Levels()
		if n := r.spec.tree.Len(); n > 0 && e.decides(r) {
			k.c.Trim(r.spec.stream, &r.spec.tree, width-n)
			e.trim(r)
			width += r.spec.tree.Len() - n
		}
	}
}

package engine

import "quickdraft/drafter"

// lent is a request's Matcher, or a fork of it, as drafters get it. Drafters serve many requests in one call, so a panic in there
// goes no further: it is noted, and from then on none of the request's matchers is called and all of their masks allow nothing.
// The drafter finds no more guesses for that request and goes on with the others; the engine ends it after the call.
type lent struct {
	m    drafter.Matcher
	harm *harm
}

// harm is what became of a request's matchers in drafters' hands.
type harm struct {
	err     error    // of the first call that panicked
	vocab   int      // tokens that a mask has a bit for
	nothing []uint64 // (vocab/64, rounded up) the mask of all matchers after it
}

// note keeps an error; there is no call after the first one.
func (l *lent) note(err error) {
	if h := l.harm; err != nil {
		h.err, h.nothing = err, make([]uint64, (h.vocab+63)/64)
	}
}

// Mask allows nothing after a panic.
func (l *lent) Mask() []uint64 {
	if l.harm.err == nil {
		mask, err := maskBy(l.m)
		if l.note(err); err == nil {
			return mask
		}
	}
	return l.harm.nothing
}

// Accept moves on.
func (l *lent) Accept(id int32) {
	if l.harm.err == nil {
		l.note(acceptBy(l.m, id))
	}
}

// Fork lends a fork.
func (l *lent) Fork() drafter.Matcher {
	if l.harm.err != nil {
		return l
	}
	fork, err := forkBy(l.m)
	switch l.note(err); {
	case err != nil:
		return l
	case fork == nil: // every token is allowed
		return nil
	}
	return &lent{m: fork, harm: l.harm}
}

// lend returns m, the request's Matcher or a fork, as drafters get it; nil for nil.
func (r *run) lend(m drafter.Matcher) drafter.Matcher {
	if m == nil {
		return nil
	}
	return &lent{m: m, harm: &r.harm}
}

// endIll ends r when a matcher of it has panicked in a drafter's hands, and reports whether it did.
func (e *Engine) endIll(r *run) bool {
	if r.harm.err == nil {
		return false
	}
	e.finish(r, FinishError, r.harm.err)
	return true
}

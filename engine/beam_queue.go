package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"quickdraft/kvcache"
)

// searches are the beam searches of an engine. A search begins once the KV blocks that it may come to need are neither
// claimed by other searches nor held by requests that it may not send away, so that it can always go on.
type searches struct {
	waiting []*run // of searches, and of prefixes that are restored; guarded by Engine.mu, in order of priority and arrival
	claimed int    // blocks that the running ones may come to need; of the loop
}

// errLater says that a search, or a prefix that is restored, has to wait for blocks.
var errLater = errors.New("blocks are in use")

// worst is how many blocks the search can come to hold: what lies whole in the prompt is shared, the rest is of each hypothesis,
// whose last token needs no place.
func (s *search) worst() int {
	shared := len(s.r.Prompt) / kvcache.BlockTokens
	return shared + s.o.Beams*(blocksFor(s.r.limit-1)-shared)
}

// queue lets the search wait for its turn, unless it never comes or too many wait.
func (s *search) queue() error {
	e := s.e
	if n, has := s.worst(), e.cache.Blocks(); n > has {
		return fmt.Errorf("kv cache: %d beams of up to %d tokens, %d of them the prompt's, need %d blocks of %d tokens, the cache has %d",
			s.o.Beams, s.r.limit, len(s.r.Prompt), n, kvcache.BlockTokens, has)
	}
	return e.lineUp(s.r)
}

// lineUp lets r wait among the searches, unless too many wait: no request that comes after it starts until leaveLine.
func (e *Engine) lineUp(r *run) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuses(); err != nil {
		return err
	}
	if n := len(e.queue) + len(e.searches.waiting); n >= e.opts.QueueLimit {
		return fmt.Errorf("%w: %d requests wait, the limit", ErrQueueFull, n)
	}
	r.order = e.order
	e.order++
	at, _ := slices.BinarySearchFunc(e.searches.waiting, r, (*run).compare)
	e.searches.waiting = slices.Insert(e.searches.waiting, at, r)
	return nil
}

// leaveLine ends the waiting.
func (e *Engine) leaveLine(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.searches.waiting = slices.DeleteFunc(e.searches.waiting, func(o *run) bool { return o == r })
}

// isNext reports whether r waits before all others.
func (e *Engine) isNext(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.searches.waiting[0] == r
}

// patiently calls f between passes until it does not ask to wait.
func (e *Engine) patiently(ctx context.Context, f func() error) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := e.do(f)
		if !errors.Is(err, errLater) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauseTime):
		}
	}
}

// enterPool begins the search when it is the first that waits and the blocks are there, else it returns errLater.
func (s *search) enterPool() error {
	e := s.e
	free := e.cache.Blocks() - e.searches.claimed
	for _, r := range e.active {
		if !s.maySendAway(r) {
			free -= blocksFor(len(r.ids) + 1)
		}
	}
	if !e.isNext(s.r) || s.worst() > free {
		return errLater
	}
	e.leaveLine(s.r)
	e.searches.claimed += s.worst()
	return s.begin()
}

// maySendAway reports whether r has to make way for the search: it is less urgent, or waits for its reader.
func (s *search) maySendAway(r *run) bool { return r.Priority < s.r.Priority || r.paused() }

// besideSearches reports whether r may start as far as beam searches are concerned: none that comes before it waits, and
// its tokens fit beside what they claim and those that do not wait for their readers. Engine.mu is held.
func (e *Engine) besideSearches(r *run) bool {
	if w := e.searches.waiting; len(w) > 0 && w[0].before(r) {
		return false
	}
	if e.nSearches == 0 {
		return true
	}
	need := e.searches.claimed + blocksFor(len(r.ids)+1)
	for _, o := range e.active {
		if !o.paused() {
			need += blocksFor(len(o.ids) + 1)
		}
	}
	return need <= e.cache.Blocks()
}

// takeRoom reserves for the search, which sends less urgent requests back to the queue when blocks run out; others it waits for.
func (s *search) takeRoom(seq *kvcache.Seq, n int) error {
	e := s.e
	for {
		err := seq.Reserve(n)
		if err == nil {
			return nil
		}
		if len(e.active) == 0 {
			if e.held > 0 {
				return errLater
			}
			return err
		}
		victim := slices.MaxFunc(e.active, (*run).compare)
		if at := slices.IndexFunc(e.active, (*run).paused); at >= 0 {
			victim = e.active[at]
		}
		if !s.maySendAway(victim) {
			return errLater
		}
		e.preempt(victim)
	}
}

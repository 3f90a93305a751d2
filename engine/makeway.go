package engine

import (
	"slices"

	"quickdraft/kvcache"
)

// makeWay sends answers that wait for their readers back to the queue where the first request that waits can start without them.
// Searches and prefixes that are restored see to it themselves when it is their turn.
func (e *Engine) makeWay() {
	if !slices.ContainsFunc(e.active, (*run).paused) {
		return
	}
	e.mu.Lock()
	var first *run
	if at := slices.IndexFunc(e.queue, func(r *run) bool { return !r.paused() }); at >= 0 && e.besideSearches(e.queue[at]) {
		first = e.queue[at]
	}
	e.mu.Unlock()
	if first != nil {
		e.sendAway(1, func() int { return e.lacks(first) })
	}
}

// sendAway sends answers that wait for their readers back to the queue, the last first, until so many places are free and the blocks
// that lack, or none if they were not enough.
func (e *Engine) sendAway(places int, lack func() int) {
	stay, gone := 0, 0
	for _, r := range e.active {
		if r.paused() {
			gone += blocksFor(len(r.ids) + 1)
		} else {
			stay++
		}
	}
	if stay+places > e.opts.MaxRunning || stay+e.nSearches+e.held > 0 && lack() > gone {
		return
	}
	for len(e.active)+places > e.opts.MaxRunning || lack() > 0 {
		var last *run
		for _, r := range e.active {
			if r.paused() && (last == nil || last.before(r)) {
				last = r
			}
		}
		if last == nil {
			return
		}
		e.preempt(last)
	}
}

// lacks is how many blocks more would have to be free for r to start, beside what the prefix cache has of it and what others need
// that run.
func (e *Engine) lacks(r *run) int {
	seq, cached := e.cache.NewSeq(), 0
	defer seq.Free()
	if !e.opts.NoPrefix {
		cached = seq.Adopt(r.ids[:len(r.ids)-1])
	}
	return e.beyond(blocksFor(len(r.ids)+1) - cached/kvcache.BlockTokens)
}

// beyond is how many of n blocks are not free, or needed by those that run.
func (e *Engine) beyond(n int) int { return n - e.cache.FreeBlocks() + e.owed() }

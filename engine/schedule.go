package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"quickdraft/kvcache"
	"quickdraft/model"
)

// plan is one pass: the batch for the model and which request each span belongs to. Its slices are reused.
type plan struct {
	batch   model.Batch
	items   []item
	parents [][]int32 // of the spans that are trees
	spare   [][]int32 // parents of earlier passes, for reuse
}

// reset empties the plan and keeps its memory.
func (p *plan) reset() {
	p.items = p.items[:0]
	p.batch.Tokens, p.batch.Spans, p.batch.Logits = p.batch.Tokens[:0], p.batch.Spans[:0], p.batch.Logits[:0]
	p.spare = append(p.spare, p.parents...)
	p.parents = p.parents[:0]
}

// takeParents returns an empty slice with room for n.
func (p *plan) takeParents(n int) []int32 {
	if k := len(p.spare); k > 0 {
		s := p.spare[k-1]
		p.spare = p.spare[:k-1]
		return s[:0]
	}
	return make([]int32, 0, max(n, maxGuesses+1))
}

// item is one request's share of a pass.
type item struct {
	r         *run
	nTokens   int  // tokens of the request in this pass
	logitsRow int  // row of the pass's logits, -1 when the span ends inside the prompt
	tree      bool // the span is the pending token and a tree of guesses, with a row of logits each
}

// newRun prepares a request that validate accepted.
func (e *Engine) newRun(ctx context.Context, req Request) (*run, error) {
	sampler, err := e.samples.New(req.Sampling)
	if err != nil {
		return nil, err
	}
	room := e.contextLen - len(req.Prompt)
	if req.MaxTokens < 0 || req.MaxTokens > room {
		req.MaxTokens = room
	}
	if req.EOG == nil {
		req.EOG = e.model.Config().EOS
	}
	r := &run{Request: req, ctx: ctx, sampler: sampler, arrived: time.Now()}
	r.harm.vocab = e.model.Config().Vocab
	r.lent = r.lend(r.Matcher)
	r.stats.PromptTokens = len(r.Prompt)
	e.toEncoder(r)
	sampler.SetPrompt(len(r.Prompt))
	r.limit = len(r.Prompt) + r.MaxTokens
	r.ids = append(make([]int32, 0, len(r.Prompt)+min(r.MaxTokens, 256)), r.Prompt...)
	r.out = make(chan Token, min(r.MaxTokens+1, outBuffer))
	return r, nil
}

// enqueue puts r behind the waiting requests of its priority. Engine.mu is held.
func (e *Engine) enqueue(r *run) {
	at := sort.Search(len(e.queue), func(i int) bool { return r.before(e.queue[i]) })
	e.queue = append(e.queue, nil)
	copy(e.queue[at+1:], e.queue[at:])
	e.queue[at] = r
}

// compare is before as an order to sort by.
func (r *run) compare(o *run) int {
	if r.before(o) {
		return -1
	}
	return 1
}

// before orders requests: higher priority first, then arrival.
func (r *run) before(o *run) bool {
	if r.Priority != o.Priority {
		return r.Priority > o.Priority
	}
	return r.order < o.order
}

// admit moves waiting requests into the running set while slots and KV blocks for their tokens are free.
func (e *Engine) admit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.active) < e.opts.MaxRunning {
		at := slices.IndexFunc(e.queue, func(r *run) bool { return !r.paused() })
		if at < 0 || !e.besideSearches(e.queue[at]) || !e.start(e.queue[at]) {
			return
		}
		e.queue = slices.Delete(e.queue, at, at+1)
	}
}

// start gives r a sequence, with what the prefix cache has of its tokens, unless the blocks for the rest are missing: the
// only running request may try all the same. Engine.mu is held.
func (e *Engine) start(r *run) bool {
	r.seq = e.cache.NewSeq()
	cached := 0
	if !e.opts.NoPrefix {
		cached = r.seq.Adopt(r.ids[:len(r.ids)-1])
	}
	if len(e.active) > 0 && e.beyond(blocksFor(len(r.ids)+1)-cached/kvcache.BlockTokens) > 0 {
		r.seq.Free()
		r.seq = nil
		return false
	}
	if r.started.IsZero() {
		e.begin(r, cached)
	}
	e.active = append(e.active, r)
	return true
}

// begin notes when the first pass came, and the tokens of the prompt that need none, and makes room for the answer: its tokens
// allocate nothing then, and requests that wait do not hold it. Engine.mu is held.
func (e *Engine) begin(r *run, cached int) {
	r.started = time.Now()
	r.stats.Queued = r.started.Sub(r.arrived)
	r.stats.CachedTokens = cached
	r.ids = slices.Grow(r.ids, r.limit-len(r.ids))
	r.picked = make([]Token, 0, 1)
	if n := e.opts.Spec.NMax; e.opts.Spec.Drafter != nil {
		r.stats.Spec.Lossy = e.opts.Spec.Lenience < 1 && !r.NoSpec
		r.stats.Spec.makeRoom(n)
		r.stats.Spec.Parts = e.control.newParts()
		r.spec.path, r.spec.accepted, r.picked = make([]int32, 0, n), make([]int32, 0, n), make([]Token, 0, 1+n)
	}
}

// owed returns the blocks that admitted requests still need for tokens they already have.
func (e *Engine) owed() int {
	n := 0
	for _, r := range e.active {
		n += blocksFor(len(r.ids)+1) - blocksFor(r.seq.Len())
	}
	return n
}

func blocksFor(nTokens int) int { return (nTokens + kvcache.BlockTokens - 1) / kvcache.BlockTokens }

// schedule fills the plan: first every decoding request's token, then prompt chunks in order of priority, up to the
// chunk size. Beside running decodes the prompts' share is what the pace allows, so that answers keep flowing.
func (e *Engine) schedule() *plan {
	p := &e.plan
	p.reset()
	e.makeWay()
	slices.SortStableFunc(e.active, (*run).compare)
	e.decoding = e.decoding[:0]
	for _, r := range e.active {
		if len(r.pending()) == 1 && !r.paused() {
			e.decoding = append(e.decoding, r)
		}
	}
	rotate(e.decoding)
	e.propose(e.decoding)
	e.decoding = slices.DeleteFunc(e.decoding, e.endIll)
	nDecoding := len(e.decoding)
	e.decoding = standStill(e.decoding)
	e.passes.waiting = len(e.decoding) < nDecoding
	room := e.opts.Chunk
	if e.starved { // a quarter is for prompts, which the last pass left out; of passes of one token, every other one
		room -= max(1, room/4)
	}
	for _, r := range e.decoding {
		if len(p.batch.Tokens) >= room {
			break
		}
		if r.seq == nil || !e.reserve(r, 1) {
			continue
		}
		e.turns++
		r.turn = e.turns
		if e.fit(p, r); r.spec.tree.Len() > 0 {
			e.addTree(p, r)
		} else {
			e.add(p, r, 1)
		}
	}
	e.passes.decoding, e.passes.drafting = len(p.batch.Tokens), e.control.draft
	budget := min(e.opts.Chunk-len(p.batch.Tokens), e.passes.chunkBeside())
	e.starved = budget <= 0 && e.promptsWait()
	for _, r := range e.running() {
		if budget <= 0 {
			break
		}
		if r.seq == nil || len(r.pending()) <= 1 {
			continue
		}
		if n := min(budget, len(r.pending())); e.reserve(r, n) {
			e.add(p, r, n)
			budget -= n
		}
	}
	return p
}

// rotate puts those first, among requests of one priority, whose last turn is longest ago: a pass may have no room for all.
func rotate(decoding []*run) {
	slices.SortStableFunc(decoding, func(a, b *run) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.turn, b.turn))
	})
}

// promptsWait reports whether a prompt is to be computed that is as urgent as the least urgent decoding request.
func (e *Engine) promptsWait() bool {
	least := math.MaxInt
	for _, r := range e.decoding {
		least = min(least, r.Priority)
	}
	return slices.ContainsFunc(e.active, func(r *run) bool { return len(r.pending()) > 1 && r.Priority >= least })
}

// running copies the admitted requests, which may be dropped while the copy is walked through. It is valid until the next call.
func (e *Engine) running() []*run {
	e.walked = append(e.walked[:0], e.active...)
	return e.walked
}

// add gives r's next n pending tokens a span of the pass.
func (e *Engine) add(p *plan, r *run, n int) {
	pending := r.pending()
	it := item{r: r, nTokens: n, logitsRow: -1}
	p.batch.Spans = append(p.batch.Spans, model.Span{Seq: r.seq, N: n, Prompt: len(r.Prompt)})
	p.batch.Tokens = append(p.batch.Tokens, pending[:n]...)
	if n == len(pending) && r.answers() {
		it.logitsRow = len(p.batch.Logits)
		p.batch.Logits = append(p.batch.Logits, int32(len(p.batch.Tokens)-1))
	}
	p.items = append(p.items, it)
}

// reserve makes room for n more tokens of r and preempts requests that come after r when blocks run out. It reports
// whether r may run; when it may not, r itself has gone back to the queue.
func (e *Engine) reserve(r *run, n int) bool {
	for {
		if !e.encode(r) {
			return false
		}
		err := r.seq.Reserve(n)
		if err == nil {
			return true
		}
		victim := e.last(r)
		if victim == nil {
			if len(e.active) == 1 && e.nSearches == 0 && e.held == 0 {
				e.finish(r, FinishError, fmt.Errorf("kv cache: %w", err))
				return false
			}
			victim = r
		}
		e.preempt(victim)
		if victim == r {
			return false
		}
	}
}

// last returns the running request that comes last and after r and is not part of the pass yet, or nil.
func (e *Engine) last(r *run) *run {
	var worst *run
	for _, o := range e.active {
		if o.seq != nil && r.before(o) && (worst == nil || worst.before(o)) && !e.planned(o) {
			worst = o
		}
	}
	return worst
}

func (e *Engine) planned(r *run) bool {
	for _, it := range e.plan.items {
		if it.r == r {
			return true
		}
	}
	return false
}

// preempt frees r's KV blocks and queues it again; its tokens are recomputed when its turn comes.
func (e *Engine) preempt(r *run) {
	e.drop(r)
	e.mu.Lock()
	e.enqueue(r)
	e.mu.Unlock()
}

// drop takes r out of the running set and frees its blocks.
func (e *Engine) drop(r *run) {
	e.endSession(r)
	e.model.Forget(r.seq)
	if e.opts.NoPrefix {
		r.seq.Free()
	} else {
		r.seq.Release(r.ids)
	}
	r.seq = nil
	for i, o := range e.active {
		if o == r {
			e.active = append(e.active[:i], e.active[i+1:]...)
			return
		}
	}
}

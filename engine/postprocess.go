package engine

import (
	"context"
	"slices"
	"time"

	"quickdraft/tensor"
)

// postprocess commits what the pass appended, samples the rows that end a prompt or follow a token, and emits.
func (e *Engine) postprocess(p *plan, logits tensor.F32) {
	for _, it := range p.items {
		if it.tree {
			e.accept(it, logits)
			continue
		}
		it.r.seq.Commit(it.nTokens)
		switch {
		case it.logitsRow >= 0:
			e.emit(it.r, logits.Row(it.logitsRow))
		case it.r.MaxTokens == 0 && len(it.r.pending()) == 0:
			e.finish(it.r, FinishLength, nil)
		}
	}
}

// emit samples one token from a row of logits and hands it on.
func (e *Engine) emit(r *run, logits []float32) {
	id, err := r.sampler.Sample(logits, r.ids)
	if err != nil {
		e.finish(r, FinishError, err)
		return
	}
	if why := e.take(r, id); why != "" {
		e.finish(r, why, nil)
	}
}

// take makes id part of r's answer and says why the answer is over, "" when it is not.
func (e *Engine) take(r *run, id int32) Finish {
	now := time.Now()
	if r.first.IsZero() {
		r.first = now
	}
	r.ids = append(r.ids, id)
	e.mu.Lock()
	r.stats.DecodedTokens = r.emitted()
	r.stats.Prefill = r.first.Sub(r.started)
	r.stats.Decode = now.Sub(r.first)
	e.mu.Unlock()
	r.out <- Token{ID: id, HasID: true}
	switch {
	case !r.IgnoreEOS && slices.Contains(r.EOG, id), r.Stop != nil && r.Stop.Accept(id):
		return FinishStop
	case len(r.ids) >= r.limit:
		return FinishLength
	}
	return ""
}

// finish ends a running request. The channel has room for every token it may emit and this one, so it never blocks.
func (e *Engine) finish(r *run, why Finish, err error) {
	if r.seq != nil {
		e.drop(r)
	}
	e.end(r, why, err)
}

// end closes a request that holds no blocks.
func (e *Engine) end(r *run, why Finish, err error) {
	if r.unwatch != nil {
		r.unwatch()
	}
	r.out <- Token{Finish: why, Err: err}
	close(r.out)
}

// reap ends the requests whose callers have gone, wherever they are.
func (e *Engine) reap() {
	for _, r := range append([]*run(nil), e.active...) {
		if r.ctx.Err() != nil {
			e.finish(r, FinishCancelled, context.Cause(r.ctx))
		}
	}
	e.mu.Lock()
	var gone []*run
	e.queue = slices.DeleteFunc(e.queue, func(r *run) bool {
		if r.ctx.Err() == nil {
			return false
		}
		gone = append(gone, r)
		return true
	})
	e.mu.Unlock()
	for _, r := range gone {
		e.end(r, FinishCancelled, context.Cause(r.ctx))
	}
}

// fail ends every request of a pass that could not be computed; what the pass appended is rolled back with the blocks.
func (e *Engine) fail(p *plan, err error) {
	for _, it := range p.items {
		e.finish(it.r, FinishError, err)
	}
}

// abort ends everything; the loop is over afterwards.
func (e *Engine) abort(err error) {
	for _, r := range append([]*run(nil), e.active...) {
		e.finish(r, FinishCancelled, err)
	}
	e.mu.Lock()
	queue := e.queue
	e.queue = nil
	e.mu.Unlock()
	for _, r := range queue {
		e.end(r, FinishCancelled, err)
	}
}

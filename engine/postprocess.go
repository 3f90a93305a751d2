package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"quickdraft/machine"
	"quickdraft/model"
	"quickdraft/tensor"
)

// postprocess commits what the pass appended, chooses from the rows that end a prompt or follow a token, and emits.
func (e *Engine) postprocess(p *plan, logits tensor.F32) {
	c := &e.chooser
	c.picks = c.picks[:0]
	for _, it := range p.items {
		r := it.r
		if it.tree {
			c.picks = append(c.picks, pick{r: r, row: it.logitsRow, tree: true})
			continue
		}
		r.seq.Commit(it.nTokens)
		e.publish(r)
		if it.logitsRow < 0 && len(r.pending()) > 0 {
			continue
		}
		for _, o := range e.fork(r) {
			if o.MaxTokens == 0 {
				c.picks = append(c.picks, pick{r: o, row: -1, why: FinishLength})
			} else {
				c.picks = append(c.picks, pick{r: o, row: it.logitsRow})
			}
		}
	}
	c.choose(logits)
	for i := range c.picks {
		e.settle(&c.picks[i], logits)
	}
}

// settle hands on what was chosen for a request, and ends it when its answer is over.
func (e *Engine) settle(p *pick, logits tensor.F32) {
	if p.row >= 0 {
		e.emit(p.r)
	}
	if p.tree {
		e.accept(p, logits)
	}
	if p.why != "" {
		e.finish(p.r, p.why, p.err)
	}
}

// publish offers r's full blocks to other requests.
func (e *Engine) publish(r *run) {
	if !e.opts.NoPrefix {
		r.seq.Publish(r.ids)
	}
}

// fork starts the other choices of r, whose prompt is computed, and returns r and those that found a slot; the rest queue
// up, and find the prompt in the prefix cache.
func (e *Engine) fork(r *run) []*run {
	forks := append(e.forks[:0], r)
	e.forks = forks
	if len(r.others) == 0 {
		return forks
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range r.others {
		if len(e.active) >= e.opts.MaxRunning {
			e.enqueue(o)
			continue
		}
		o.seq = r.seq.Fork()
		e.begin(o, len(o.Prompt))
		e.active = append(e.active, o)
		forks = append(forks, o)
	}
	r.others, e.forks = nil, forks
	return forks
}

// emit hands on the tokens that were chosen for r.
func (e *Engine) emit(r *run) {
	if len(r.picked) == 0 {
		return
	}
	now, passes := time.Now(), r.stats.Passes
	if r.first.IsZero() {
		r.first = now
	} else {
		passes++
	}
	e.control.committed += len(r.picked)
	e.mu.Lock()
	r.stats.DecodedTokens, r.stats.Passes = r.emitted(), passes
	r.stats.Prefill = r.first.Sub(r.started)
	r.stats.Decode = now.Sub(r.first)
	e.mu.Unlock()
	for _, t := range r.picked {
		r.deliver(t)
	}
}

// finish ends a running request. Only requests that are not paused run, so the channel has room for what a pass emits and
// for the end.
func (e *Engine) finish(r *run, why Finish, err error) {
	if r.first.IsZero() { // no token came: all the time went into the prompt
		e.mu.Lock()
		r.stats.Prefill = time.Since(r.started)
		e.mu.Unlock()
	}
	e.ended(r)
	if r.seq != nil {
		e.drop(r)
	}
	if r.released != nil && err == nil {
		r.released()
	}
	e.end(r, why, err)
}

// deliver hands a token to the reader. A pass runs only where paused says that there is room for all it can emit.
func (r *run) deliver(t Token) {
	select {
	case r.out <- t:
	default:
		panic(fmt.Sprintf("engine: no room for token %d of an answer, %d wait to be read", r.emitted(), len(r.out)))
	}
}

// end closes a request that holds no blocks, and the choices that wait for its prompt.
func (e *Engine) end(r *run, why Finish, err error) {
	r.deliver(Token{Finish: why, Err: err})
	close(r.out)
	for _, o := range r.others {
		e.end(o, why, err)
	}
	r.others = nil
}

// reap ends the requests whose callers have gone, wherever they are.
func (e *Engine) reap() {
	for _, r := range e.running() {
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

// fail ends the requests of a pass that could not be computed; what the pass appended is not committed. When only some
// rows are not numbers, the others' requests go on in the next pass.
func (e *Engine) fail(p *plan, err error) {
	e.notice(err)
	var nan *model.NaNError
	if !errors.As(err, &nan) {
		for _, it := range p.items {
			e.finish(it.r, FinishError, err)
		}
		return
	}
	row := int32(0)
	for _, it := range p.items {
		first, end := row, row+int32(it.nTokens)
		row = end
		switch {
		case !slices.ContainsFunc(nan.Rows, func(bad int32) bool { return bad >= first && bad < end }):
		case it.tree && !slices.Contains(nan.Rows, first):
			it.r.NoSpec = true // the guess may be at fault; without guesses an honest failure comes back
		default:
			e.finish(it.r, FinishError, e.notNumbers(nan))
		}
	}
}

// notice remembers an error of the model that every later pass will have too: requests are refused with it from now on, and
// those that wait end with it in their turn.
func (e *Engine) notice(err error) {
	var changed *machine.ChangedError
	if errors.As(err, &changed) {
		e.mu.Lock()
		e.broken = err
		e.mu.Unlock()
	}
}

// notNumbers tells a request about its logits, without the row numbers of the pass.
func (e *Engine) notNumbers(nan *model.NaNError) error {
	where := "in the output"
	if nan.Layer < 0 {
		where = "in the embedding"
	} else if layers := e.model.Config().Layers; nan.Layer < layers {
		where = fmt.Sprintf("in layer %d of 0 to %d", nan.Layer, layers-1)
	}
	return fmt.Errorf("logits are NaN or infinite, which began %s", where)
}

// abort ends everything; the loop is over afterwards.
func (e *Engine) abort(err error) {
	for _, r := range e.running() {
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

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// postprocess commits what the pass appended, samples the rows that end a prompt or follow a token, and emits.
func (e *Engine) postprocess(p *plan, logits tensor.F32) {
	for _, it := range p.items {
		r := it.r
		if it.tree {
			e.accept(it, logits)
			continue
		}
		r.seq.Commit(it.nTokens)
		e.publish(r)
		if it.logitsRow < 0 && len(r.pending()) > 0 {
			continue
		}
		for _, o := range e.fork(r) {
			if o.MaxTokens == 0 {
				e.finish(o, FinishLength, nil)
			} else {
				e.emit(o, logits.Row(it.logitsRow))
			}
		}
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

// emit samples one token from a row of logits and hands it on.
func (e *Engine) emit(r *run, logits []float32) {
	r.learned = r.sampler.State()
	var id int32
	err, why := r.mask(r.sampler), FinishError
	if err == nil {
		id, err = r.sampler.Sample(logits, r.ids)
	}
	if err == nil {
		why, err = e.take(r, id, logits)
	}
	if why != "" {
		e.finish(r, why, err)
	}
}

// take makes id, chosen from a row of logits, part of r's answer and says why the answer is over, "" when it is not.
func (e *Engine) take(r *run, id int32, logits []float32) (Finish, error) {
	t := Token{ID: id, HasID: true}
	if err := r.rate(&t, logits); err != nil {
		return FinishError, err
	}
	now := time.Now()
	if r.first.IsZero() {
		r.first = now
	}
	r.ids = append(r.ids, id)
	e.control.committed++
	if r.Matcher != nil {
		r.Matcher.Accept(id)
	}
	e.mu.Lock()
	r.stats.DecodedTokens = r.emitted()
	r.stats.Prefill = r.first.Sub(r.started)
	r.stats.Decode = now.Sub(r.first)
	e.mu.Unlock()
	r.deliver(t)
	switch {
	case !r.IgnoreEOS && slices.Contains(r.EOG, id), r.Stop != nil && r.Stop.Accept(id):
		return FinishStop, nil
	case len(r.ids) >= r.limit:
		return FinishLength, nil
	}
	return "", nil
}

// rate fills in the probabilities that the request asks for. What the choice has taught the sampler does not count yet.
func (r *run) rate(t *Token, logits []float32) error {
	if !r.Logprobs {
		return nil
	}
	learned := r.sampler.State()
	r.sampler.SetState(r.learned)
	defer r.sampler.SetState(learned)
	all, err := r.sampler.Logprobs(make([]sample.Logprob, 0, 1+r.TopLogprobs), logits, r.ids, t.ID, r.TopLogprobs)
	if err != nil {
		return err
	}
	t.Logprob, t.Top = all[0].Logprob, all[1:]
	return nil
}

// finish ends a running request. Only requests that are not paused run, so the channel has room for what a pass emits and
// for the end.
func (e *Engine) finish(r *run, why Finish, err error) {
	if r.first.IsZero() { // no token came: all the time went into the prompt
		e.mu.Lock()
		r.stats.Prefill = time.Since(r.started)
		e.mu.Unlock()
	}
	if r.seq != nil {
		e.drop(r)
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

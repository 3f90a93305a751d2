package engine

import (
	"context"
	"fmt"

	"quickdraft/sample"
)

// Submit queues a request and returns at once. When ctx ends, the request ends within one pass. Tokens have to be read: an
// answer pauses when its reader is far behind.
func (e *Engine) Submit(ctx context.Context, req Request) (*Ticket, error) {
	tickets, err := e.SubmitChoices(ctx, req, 1, nil)
	if err != nil {
		return nil, err
	}
	return tickets[0], nil
}

// SubmitChoices queues n answers to one prompt, which is computed once. Choice i samples with
// sample.ChoiceSeed(req.Sampling.Seed, i), so choice 0 is what Submit would give; each, when not nil, may change choice
// i's request, all but its prompt and priority: choices must not share a Stopper. Choices after the first get forks of
// req.Matcher.
func (e *Engine) SubmitChoices(ctx context.Context, req Request, n int, each func(i int, choice *Request)) ([]*Ticket, error) {
	if n < 1 || n > MaxChoices {
		return nil, fmt.Errorf("n: %d choices, want 1 to %d", n, MaxChoices)
	}
	if n > 1 && e.encodes() {
		return nil, fmt.Errorf("n: %d choices: %w", n, errEncoder)
	}
	runs, tickets := make([]*run, n), make([]*Ticket, n)
	for i := range n {
		choice := req
		choice.Sampling.Seed = sample.ChoiceSeed(req.Sampling.Seed, i)
		if i > 0 && req.Matcher != nil {
			var err error
			if choice.Matcher, err = forkBy(req.Matcher); err != nil {
				return nil, err
			}
		}
		if each != nil {
			each(i, &choice)
		}
		choice.Prompt, choice.Priority = req.Prompt, req.Priority
		if err := e.validate(&choice); err != nil {
			return nil, err
		}
		r, err := e.newRun(ctx, choice)
		if err != nil {
			return nil, err
		}
		runs[i], tickets[i] = r, &Ticket{e: e, r: r, out: r.out}
	}
	runs[0].others = runs[1:]
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuses(); err != nil {
		return nil, err
	}
	if n := len(e.queue) + len(e.searches.waiting); n >= e.opts.QueueLimit {
		return nil, fmt.Errorf("%w: %d requests wait, the limit", ErrQueueFull, n)
	}
	for _, r := range runs {
		r.order = e.order
		e.order++
	}
	e.enqueue(runs[0])
	e.wake.Broadcast()
	return tickets, nil
}

// refuses is why no request is taken, or nil. Engine.mu is held.
func (e *Engine) refuses() error {
	if e.closed {
		return ErrClosed
	}
	return e.broken
}

package engine

import (
	"time"

	"quickdraft/tensor"
)

// Pass says what one pass did and where its time went.
type Pass struct {
	Requests, Tokens int
	Schedule         time.Duration // choosing requests and tokens, proposing guesses included
	Forward          time.Duration // the model's pass
	Products         time.Duration // of Forward, products with weights
	Attention        time.Duration // of Forward, attention
	Sample           time.Duration // committing, sampling and handing tokens on
	End              time.Time
}

// WatchPasses calls f after every pass from now on, until it is called again; nil ends it. f runs in the engine's loop, which
// waits for it, and must not call the engine. Passes take a few more clock readings a layer.
func (e *Engine) WatchPasses(f func(Pass)) error {
	return e.do(func() error {
		e.passes.each, e.passes.watch = f, nil
		if f != nil {
			e.passes.watch = &tensor.Watch{}
		}
		e.model.Watch(e.passes.watch)
		return nil
	})
}

// report tells who watches about a pass.
func (s *passStats) report(p *plan, schedule, forward, sample time.Duration) {
	if s.each == nil {
		return
	}
	s.each(Pass{
		Requests: len(p.items), Tokens: len(p.batch.Tokens), Schedule: schedule, Forward: forward, Sample: sample,
		Products: s.watch.Products, Attention: s.watch.Attention, End: time.Now(),
	})
	s.watch.Products, s.watch.Attention = 0, 0
}

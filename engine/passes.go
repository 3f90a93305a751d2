package engine

import (
	"time"

	"quickdraft/tensor"
)

// PassTimes says where the time of passes has gone, summed up since the engine was opened or watched.
type PassTimes struct {
	Passes, Tokens int           // tokens of all passes, of prompts too
	Schedule       time.Duration // choosing requests and tokens, proposing guesses included
	Forward        time.Duration // the model's passes
	Sample         time.Duration // committing, sampling and handing tokens on
	Products       time.Duration // of Forward, products with weights; 0 without WatchPasses
	Attention      time.Duration // of Forward, attention; 0 without WatchPasses
}

// Sub is what came after before.
func (t PassTimes) Sub(before PassTimes) PassTimes {
	return PassTimes{
		t.Passes - before.Passes, t.Tokens - before.Tokens, t.Schedule - before.Schedule, t.Forward - before.Forward,
		t.Sample - before.Sample, t.Products - before.Products, t.Attention - before.Attention,
	}
}

// WatchPasses has passes measure their parts from now on, at a few clock readings a layer, or ends that.
func (e *Engine) WatchPasses(on bool) error {
	return e.do(func() error {
		e.passes.watch = nil
		if on {
			e.passes.watch = &tensor.Watch{}
		}
		e.model.Watch(e.passes.watch)
		return nil
	})
}

// Passes returns the sums, taken between two passes.
func (e *Engine) Passes() (t PassTimes, err error) {
	err = e.do(func() error {
		s := &e.passes
		t = PassTimes{Passes: s.nPasses, Tokens: s.nTokens, Schedule: s.schedule, Forward: s.forward, Sample: s.sample}
		if s.watch != nil {
			t.Products, t.Attention = s.watch.Products, s.watch.Attention
		}
		return nil
	})
	return t, err
}

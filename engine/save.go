package engine

import (
	"context"
	"errors"
	"fmt"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/sample"
)

// SavePrefix writes the keys and values of a prompt to a file, those of draft models too, and computes first what is lacking
// of them. The file is replaced as a whole or not at all. Another engine on the same models finds them after RestorePrefix.
func (e *Engine) SavePrefix(ctx context.Context, path string, prompt []int32) error {
	if e.opts.NoPrefix {
		return errors.New("save: the prefix cache is off")
	}
	ticket, err := e.Submit(ctx, Request{Prompt: prompt, Sampling: sample.Greedy()})
	if err != nil {
		return err
	}
	for t := range ticket.Tokens() {
		if t.Err != nil {
			return t.Err
		}
	}
	return e.do(func() error {
		seq := e.cache.NewSeq()
		defer seq.Free()
		if n := seq.Adopt(prompt); n < len(prompt) {
			return fmt.Errorf("%s: save: other requests took the KV blocks of %d of the %d tokens", path, len(prompt)-n, len(prompt))
		}
		parts := []kvcache.Saved{{Seq: seq, Fingerprint: e.model.Fingerprint(), IDs: prompt}}
		if k, ok := e.opts.Spec.Drafter.(drafter.Keeper); ok {
			var drafts []kvcache.Saved
			err, _ := e.guarded(func() (err error) {
				drafts, err = k.Keep(prompt)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: save: %w", path, err)
			}
			defer drafter.FreeSaved(drafts)
			parts = append(parts, drafts...)
		}
		return kvcache.Save(path, parts...)
	})
}

// RestorePrefix puts what SavePrefix wrote into the prefix cache and returns its tokens: requests that begin with them
// need no prefill for them, until other requests need the blocks, and neither does the draft model that was saved with them;
// another one reads them when it first drafts for them. Files of other targets, quantisations and layouts are refused with
// kvcache.ErrForeign, damaged ones with kvcache.ErrDamaged.
func (e *Engine) RestorePrefix(path string) (ids []int32, err error) {
	if e.opts.NoPrefix {
		return nil, errors.New("restore: the prefix cache is off")
	}
	err = e.do(func() error {
		var seq *kvcache.Seq
		if seq, ids, err = e.cache.Restore(path, e.model.Fingerprint()); err != nil {
			return err
		}
		seq.Release(ids)
		if k, ok := e.opts.Spec.Drafter.(drafter.Keeper); ok {
			err, _ := e.guarded(func() error { return k.Recall(path) })
			return err
		}
		return nil
	})
	return ids, err
}

// do runs f between two passes.
func (e *Engine) do(f func() error) error {
	result := make(chan error, 1)
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.calls = append(e.calls, func(run bool) {
		if !run {
			result <- ErrClosed
			return
		}
		result <- f()
	})
	e.wake.Broadcast()
	e.mu.Unlock()
	return <-result
}

// answerCalls runs the calls that wait, or tells them that the engine is closed.
func (e *Engine) answerCalls(run bool) {
	e.mu.Lock()
	calls := e.calls
	e.calls = nil
	e.mu.Unlock()
	for _, call := range calls {
		call(run)
	}
}

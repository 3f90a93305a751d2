package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/sample"
)

// Files are read and written by the goroutine that asks for it. Between passes the loop only takes and gives back blocks; while
// a sequence is copied from them, or to them, it is held (Engine.held), and other requests wait for its blocks if need be.

// SavePrefix writes the keys and values of a prompt to a file, those of draft models too, and computes first what is lacking
// of them. It takes memory for a copy of them. The file is replaced as a whole, or not at all when ctx ends before. Another
// engine on the same models finds them after RestorePrefix.
func (e *Engine) SavePrefix(ctx context.Context, path string, prompt []int32) error {
	if e.opts.NoPrefix {
		return errors.New("save: the prefix cache is off")
	}
	prompt = slices.Clone(prompt)
	saved := kvcache.Saved{Fingerprint: e.model.Fingerprint(), IDs: prompt}
	ticket, err := e.Submit(ctx, Request{Prompt: prompt, Sampling: sample.Greedy(), released: func() {
		saved.Seq = e.cache.NewSeq()
		saved.Seq.Adopt(prompt)
		e.hold()
	}})
	if err != nil {
		return err
	}
	for t := range ticket.Tokens() {
		if t.Err != nil {
			return t.Err
		}
	}
	drafts, err := e.keepDrafts(ctx, prompt)
	if err == nil {
		err = e.do(func() error {
			if n := saved.Seq.Len(); n < len(prompt) {
				return fmt.Errorf("the prefix cache has %d of the %d tokens", n, len(prompt))
			}
			return nil
		})
	}
	var image *kvcache.Image
	if err == nil {
		image, err = saved.Image()
	}
	_ = e.letGo(saved.Seq.Free) // a closed engine has nothing to free
	if err != nil {
		return fmt.Errorf("%s: save: %w", path, err)
	}
	return kvcache.Write(ctx, path, append([]*kvcache.Image{image}, drafts...)...)
}

// keepDrafts has the draft models read a prompt, feedTokens between two passes, and copies what they know of it in the end. A
// model that could not take one of the pieces keeps nothing, and when none is left, none reads on.
func (e *Engine) keepDrafts(ctx context.Context, prompt []int32) (images []*kvcache.Image, err error) {
	k, ok := e.opts.Spec.Drafter.(drafter.Keeper)
	if !ok {
		return nil, nil
	}
	took := map[[32]byte]int{} // pieces that each model, by its fingerprint, could take
	for n, pieces := 0, 0; n < len(prompt); pieces++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n = min(n+feedTokens, len(prompt))
		whole := 0
		err := e.do(func() error {
			err, _ := e.guarded(func() error {
				drafts, err := k.Keep(prompt[:n])
				for _, d := range drafts {
					if took[d.Fingerprint] >= pieces {
						took[d.Fingerprint], whole = pieces+1, whole+1
						if n == len(prompt) && err == nil {
							var image *kvcache.Image
							image, err = d.Image()
							images = append(images, image)
						}
					}
					d.Seq.Release(d.IDs)
				}
				return err
			})
			return err
		})
		if err != nil || whole == 0 {
			return nil, err
		}
	}
	return images, nil
}

// RestorePrefix puts what SavePrefix wrote into the prefix cache and returns its tokens: requests that begin with them
// need no prefill for them, until other requests need the blocks, and neither does the draft model that was saved with them;
// another one reads them when it first drafts for them. It waits for blocks as a request does, until ctx ends: no request that
// comes later starts before it. The draft's part only saves work: where the draft's cache has no room right now, it is left out,
// and the draft reads the tokens again. Files of other targets, quantisations and layouts are refused with kvcache.ErrForeign,
// damaged ones with kvcache.ErrDamaged.
func (e *Engine) RestorePrefix(ctx context.Context, path string) (ids []int32, err error) {
	if e.opts.NoPrefix {
		return nil, errors.New("restore: the prefix cache is off")
	}
	places := []kvcache.Place{{Cache: e.cache, Fingerprint: e.model.Fingerprint()}}
	err = e.do(func() error {
		err, _ := e.guarded(func() error {
			if k, ok := e.opts.Spec.Drafter.(drafter.Keeper); ok {
				places = append(places, k.Places()...)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	images, err := kvcache.Load(ctx, path, places...)
	if err != nil {
		return nil, err
	}
	if images[0] == nil {
		return nil, fmt.Errorf("%s: %w", path, kvcache.ErrForeign)
	}
	if err := e.insert(ctx, images[0]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = e.do(func() error {
		for i, m := range images[1:] {
			if m == nil {
				continue
			}
			if seq, err := places[1+i].Cache.Reserve(m); err == nil {
				seq.Fill(m)
				seq.Release(m.IDs)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return images[0].IDs, nil
}

// insert makes a sequence known to the prefix cache, as soon as the blocks for it are free and it is its turn.
func (e *Engine) insert(ctx context.Context, m *kvcache.Image) error {
	turn := &run{}
	if err := e.lineUp(turn); err != nil {
		return err
	}
	var seq *kvcache.Seq
	err := e.patiently(ctx, func() (err error) {
		if !e.isNext(turn) {
			return errLater
		}
		lack := func() int { return e.beyond(blocksFor(len(m.IDs))) }
		if e.sendAway(0, lack); len(e.active) > 0 && lack() > 0 {
			return errLater
		}
		if seq, err = e.cache.Reserve(m); err == nil {
			e.hold()
		} else if len(e.active)+e.nSearches+e.held > 0 {
			e.sendAway(0, func() int { return 1 }) // blocks are free, but in other pools or not in a row
			err = errLater
		}
		return err
	})
	e.leaveLine(turn)
	if err != nil {
		return err
	}
	seq.Fill(m)
	return e.letGo(func() { seq.Release(m.IDs) })
}

// hold notes in the loop that another goroutine copies a sequence: the caches stay until letGo, which frees it in the loop
// unless the engine is closed.
func (e *Engine) hold() {
	e.held++
	e.holders.Add(1)
}

func (e *Engine) letGo(free func()) error {
	e.holders.Done()
	return e.do(func() error {
		e.held--
		free()
		return nil
	})
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

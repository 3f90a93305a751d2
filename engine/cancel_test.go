package engine

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/tensor"
)

// errGone is why a caller leaves.
var errGone = errors.New("the reader left")

// leaver cancels a request at a point of its life and sees how many passes begin before it is gone.
type leaver struct {
	e       *Engine
	victims []*run
	leave   context.CancelCauseFunc
	at      func(r *run, queued bool) bool // in the loop, when a pass is about to run
	left    bool
	late    int // passes that began after the one in which it left, with some of it still there
}

// watch looks at the requests when a pass begins. It runs in the loop.
func (l *leaver) watch() {
	e := l.e
	for _, r := range l.victims {
		e.mu.Lock()
		queued := slices.Contains(e.queue, r)
		e.mu.Unlock()
		there := queued || slices.Contains(e.active, r)
		switch {
		case there && l.left:
			l.late++
		case there && l.at(r, queued):
			l.leave(errGone)
			defer func() { l.left = true }() // the others of this pass may be there still
		}
	}
}

// TestLeavingEndsWithinOnePass lets callers leave at every point of a request's life, beside a neighbour that goes on: before the
// second pass after that begins, nothing of the request is left, and the neighbour's tokens are what they always are.
func TestLeavingEndsWithinOnePass(t *testing.T) {
	neighbour := request(7, 12, 300)
	neighbour.Reproducible = true
	want := whole(t, submit(t, openWritten(t, Options{Context: 512}, nil), neighbour))
	for name, c := range map[string]struct {
		change  func(o *Options)
		request Request
		choices int
		unread  bool
		at      func(r *run, queued bool) bool
	}{
		"queued": {
			change: func(o *Options) { o.MaxRunning = 1 }, request: request(1, 40, 20),
			at: func(_ *run, queued bool) bool { return queued },
		},
		"queued after preemption": {
			change: func(o *Options) { o.KVTokens = 512 }, request: request(1, 250, 200),
			at: func(r *run, queued bool) bool { return queued && r.emitted() > 0 },
		},
		"prefill": {
			request: request(1, 300, 20), at: func(r *run, queued bool) bool { return !queued && r.seq.Len() > 16 && r.emitted() == 0 },
		},
		"the middle of a prompt of 8,000 tokens": {
			change:  func(o *Options) { o.Context, o.KVTokens, o.Chunk = 8192, 8192+512, 256 },
			request: request(1, 8000, 20), at: func(r *run, queued bool) bool { return !queued && r.seq.Len() > 4000 && r.emitted() == 0 },
		},
		"decode":  {request: request(1, 30, 200), at: func(r *run, _ bool) bool { return r.emitted() == 5 }},
		"stream":  {request: request(1, 30, 400), unread: true, at: func(r *run, _ bool) bool { return r.paused() }},
		"choices": {request: request(1, 60, 200), choices: 3, at: func(r *run, _ bool) bool { return r.emitted() == 3 }},
		"choices that wait for the prompt": {
			request: request(1, 300, 20), choices: 3, at: func(r *run, queued bool) bool { return !queued && r.seq.Len() > 16 },
		},
		"verification": {
			change:  func(o *Options) { o.Spec = SpecOptions{Fixed: 4, Drafter: &scripted{guess: steady}} },
			request: request(1, 30, 200), at: func(r *run, queued bool) bool { return !queued && r.spec.tree.Len() > 0 && r.emitted() > 5 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Context: 512, KVTokens: 1024, Chunk: 16}
			if c.change != nil {
				c.change(&o)
			}
			e := openWritten(t, o, nil)
			ctx, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			l := &leaver{e: e, leave: leave, at: c.at}
			inner := e.forward
			e.forward = func(b *model.Batch) (tensor.F32, error) {
				l.watch()
				return inner(b)
			}
			open := gate(t, e)
			beside := submit(t, e, neighbour)
			until(t, "the neighbour runs", func() bool { return waiting(e) == 0 })
			if name == "queued after preemption" {
				c.request.Priority = -1
			}
			tickets, err := e.SubmitChoices(ctx, c.request, max(1, c.choices), nil)
			require.NoError(t, err)
			for _, ticket := range tickets {
				l.victims = append(l.victims, ticket.r)
			}
			open()
			got := whole(t, beside)
			for _, ticket := range tickets {
				last := lastToken(t, ticket)
				require.Equal(t, FinishCancelled, last.Finish)
				require.ErrorIs(t, last.Err, errGone)
			}
			require.Equal(t, want, got, "the neighbour")
			require.NoError(t, e.Close())
			require.True(t, l.left)
			require.Zero(t, l.late, "passes that began with the request still there")
			require.Equal(t, e.idleBlocks, e.cache.FreeBlocks())
		})
	}
}

// TestLeavingBetweenDraftAndVerification leaves while guesses are made: the pass that checks them is the last one.
func TestLeavingBetweenDraftAndVerification(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	passes, asked := 0, 0
	d := &scripted{guess: func(d *scripted, r *drafter.Round) {
		steady(d, r)
		if asked++; asked == 4 {
			passes = 0
			leave(errGone)
		}
	}}
	e := openWritten(t, Options{Context: 256, Spec: SpecOptions{Fixed: 4, Drafter: d}}, nil)
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		passes++
		return inner(b)
	}
	ticket, err := e.Submit(ctx, request(1, 30, 200))
	require.NoError(t, err)
	last := lastToken(t, ticket)
	require.ErrorIs(t, last.Err, errGone)
	require.NoError(t, e.Close())
	require.LessOrEqual(t, passes, 1+2, "the pass, and the two of a calibration that may have been due")
	require.Zero(t, d.open, "draft sessions")
}

// TestLeavingWithNothingElseToDo ends answers that wait for their reader, and searches, in an engine that runs no pass.
func TestLeavingWithNothingElseToDo(t *testing.T) {
	e := openWritten(t, Options{Context: 512}, nil)
	ctx, leave := context.WithCancelCause(t.Context())
	ticket, err := e.Submit(ctx, request(1, 30, 400))
	require.NoError(t, err)
	until(t, "the answer waits for its reader", func() bool { return len(ticket.out) >= outBuffer-maxGuesses-1 })
	leave(errGone)
	n, last := 0, Token{}
	for tok, ok := receive(t, ticket.Tokens()); ok; tok, ok = receive(t, ticket.Tokens()) {
		n, last = n+1, tok
	}
	require.ErrorIs(t, last.Err, errGone)
	require.LessOrEqual(t, n, outBuffer)

	ctx, leave = context.WithCancelCause(t.Context())
	passes, inner := 0, e.forward
	require.NoError(t, e.do(func() error {
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			if passes++; passes == 4 {
				leave(errGone)
			}
			return inner(b)
		}
		return nil
	}))
	_, err = e.Beams(ctx, request(2, 30, 100), beams(3, 1))
	require.ErrorIs(t, err, errGone)
	require.Equal(t, 4, passes)
}

package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/model"
	"quickdraft/tensor"
)

// countLate counts the passes that a request is part of though its caller had left before the pass before. The count belongs to
// the loop.
func countLate(e *Engine) *int {
	late, left, inner := new(int), map[*run]bool{}, e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		for _, r := range e.active {
			if left[r] {
				*late++
			}
			left[r] = r.ctx.Err() != nil
		}
		return inner(b)
	}
	return late
}

// leaveAtRandom submits n requests one after another and leaves each within 8 ms. It counts those that were not over before.
func leaveAtRandom(t *testing.T, e *Engine, rng *rand.Rand, n int, left *atomic.Int64) {
	for i := range n {
		ctx, leave := context.WithCancelCause(t.Context())
		ticket, err := e.Submit(ctx, request(i, 1+rng.IntN(180), -1))
		if err != nil {
			t.Errorf("refused: %v", err)
			leave(nil)
			return
		}
		time.AfterFunc(time.Duration(rng.IntN(8000))*time.Microsecond, func() { leave(errGone) })
		for {
			tok, ok, err := await(ticket.Tokens())
			if err != nil {
				t.Error(err)
			}
			if !ok {
				break
			}
			if errors.Is(tok.Err, errGone) {
				left.Add(1)
			}
		}
	}
}

// answerUntil asks the same again and again until it is over, and wants the same answer.
func answerUntil(t *testing.T, e *Engine, r Request, want []Token, over *atomic.Bool) {
	for last := false; !last; {
		last = over.Load()
		ticket, err := e.Submit(t.Context(), r)
		if err != nil {
			t.Errorf("refused: %v", err)
			return
		}
		var got []Token
		for tok := range ticket.Tokens() {
			got = append(got, tok)
		}
		if !slices.EqualFunc(got, want, func(a, b Token) bool { return a.ID == b.ID && a.Finish == b.Finish }) {
			t.Errorf("beside callers that leave: %v, alone: %v", got, want)
		}
	}
}

// TestFiveHundredCancels leaves 500 requests at random moments of their lives, beside neighbours that go on: none is there for more
// than the pass that ran when its caller left, the neighbours answer what they always do, and nothing is left of any.
func TestFiveHundredCancels(t *testing.T) {
	const callers, each, nNeighbours = 10, 50, 4
	for name, d := range map[string]*scripted{"plain": nil, "guesses": {guess: steady}} {
		o := Options{Context: 256, KVTokens: 768, MaxRunning: 8, Chunk: 32}
		if d != nil {
			o.Spec = SpecOptions{Fixed: 4, Drafter: d}
		}
		e := openWritten(t, o, nil)
		var neighbours [nNeighbours]Request
		var want [nNeighbours][]Token
		for n := range want {
			neighbours[n] = request(100+n, 12, 60)
			neighbours[n].Reproducible = true
			want[n] = whole(t, submit(t, e, neighbours[n]))
		}
		late := countLate(e)
		var left atomic.Int64
		var over atomic.Bool
		var leaving, staying sync.WaitGroup
		for n := range nNeighbours {
			staying.Go(func() { answerUntil(t, e, neighbours[n], want[n], &over) })
		}
		for caller := range callers {
			leaving.Go(func() { leaveAtRandom(t, e, rand.New(rand.NewPCG(uint64(caller), 5)), each, &left) })
		}
		leaving.Wait()
		over.Store(true)
		staying.Wait()
		require.Greater(t, left.Load(), int64(callers*each/2), name)
		require.NoError(t, e.Close())
		require.Zero(t, *late, name)
		require.Empty(t, e.active)
		require.Empty(t, e.queue)
		require.Equal(t, e.idleBlocks, e.cache.FreeBlocks(), name)
		if d != nil {
			require.Zero(t, d.open, "draft sessions")
		}
	}
}

package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/tensor"
)

// patience is how long tests wait for a token. Passes of the tiny models take milliseconds, so an engine that is silent for
// that long hangs, on a slow and busy machine too.
const patience = 5 * time.Minute

// receive is the next token of an answer; ok is false at its end.
func receive(t testing.TB, tokens <-chan Token) (tok Token, ok bool) {
	t.Helper()
	tok, ok, err := await(tokens)
	require.NoError(t, err)
	return tok, ok
}

// lastToken reads an answer to its end, whichever that is.
func lastToken(t testing.TB, ticket *Ticket) (last Token) {
	t.Helper()
	for tok, ok := receive(t, ticket.Tokens()); ok; tok, ok = receive(t, ticket.Tokens()) {
		last = tok
	}
	return last
}

// await is receive for goroutines that must not end the test.
func await(tokens <-chan Token) (tok Token, ok bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case tok, ok = <-tokens:
		return tok, ok, nil
	case <-timer.C:
		return tok, false, fmt.Errorf("no token for %v: the engine hangs", patience)
	}
}

// extent is how far passes went.
type extent struct {
	tokens, spans int // most tokens and requests of a pass
	running       int // most requests that hold a place
	position      int // longest sequence after a pass
	starts        map[*kvcache.Seq]bool
}

// measure notes how far the passes of an engine go.
func measure(e *Engine) *extent {
	x := &extent{starts: map[*kvcache.Seq]bool{}}
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		x.tokens, x.spans, x.running = max(x.tokens, len(b.Tokens)), max(x.spans, len(b.Spans)), max(x.running, len(e.active))
		for _, s := range b.Spans {
			x.position = max(x.position, s.Seq.Len()+s.N)
			x.starts[s.Seq] = true
		}
		return inner(b)
	}
	return x
}

// gate lets passes run only once open is called, at the latest when the test ends.
func gate(t testing.TB, e *Engine) (open func()) {
	shut := make(chan struct{})
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		<-shut
		return inner(b)
	}
	open = sync.OnceFunc(func() { close(shut) })
	t.Cleanup(open)
	return open
}

// waiting returns how many requests queue up.
func waiting(e *Engine) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue)
}

// until waits for a condition that the engine brings about.
func until(t testing.TB, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%s: not after %v", what, patience)
	}
}

// TestPassesGoToTheirLimits wants passes as wide and as full as the options allow and no wider, with and without guesses.
func TestPassesGoToTheirLimits(t *testing.T) {
	for _, chunk := range []int{1, 2, 7, 16, 33} {
		for _, running := range []int{1, 3, 8} {
			for _, fixed := range []int{0, 3} {
				o := Options{Context: 96, KVTokens: 8 * 96, Chunk: chunk, MaxRunning: running, NoPrefix: true}
				if fixed > 0 {
					o.Spec = SpecOptions{Fixed: fixed, Drafter: &scripted{guess: steady}}
				}
				e := openWritten(t, o, nil)
				x := measure(e)
				open := gate(t, e)
				var tickets []*Ticket
				for n := range 9 {
					r := request(n, 40, 56) // to the last position of the context
					r.Reproducible = true
					tickets = append(tickets, submit(t, e, r))
				}
				open()
				for _, ticket := range tickets {
					require.Len(t, whole(t, ticket), 57)
				}
				require.NoError(t, e.Close())
				name := fmt.Sprintf("chunk %d, %d requests, %d guesses", chunk, running, fixed)
				require.Equal(t, chunk, x.tokens, "%s: tokens of the largest pass", name)
				require.Equal(t, running, x.running, "%s: requests beside each other", name)
				require.LessOrEqual(t, x.spans, min(running, chunk), name)
				require.Equal(t, 95, x.position, "%s: the last token of an answer needs no pass", name)
				if fixed == 0 {
					require.Len(t, x.starts, 9, "%s: nothing was preempted", name)
				}
			}
		}
	}
}

// TestChoicesKeepToThePlaces gives choices no more places than there are.
func TestChoicesKeepToThePlaces(t *testing.T) {
	for _, running := range []int{1, 2, 3, 5} {
		e := openWritten(t, Options{Context: 96, KVTokens: 8 * 96, MaxRunning: running}, nil)
		x := measure(e)
		tickets, err := e.SubmitChoices(t.Context(), request(1, 20, 30), 5, nil)
		require.NoError(t, err)
		for _, ticket := range tickets {
			require.Len(t, whole(t, ticket), 31)
		}
		require.NoError(t, e.Close())
		require.Equal(t, running, x.running)
	}
}

// TestAnUnreadAnswerHoldsNobodyUp leaves an answer in its buffer, which is as long as the answer, or shorter by a token and more:
// another one comes meanwhile, and then the rest of the first.
func TestAnUnreadAnswerHoldsNobodyUp(t *testing.T) {
	for _, n := range []int{1, outBuffer - 2, outBuffer - 1, outBuffer, outBuffer + 1, outBuffer + 100} {
		e := openWritten(t, Options{Context: 512, KVTokens: 1024, MaxRunning: 2}, nil)
		unread := submit(t, e, request(1, 10, n))
		until(t, "the answer fills its buffer or waits", func() bool { return len(unread.out) >= min(n, outBuffer-maxGuesses-1) })
		for range 3 {
			require.Len(t, whole(t, submit(t, e, request(2, 20, 30))), 31)
		}
		require.Len(t, whole(t, unread), n+1)
	}
}

// TestTheQueueHasItsLimit lets exactly as many requests wait as the options say.
func TestTheQueueHasItsLimit(t *testing.T) {
	for _, limit := range []int{1, 2, 5} {
		e := openWritten(t, Options{Context: 96, MaxRunning: 1, QueueLimit: limit}, nil)
		open := gate(t, e)
		tickets := []*Ticket{submit(t, e, request(0, 20, 5))}
		until(t, "the first request runs", func() bool { return waiting(e) == 0 })
		for n := range limit {
			tickets = append(tickets, submit(t, e, request(n, 20, 5)))
		}
		_, err := e.Submit(context.Background(), request(9, 20, 5))
		require.ErrorIs(t, err, ErrQueueFull)
		require.ErrorContains(t, err, fmt.Sprintf("%d requests wait, the limit", limit))
		open()
		for _, ticket := range tickets {
			require.Len(t, whole(t, ticket), 6)
		}
	}
}

// TestBlocksAreCountedExactly gives the cache just the blocks that some requests need, or one less: as many run beside each
// other as fit, and none starts that would have to make way before it has come to its first token.
func TestBlocksAreCountedExactly(t *testing.T) {
	const context = 64 // 4 blocks, the least that the cache has
	for _, c := range []struct{ prompt, out, blocks, beside, starts int }{
		{15, 2, 7, 6, 6}, // a request counts with one token more than it has: the first with 17, the others with 16
		{15, 2, 6, 5, 6},
		{16, 16, 6, 3, 6}, // two blocks each
		{16, 16, 5, 2, 6},
		{31, 2, 7, 3, 6}, // the first counts with 33 tokens, the others with 32
		{31, 2, 6, 2, 6},
		{31, 2, 5, 2, 6},
		{31, 2, 4, 2, 6},
		{32, 1, 6, 2, 6}, // 33 each
		{32, 1, 5, 1, 6},
		{40, 24, 8, 2, 6}, // three blocks each at first and four at the end
		{40, 24, 7, 2, -1},
	} {
		e := openWritten(t, Options{Context: context, KVTokens: 16 * c.blocks, MaxRunning: 8, NoPrefix: true, StallTarget: time.Hour}, nil) // prompts are read whole
		require.Equal(t, c.blocks, e.cache.FreeBlocks())
		x := measure(e)
		open := gate(t, e)
		first := submit(t, e, request(0, c.prompt, c.out))
		until(t, "the first request runs", func() bool { return waiting(e) == 0 })
		tickets := []*Ticket{first}
		for n := 1; n < 6; n++ {
			tickets = append(tickets, submit(t, e, request(n, c.prompt, c.out)))
		}
		open()
		for _, ticket := range tickets {
			require.Len(t, whole(t, ticket), c.out+1)
		}
		require.NoError(t, e.Close())
		if c.starts < 0 {
			require.Greater(t, len(x.starts), 6, "%+v: some make way", c)
		} else {
			require.Len(t, x.starts, c.starts, "%+v: starts", c)
		}
		require.Equal(t, c.beside, x.running, "%+v: requests beside each other", c)
	}
}

// TestEveryLengthOfAnswer wants exactly the tokens that were asked for, or as many as the context holds.
func TestEveryLengthOfAnswer(t *testing.T) {
	const context = 33
	for _, guesses := range []bool{false, true} {
		o := Options{Context: context, MaxRunning: 4}
		if guesses {
			o.Spec = SpecOptions{Fixed: 5, Drafter: &scripted{guess: steady}}
		}
		e := openWritten(t, o, nil)
		for _, prompt := range []int{1, 2, 15, 16, 17, context - 2, context - 1} {
			for _, out := range []int{0, 1, 2, 3, context - prompt - 1, context - prompt, context - prompt + 1, 1 << 31, -1} {
				r := request(prompt, prompt, out)
				want := out
				if out < 0 || out > context-prompt {
					want = context - prompt
				}
				ids, why := answer(t, e, r)
				require.Len(t, ids, want, "prompt of %d, %d tokens asked for", prompt, out)
				require.Equal(t, FinishLength, why)
			}
		}
		ids, _ := answer(t, e, request(1, context, 0))
		require.Empty(t, ids)
		for _, r := range []Request{request(1, context, 1), request(1, context, -1), request(1, context+1, 0)} {
			_, err := e.Submit(t.Context(), r)
			require.ErrorContains(t, err, fmt.Sprintf("%d tokens do not fit a context of %d", len(r.Prompt), context))
		}
	}
}

// steady guesses as many tokens as it may, in a chain.
func steady(_ *scripted, r *drafter.Round) {
	parent := int32(-1)
	for range r.Budget.Nodes {
		parent = r.Tree.Add(r.IDs[len(r.IDs)-1], parent, nil)
	}
}

package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/sample"
)

// openTiny opens one of the random-weight models of the golden set.
func openTiny(t testing.TB, o Options) *Engine {
	t.Helper()
	return open(t, filepath.Join(golden.Dir(t, "archs"), "llama3-rope"), o)
}

// answer collects a whole answer.
func answer(t testing.TB, e *Engine, req Request) ([]int32, Finish) {
	t.Helper()
	ticket, err := e.Submit(context.Background(), req)
	require.NoError(t, err)
	return drain(t, ticket)
}

func drain(t testing.TB, ticket *Ticket) (ids []int32, why Finish) {
	t.Helper()
	for tok, ok := receive(t, ticket.Tokens()); ok; tok, ok = receive(t, ticket.Tokens()) {
		if tok.HasID {
			ids = append(ids, tok.ID)
		}
		if tok.Finish != "" {
			require.NoError(t, tok.Err)
			why = tok.Finish
		}
	}
	return ids, why
}

// request makes a request whose prompt and sampling follow from n alone.
func request(n, nPrompt, nOut int) Request {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	p := sample.Default()
	p.Temperature, p.Seed = 0.8, uint64(n)
	req := Request{MaxTokens: nOut, IgnoreEOS: true, Sampling: p}
	for range nPrompt {
		req.Prompt = append(req.Prompt, int32(rng.IntN(200)))
	}
	return req
}

func TestAnswersDoNotDependOnNeighboursChunksOrPreemption(t *testing.T) {
	alone := openTiny(t, Options{Context: 128, Threads: 1})
	var want [][]int32
	for n := range 8 {
		ids, why := answer(t, alone, request(n, 5+9*n, 30))
		require.Equal(t, FinishLength, why)
		require.Len(t, ids, 30)
		want = append(want, ids)
	}
	for _, o := range []Options{
		{Context: 128, KVTokens: 2048},
		{Context: 128, KVTokens: 2048, Chunk: 7},
		{Context: 128, KVTokens: 160}, // too few blocks for all: requests are preempted and recomputed
	} {
		e := openTiny(t, o)
		var tickets []*Ticket
		for n := range want {
			ticket, err := e.Submit(context.Background(), request(n, 5+9*n, 30))
			require.NoError(t, err)
			tickets = append(tickets, ticket)
		}
		for n, ticket := range tickets {
			ids, why := drain(t, ticket)
			require.Equal(t, FinishLength, why)
			require.Equal(t, want[n], ids, "request %d with options %+v", n, o)
		}
	}
}

func TestLimits(t *testing.T) {
	e := openTiny(t, Options{Context: 64})
	for _, c := range []struct {
		name        string
		nPrompt, in int
		nOut        int
		why         Finish
	}{
		{"prefill only", 10, 0, 0, FinishLength},
		{"one token", 10, 1, 1, FinishLength},
		{"two tokens", 10, 2, 2, FinishLength},
		{"as many as fit", 10, -1, 54, FinishLength},
		{"more than fit", 10, 1 << 30, 54, FinishLength},
		{"one free position", 63, 5, 1, FinishLength},
		{"full context, prefill only", 64, 0, 0, FinishLength},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, why := answer(t, e, request(1, c.nPrompt, c.in))
			require.Len(t, ids, c.nOut)
			require.Equal(t, c.why, why)
		})
	}
}

func TestBadRequestsAreRefusedBeforeAnyWork(t *testing.T) {
	e := openTiny(t, Options{Context: 64})
	bad := func(change func(*Request)) Request {
		r := request(1, 4, 4)
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		req  Request
		want string
	}{
		"empty prompt":   {bad(func(r *Request) { r.Prompt = nil }), "prompt: 0 tokens"},
		"too long":       {request(1, 65, 0), "65 tokens"},
		"no room":        {request(1, 64, 1), "64 tokens"},
		"unknown token":  {bad(func(r *Request) { r.Prompt[2] = 1 << 20 }), "prompt[2]: token 1048576"},
		"negative token": {bad(func(r *Request) { r.Prompt[0] = -1 }), "prompt[0]: token -1"},
		"bad sampling":   {bad(func(r *Request) { r.Sampling.TopP = 7 }), "top_p"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Submit(context.Background(), c.req)
			require.ErrorContains(t, err, c.want)
		})
	}
}

type stopAt struct{ n int }

func (s *stopAt) Accept(int32) bool { s.n--; return s.n == 0 }

func TestStopperAndEndOfGeneration(t *testing.T) {
	e := openTiny(t, Options{Context: 64})
	req := request(3, 8, 20)
	full, _ := answer(t, e, req)
	req.Stop = &stopAt{n: 5}
	ids, why := answer(t, e, req)
	require.Equal(t, full[:5], ids)
	require.Equal(t, FinishStop, why)

	req = request(3, 8, 20)
	req.IgnoreEOS, req.EOG = false, []int32{full[7]}
	ids, why = answer(t, e, req)
	require.Equal(t, FinishStop, why)
	require.Equal(t, full[7], ids[len(ids)-1])
	require.NotContains(t, ids[:len(ids)-1], full[7])
}

func TestCancelFreesEverything(t *testing.T) {
	e := openTiny(t, Options{Context: 128, KVTokens: 256, MaxRunning: 2})
	rng := rand.New(rand.NewPCG(1, 2))
	var tickets []*Ticket
	var cancels []context.CancelFunc
	for n := range 60 {
		ctx, cancel := context.WithCancel(context.Background())
		ticket, err := e.Submit(ctx, request(n, 1+rng.IntN(60), 1+rng.IntN(60)))
		require.NoError(t, err)
		tickets, cancels = append(tickets, ticket), append(cancels, cancel)
	}
	go func() {
		for _, cancel := range cancels {
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
			cancel()
		}
	}()
	for _, ticket := range tickets {
		ended := false
		for tok := range ticket.Tokens() {
			if tok.Finish != "" {
				ended = true
				require.Contains(t, []Finish{FinishLength, FinishCancelled}, tok.Finish)
				require.Equal(t, tok.Finish == FinishCancelled, errors.Is(tok.Err, context.Canceled))
			}
		}
		require.True(t, ended)
	}
	ids, _ := answer(t, e, request(5, 20, 10)) // the engine still works and is empty
	require.Len(t, ids, 10)
	require.NoError(t, e.Close())
	require.Equal(t, e.cache.Blocks(), e.cache.FreeBlocks())
}

func TestGenerateStopsWhenTheLoopIsLeft(t *testing.T) {
	e := openTiny(t, Options{Context: 128})
	n := 0
	for _, err := range e.Generate(context.Background(), request(1, 4, 100)) {
		require.NoError(t, err)
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n)
	require.ErrorIs(t, func() error {
		require.NoError(t, e.Close())
		_, err := e.Submit(context.Background(), request(1, 4, 4))
		return err
	}(), ErrClosed)
}

func TestQueueLimit(t *testing.T) {
	e := openTiny(t, Options{Context: 128, MaxRunning: 1, QueueLimit: 1})
	gate(t, e)
	var refused error
	for n := range 50 {
		if _, err := e.Submit(context.Background(), request(n, 60, 60)); err != nil {
			refused = err
		}
	}
	require.ErrorIs(t, refused, ErrQueueFull)
}

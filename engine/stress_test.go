package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

// tally counts how requests ended.
type tally struct {
	mu                           sync.Mutex
	finished, cancelled, refused int
}

func (c *tally) add(what *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what++
}

// kind makes one of the requests whose answers are known; n and choice decide everything.
func kind(n, choice int) Request {
	r := request(n, 1+(n*37)%90, 40)
	if n%3 == 0 { // families with a common beginning
		copy(r.Prompt, request(0, 90, 0).Prompt[:min(len(r.Prompt), 50)])
	}
	r.Sampling.Seed = sample.ChoiceSeed(uint64(n), choice)
	r.Reproducible = true
	return r
}

// TestTwoThousandRequests throws requests of random length, priority and patience at an engine whose blocks do not
// suffice: each ends with its own tokens or is refused with a reason, and nothing is left behind.
func TestTwoThousandRequests(t *testing.T) {
	const kinds, choices, clients = 24, 2, 16
	nRequests := 2000
	if testing.Short() {
		nRequests = 300
	}
	var want [kinds][choices][]int32
	alone := openWritten(t, Options{Context: 160, NoPrefix: true}, nil)
	for n := range kinds {
		for c := range choices {
			want[n][c], _ = answer(t, alone, kind(n, c))
		}
	}
	d := &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: randomTree}
	e := openWritten(t, Options{Context: 160, KVTokens: 400, MaxRunning: 8, QueueLimit: 12, Spec: SpecOptions{Drafter: d, NMax: 4, Fixed: 4}}, nil)
	before := goroutines()
	var count tally
	var wait sync.WaitGroup
	for client := range clients {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 99))
			for range nRequests / clients {
				stressOne(t, e, rng, &count, func(n, c int) []int32 { return want[n][c] })
			}
		})
	}
	wait.Wait()
	t.Logf("%d answers finished, %d cancelled, %d requests refused", count.finished, count.cancelled, count.refused)
	require.Greater(t, count.finished, nRequests/4)
	require.Greater(t, count.cancelled, nRequests/20)
	require.Positive(t, count.refused)
	require.NoError(t, e.do(func() error { // in the loop, which owns all this
		if len(e.queue) > 0 || len(e.active) > 0 || d.open > 0 {
			return fmt.Errorf("%d requests wait, %d run, %d draft sessions are open", len(e.queue), len(e.active), d.open)
		}
		if free := e.cache.FreeBlocks(); free != e.idleBlocks {
			return fmt.Errorf("%d of %d blocks are free", free, e.idleBlocks)
		}
		return e.cache.CheckIntegrity()
	}))
	// A busy machine takes its time to run what has to end, and a minute is no reason to fail.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		after := goroutines()
		maps.DeleteFunc(after, func(origin string, n int) bool { return n <= before[origin] })
		if len(after) == 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "goroutines left behind, by what started them: %v", after)
	}
}

// goroutines counts the goroutines in this module's code, by what started them. Those of the runtime come and go on their own.
func goroutines() map[string]int {
	buf := make([]byte, 1<<20)
	for n := runtime.Stack(buf, true); n == len(buf); n = runtime.Stack(buf, true) {
		buf = make([]byte, 2*len(buf))
	}
	counts := map[string]int{}
	for stack := range strings.SplitSeq(strings.TrimRight(string(buf), "\x00"), "\n\n") {
		_, origin, started := strings.Cut(stack, "created by ")
		origin, _, _ = strings.Cut(origin, " in goroutine")
		if started && strings.Contains(stack, "quickdraft/") && !strings.HasPrefix(origin, "testing.") {
			counts[origin]++
		}
	}
	return counts
}

// stressOne submits one random request and checks whatever comes of it.
func stressOne(t *testing.T, e *Engine, rng *rand.Rand, count *tally, want func(n, choice int) []int32) {
	n := rng.IntN(24)
	r := kind(n, 0)
	r.Sampling.Seed = uint64(n)
	r.MaxTokens = rng.IntN(41)
	r.Priority = rng.IntN(3)
	r.NoSpec = rng.IntN(2) == 0
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience := time.Duration(-1)
	if rng.IntN(4) == 0 {
		patience = time.Duration(rng.IntN(20000)) * time.Microsecond
		defer time.AfterFunc(patience, cancel).Stop()
	}
	tickets, err := e.SubmitChoices(ctx, r, 1+rng.IntN(2), nil)
	if err != nil {
		if !errors.Is(err, ErrQueueFull) {
			t.Errorf("refused without a good reason: %v", err)
		}
		count.add(&count.refused)
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		return
	}
	for choice, ticket := range tickets {
		var ids []int32
		var last Token
		for {
			tok, ok, err := await(ticket.Tokens())
			if err != nil {
				t.Errorf("request %d, choice %d: %v", n, choice, err)
			}
			if !ok {
				break
			}
			if last = tok; tok.HasID {
				ids = append(ids, tok.ID)
			}
		}
		full := want(n, choice)
		if len(ids) > r.MaxTokens || !slices.Equal(ids, full[:len(ids)]) {
			t.Errorf("request %d, choice %d: tokens %v, want the first of %v", n, choice, ids, full)
		}
		switch {
		case last.Finish == FinishLength && len(ids) == r.MaxTokens:
			count.add(&count.finished)
		case last.Finish == FinishCancelled && patience >= 0 && errors.Is(last.Err, context.Canceled):
			count.add(&count.cancelled)
		default:
			t.Errorf("request %d, choice %d ended after %d of %d tokens: %q, %v", n, choice, len(ids), r.MaxTokens, last.Finish, last.Err)
		}
	}
}

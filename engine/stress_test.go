package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
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
	r.Reproducible, r.Logprobs, r.TopLogprobs = true, true, 2
	r.Sampling.LogprobsAfter = n%2 == 1
	return r
}

// stressSearch makes one of the beam searches whose results are known.
func stressSearch(n int) (Request, BeamOptions) { return beamRequest(n, 10+13*n, 6), beams(3, 1) }

const nSearchKinds = 4

// known is what the requests of the stress give alone.
type known struct {
	answers [24][2][]Token
	beams   [nSearchKinds][]Beam
}

// TestTwoThousandRequests throws requests of random length, priority and patience at engines whose blocks do not suffice, with
// log probabilities, choices, beam searches, guesses, sliding windows and an 8-bit cache: each ends with its own tokens, some are
// refused with a reason before, and nothing is left behind.
func TestTwoThousandRequests(t *testing.T) {
	for name, c := range map[string]struct {
		arch string
		o    Options
		spec func() SpecOptions
	}{
		"random guesses": {"llama3-rope", Options{}, func() SpecOptions {
			return SpecOptions{Drafter: &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: randomTree}, NMax: 4, Fixed: 4}
		}},
		"sliding windows, 8 bits, a draft model": {"gemma3-text", Options{CacheTypeK: "q8_0", CacheTypeV: "q8_0"}, func() SpecOptions {
			return SpecOptions{Open: withDrafter(t, "draft+ngram", nil), NMax: 4}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			o.Context, o.Threads = 160, 1
			quiet := o
			quiet.NoPrefix = true
			quiet.KVTokens = 640
			alone := openArch(t, c.arch, quiet)
			var want known
			for n := range want.answers {
				for choice := range want.answers[n] {
					want.answers[n][choice] = whole(t, submit(t, alone, kind(n, choice)))
				}
			}
			for n := range want.beams {
				r, b := stressSearch(n)
				found, err := alone.Beams(t.Context(), r, b)
				require.NoError(t, err)
				want.beams[n] = found
			}
			o.KVTokens, o.MaxRunning, o.QueueLimit, o.Spec, o.SelfCheck = 400, 8, 12, c.spec(), true
			stress(t, openArch(t, c.arch, o), &want)
		})
	}
}

// stress runs the requests and looks at what is left.
func stress(t *testing.T, e *Engine, want *known) {
	const clients = 16
	nRequests := 2000
	if testing.Short() {
		nRequests = 300
	}
	before := goroutines()
	var count tally
	var wait sync.WaitGroup
	for client := range clients {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 99))
			for range nRequests / clients {
				stressOne(t, e, rng, &count, want)
			}
		})
	}
	wait.Wait()
	t.Logf("%d answers finished, %d cancelled, %d requests refused", count.finished, count.cancelled, count.refused)
	require.Greater(t, count.finished, nRequests/4)
	require.Greater(t, count.cancelled, nRequests/20)
	require.Positive(t, count.refused)
	require.NoError(t, e.do(func() error { // in the loop, which owns all this
		if len(e.queue) > 0 || len(e.active) > 0 || e.nSearches > 0 || e.searches.claimed > 0 || len(e.searches.waiting) > 0 {
			return fmt.Errorf("%d requests wait, %d run; of searches %d wait, %d run", len(e.queue), len(e.active), len(e.searches.waiting), e.nSearches)
		}
		if d, ok := e.opts.Spec.Drafter.(*scripted); ok && d.open > 0 {
			return fmt.Errorf("%d draft sessions are open", d.open)
		}
		e.check(true)
		if free := e.cache.FreeBlocks(); free != e.idleBlocks {
			return fmt.Errorf("%d of %d blocks are free", free, e.idleBlocks)
		}
		return e.cache.CheckIntegrity()
	}))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
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
func stressOne(t *testing.T, e *Engine, rng *rand.Rand, count *tally, want *known) {
	if rng.IntN(12) == 0 {
		stressBeams(t, e, rng, count, want)
		return
	}
	n := rng.IntN(24)
	r := kind(n, 0)
	if rng.IntN(2) == 0 {
		r.Logprobs, r.TopLogprobs = false, 0
	}
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
	nChoices := 1 + rng.IntN(2)
	tickets, err := e.SubmitChoices(ctx, r, nChoices, nil)
	for errors.Is(err, ErrQueueFull) { // it comes again, or most would be refused where the engine is slow
		count.add(&count.refused)
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		tickets, err = e.SubmitChoices(ctx, r, nChoices, nil)
	}
	if err != nil {
		t.Errorf("refused without a good reason: %v", err)
		return
	}
	for choice, ticket := range tickets {
		var got []Token
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
				got = append(got, tok)
			}
		}
		full := slices.Clone(want.answers[n][choice][:min(len(got), 40)])
		for i := range full {
			if !r.Logprobs {
				full[i] = Token{ID: full[i].ID, HasID: true}
			}
		}
		if len(got) > r.MaxTokens || len(got) > 0 && !reflect.DeepEqual(got, full) {
			t.Errorf("request %d, choice %d: tokens %v, want %v", n, choice, got, full)
		}
		switch {
		case last.Finish == FinishLength && len(got) == r.MaxTokens:
			count.add(&count.finished)
		case last.Finish == FinishCancelled && patience >= 0 && errors.Is(last.Err, context.Canceled):
			count.add(&count.cancelled)
		default:
			t.Errorf("request %d, choice %d ended after %d of %d tokens: %q, %v", n, choice, len(got), r.MaxTokens, last.Finish, last.Err)
		}
	}
}

// stressBeams runs one random beam search.
func stressBeams(t *testing.T, e *Engine, rng *rand.Rand, count *tally, want *known) {
	n := rng.IntN(nSearchKinds)
	r, o := stressSearch(n)
	r.Priority, r.NoSpec = rng.IntN(3), rng.IntN(2) == 0
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	impatient := rng.IntN(4) == 0
	if impatient {
		defer time.AfterFunc(time.Duration(rng.IntN(20000))*time.Microsecond, cancel).Stop()
	}
	found, err := e.Beams(ctx, r, o)
	switch {
	case err == nil && reflect.DeepEqual(found, want.beams[n]):
		count.add(&count.finished)
	case errors.Is(err, ErrQueueFull):
		count.add(&count.refused)
	case impatient && errors.Is(err, context.Canceled):
		count.add(&count.cancelled)
	default:
		t.Errorf("search %d: %v, %v, want %v", n, found, err, want.beams[n])
	}
}

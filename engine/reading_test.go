package engine

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// models are the drafters with models of their own, and how many.
var models = map[string]int64{"draft": 1, "crossvocab": 1, "hierarchical": 2, "draft+suffix": 1}

// drafting are the options of an engine whose drafter has other weights than the target.
func drafting(t testing.TB, name string, fixed int) Options {
	return Options{Context: 256, KVTokens: 2048, NoPrefix: true, StallTarget: time.Microsecond, Spec: SpecOptions{Fixed: fixed, Open: withDrafter(t, name, func(c *drafter.Config) {
		c.Draft, c.Bigger, c.Translation = load(t, c.Target, "llama-untied"), load(t, c.Target, "llama-untied"), letters(t, 512, 0, 513)
	})}}
}

// between returns the most tokens that draft models computed between two passes while as many requests ran.
func between(e *Engine, nRunning int) *int64 {
	most, last := new(int64), int64(-1)
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		if n := fed(e); last >= 0 && len(e.active)+e.nSearches >= nRunning {
			*most = max(*most, n-last)
		}
		logits, err := inner(b)
		last = fed(e)
		return logits, err
	}
	return most
}

// TestDraftModelsReadInPieces has three long prompts arrive beside a running answer, all with forced guesses: draft models
// read feedTokens of them between two passes, and a few for guesses, while answers, where they have guesses and how these fare
// are those of each request alone, whose models read at once.
func TestDraftModelsReadInPieces(t *testing.T) {
	for name, nModels := range models {
		t.Run(name, func(t *testing.T) {
			requests := []Request{request(1, 9, 150), request(2, 200, 30), request(3, 190, 30), request(4, 180, 30)}
			var want [][]Token
			var specs []SpecStats
			for _, r := range requests {
				e := openTiny(t, drafting(t, name, 3))
				most := between(e, 1)
				ticket := submit(t, e, r)
				want, specs = append(want, whole(t, ticket)), append(specs, ticket.Stats().Spec)
				require.NoError(t, e.Close())
				require.Positive(t, specs[len(specs)-1].Drafted)
				require.GreaterOrEqual(t, *most, int64(len(r.Prompt)), "nobody waits")
			}
			e := openTiny(t, drafting(t, name, 3))
			most := between(e, 2)
			open := gate(t, e)
			var tickets []*Ticket
			for _, r := range requests {
				tickets = append(tickets, submit(t, e, r))
			}
			open()
			for n, ticket := range tickets {
				require.Equal(t, want[n], whole(t, ticket), "request %d", n)
				require.Equal(t, specs[n], ticket.Stats().Spec, "request %d", n)
			}
			require.NoError(t, e.Close())
			const guesses = 4 * 2 * (3 + 1) // of four requests, those of a round and what was accepted of the last one
			require.LessOrEqual(t, *most, nModels*(feedTokens+guesses))
		})
	}
}

// TestLeavingWhileADraftReads leaves a request that is alone, after its draft has read the first piece of the prompt.
func TestLeavingWhileADraftReads(t *testing.T) {
	ctx, leave := context.WithCancelCause(t.Context())
	e := openTiny(t, drafting(t, "draft", 3))
	d := &watched{Drafter: e.opts.Spec.Drafter}
	d.each = func([]drafter.Round) { leave(errGone) }
	require.NoError(t, e.do(func() error { e.control.drafter = d; return nil }))
	ticket, err := e.Submit(ctx, request(1, 200, 30))
	require.NoError(t, err)
	last := lastToken(t, ticket)
	require.ErrorIs(t, last.Err, errGone)
	require.NoError(t, e.Close())
	require.Equal(t, 1, d.calls)
}

// watched tells what it is asked.
type watched struct {
	drafter.Drafter
	each  func(rounds []drafter.Round)
	calls int
}

func (d *watched) Propose(rounds []drafter.Round) error {
	d.calls++
	err := d.Drafter.Propose(rounds)
	d.each(rounds)
	return err
}

// TestANewcomerEndsReadingOn has a request arrive while a lone one's draft reads its first piece: it waits for one more,
// and its prompt is computed in small pieces.
func TestANewcomerEndsReadingOn(t *testing.T) {
	e := openTiny(t, drafting(t, "draft", 3))
	d := &watched{Drafter: e.opts.Spec.Drafter}
	var once sync.Once
	var beside *Ticket
	var err error
	d.each = func([]drafter.Round) {
		once.Do(func() { beside, err = e.Submit(context.Background(), request(2, 60, 3)) })
	}
	inner := e.forward
	calls, nTokens := 0, 0 // when the newcomer's first pass ran
	require.NoError(t, e.do(func() error {
		e.control.drafter = d
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			if calls == 0 && beside != nil && beside.r.seq != nil {
				calls, nTokens = d.calls, len(b.Tokens)
			}
			return inner(b)
		}
		return nil
	}))
	whole(t, submit(t, e, request(1, 200, 30)))
	require.NoError(t, err)
	require.Len(t, whole(t, beside), 3+1)
	require.NoError(t, e.Close())
	require.Equal(t, 2, calls)
	require.Equal(t, minChunk, nTokens)
}

// reader proposes nothing until it was asked often enough, as a draft model with a long prompt to read would.
type reader struct {
	scripted
	left   map[drafter.Session]int // tokens to read
	asked  [][]drafter.Session     // in each call
	passes int
	at     []int         // passes before each call
	clock  *atomic.Int64 // of the engine
}

func (d *reader) Propose(rounds []drafter.Round) error {
	var asked []drafter.Session
	for i := range rounds {
		r := &rounds[i]
		left, known := d.left[r.Session]
		if !known {
			left = len(r.IDs) - 1
		}
		if r.Budget.Feed > 0 {
			r.Read = min(left, r.Budget.Feed)
			d.clock.Add(int64(r.Read) * int64(100*time.Microsecond))
			left -= r.Budget.Feed
		}
		if d.left[r.Session] = max(0, left); left > 0 {
			r.Behind = left
		} else {
			r.Steps = 1
			r.Tree.Add(1, -1, nil)
		}
		asked = append(asked, r.Session)
	}
	d.asked, d.at = append(d.asked, asked), append(d.at, d.passes)
	return nil
}

// engine is one that the reader guesses for, where a pass takes as long as it reads 10 tokens.
func (d *reader) engine(t *testing.T) *Engine {
	o := Options{Context: 1024, KVTokens: 4096, NoPrefix: true, StallTarget: time.Microsecond, Spec: SpecOptions{Drafter: d}}
	e := openWritten(t, o, nil)
	d.clock = paced(e, func(*model.Batch) time.Duration { d.passes++; return time.Millisecond })
	return e
}

// Keep and Places make it one that reads.
func (d *reader) Keep([]int32) ([]kvcache.Saved, error) { return nil, nil }
func (d *reader) Places() []kvcache.Place               { return nil }

// TestALoneDraftReadsAtOnce lets the controller decide: between the pass after which the draft is asked first and the next one,
// it reads all.
func TestALoneDraftReadsAtOnce(t *testing.T) {
	d := &reader{left: map[drafter.Session]int{}}
	e := d.engine(t)
	r := request(1, 300, 60)
	r.Sampling = sample.Greedy()
	whole(t, submit(t, e, r))
	require.NoError(t, e.Close())
	const pieces = 1 + 300/feedTokens
	require.GreaterOrEqual(t, len(d.at), pieces)
	require.Equal(t, d.at[0], d.at[pieces-1])
}

// TestWhoWantsGuessesIsAskedUntilTheyCome lets the controller decide for two requests with long prompts: once it has a draft
// read for one of them, that one is asked in every pass until all is read, although plans with so much to catch up with are rare.
func TestWhoWantsGuessesIsAskedUntilTheyCome(t *testing.T) {
	d := &reader{left: map[drafter.Session]int{}}
	e := d.engine(t)
	var tickets []*Ticket
	for n := range 2 {
		r := request(n, 300, 200)
		r.Sampling = sample.Greedy()
		tickets = append(tickets, submit(t, e, r))
	}
	for _, ticket := range tickets {
		whole(t, ticket)
	}
	require.NoError(t, e.Close())
	runs, at := map[drafter.Session]int{}, map[drafter.Session]int{}
	for call, asked := range d.asked {
		for _, s := range asked {
			if runs[s]++; runs[s] > 1 && runs[s] <= (300-1)/feedTokens {
				require.Equal(t, at[s]+1, call, "the %dth piece", runs[s])
			}
			at[s] = call
		}
	}
	require.NotEmpty(t, runs)
	for s, n := range runs {
		require.GreaterOrEqual(t, n, (300-1)/feedTokens)
		require.Zero(t, d.left[s])
	}
}

// outlast has answers go on as long as another goroutine needs the passes between which it calls the engine: each pass of theirs
// waits for its next call, or request, until it is over.
func outlast(e *Engine) (over func()) {
	var done atomic.Bool
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		for idle := b == &e.plan.batch; idle && !done.Load(); { // not in a pass of a search, which is such a call
			e.mu.Lock()
			idle = len(e.calls)+len(e.queue) == 0 && len(e.active) == 1
			e.mu.Unlock()
			runtime.Gosched()
		}
		return inner(b)
	}
	return func() { done.Store(true) }
}

// TestSavingHasDraftsReadInPieces saves a long prompt beside a running answer.
func TestSavingHasDraftsReadInPieces(t *testing.T) {
	for name, nModels := range models {
		o := drafting(t, name, 3)
		o.NoPrefix = false
		e := openTiny(t, o)
		over, most := outlast(e), between(e, 1)
		beside := submit(t, e, request(1, 9, 240))
		require.NoError(t, e.SavePrefix(t.Context(), filepath.Join(t.TempDir(), "prefix.kv"), request(2, 200, 0).Prompt))
		over()
		require.Len(t, whole(t, beside), 240+1)
		require.NoError(t, e.Close())
		require.LessOrEqual(t, *most, nModels*(feedTokens+2*(3+1)), name)
		require.GreaterOrEqual(t, fed(e), nModels*199, name)
	}
}

// TestASearchHasItsDraftReadInPieces has a beam search with a long prompt beside a running answer, and alone.
func TestASearchHasItsDraftReadInPieces(t *testing.T) {
	for name, nModels := range models {
		if name == "draft+suffix" {
			continue // searches take the first of them
		}
		r := request(2, 200, 40)
		want, err := openTiny(t, Options{Context: 256, KVTokens: 2048}).Beams(t.Context(), r, beams(3, 1))
		require.NoError(t, err)
		for _, alone := range []bool{true, false} {
			e := openTiny(t, drafting(t, name, 3))
			var beside *Ticket
			over := func() {}
			if !alone {
				over = outlast(e)
			}
			most := between(e, 2)
			open := gate(t, e)
			if !alone {
				r := request(1, 9, 240)
				r.NoSpec = true
				beside = submit(t, e, r)
			}
			var stats Stats
			o := beams(3, 1)
			o.Stats = &stats
			var got []Beam
			found := make(chan error)
			go func() {
				var err error
				got, err = e.Beams(context.Background(), r, o)
				found <- err
			}()
			until(t, "the search waits", func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return len(e.calls) > 0 || alone
			})
			open()
			require.NoError(t, <-found)
			over()
			require.Equal(t, want, got)
			require.Positive(t, stats.Spec.Drafted, name)
			if !alone {
				require.Len(t, whole(t, beside), 240+1)
				require.LessOrEqual(t, *most, nModels*(feedTokens+3*3*(4+1)), name)
			}
			require.NoError(t, e.Close())
		}
	}
}

// TestWhoIsSentAwayReadsBeforeNewcomers sends a request with forced guesses back to the queue once, while others of its priority
// with long prompts and short answers keep coming: its draft reads before theirs, as that of whoever came first.
func TestWhoIsSentAwayReadsBeforeNewcomers(t *testing.T) {
	o := drafting(t, "draft", 3)
	o.MaxRunning = 8
	e := openTiny(t, o)
	d, waited, overtaken := &watched{Drafter: e.opts.Spec.Drafter}, 0, 0
	d.each = func([]drafter.Round) {
		for _, r := range e.decoding {
			for _, o := range e.decoding {
				if r.spec.read.waits && o.spec.budget.Nodes > 0 && len(o.ids)-o.spec.read.asked > feedTokens {
					if waited++; r.before(o) {
						overtaken++
					}
				}
			}
		}
	}
	var newcomers []*Ticket
	sendAway := func(bool) { // seven have a place, and one comes whenever another one goes
		for i := range 20 {
			ticket, err := e.Submit(context.Background(), request(100+i, 150, 3))
			if err != nil {
				t.Error(err)
				return
			}
			newcomers = append(newcomers, ticket)
		}
		e.preempt(e.active[0])
	}
	inner := e.forward
	require.NoError(t, e.do(func() error {
		e.control.drafter = d
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			if newcomers == nil && e.active[0].emitted() >= 5 {
				e.mu.Lock()
				e.calls = append(e.calls, sendAway) // after the pass
				e.mu.Unlock()
			}
			return inner(b)
		}
		return nil
	}))
	require.Len(t, whole(t, submit(t, e, request(1, 100, 140))), 140+1)
	for _, ticket := range newcomers {
		whole(t, ticket)
	}
	require.NoError(t, e.Close())
	require.Positive(t, waited)
	require.Zero(t, overtaken)
}

// keeping is a draft model whose cache is full until it has been asked twice to keep a text.
type keeping struct {
	*drafter.Model
	full  *kvcache.Seq
	calls int
}

func (d *keeping) Keep(ids []int32) ([]kvcache.Saved, error) {
	if d.calls++; d.calls == 2 {
		d.full.Free()
	}
	return d.Model.Keep(ids)
}

// TestADraftThatFindsRoomLateIsNotSaved has the draft's cache full when a save begins and free soon after: a prompt whose first
// piece found no room is not read at once.
func TestADraftThatFindsRoomLateIsNotSaved(t *testing.T) {
	o := drafting(t, "draft", 3)
	o.NoPrefix = false
	e := openTiny(t, o)
	over := outlast(e)
	r := request(1, 9, 240) // an idle engine would look for the blocks
	r.NoSpec = true
	beside := submit(t, e, r)
	d := &keeping{Model: e.opts.Spec.Drafter.(*drafter.Model)}
	require.NoError(t, e.do(func() error {
		cache := d.Places()[0].Cache
		d.full, e.opts.Spec.Drafter = cache.NewSeq(), d
		return d.full.Reserve(kvcache.BlockTokens * (cache.FreeBlocks() - 1))
	}))
	path, prompt := filepath.Join(t.TempDir(), "prefix.kv"), request(2, 200, 0).Prompt
	require.NoError(t, e.SavePrefix(t.Context(), path, prompt))
	if d.calls < 2 {
		require.NoError(t, e.do(func() error { d.full.Free(); return nil }))
	}
	require.LessOrEqual(t, fed(e), int64(feedTokens))
	ids, err := e.RestorePrefix(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, prompt, ids)
	over()
	require.Len(t, whole(t, beside), 240+1)
	require.NoError(t, e.Close())
}

// TestWhatADraftHasIsNotRead answers a prompt twice: what the draft's cache has of it the second time is no reading, whose
// price would look low.
func TestWhatADraftHasIsNotRead(t *testing.T) {
	for name := range models {
		e := openTiny(t, drafting(t, name, 3))
		d, read := &watched{Drafter: e.control.drafter}, 0
		d.each = func(rounds []drafter.Round) { read += rounds[0].Read }
		if name != "draft+suffix" { // the engine knows a union as such
			require.NoError(t, e.do(func() error { e.control.drafter = d; return nil }))
		} else {
			d.Drafter = e.control.union.Parts()[0]
			e.control.union = drafter.NewUnion(d, e.control.union.Parts()[1])
			require.NoError(t, e.do(func() error { e.control.drafter = e.control.union; return nil }))
		}
		r := request(1, 200, 4)
		whole(t, submit(t, e, r))
		require.GreaterOrEqual(t, read, 199, name)
		read = 0
		whole(t, submit(t, e, r))
		require.Positive(t, read, name)
		require.LessOrEqual(t, read, 4*e.few(), name)
		require.NoError(t, e.Close())
	}
}

// TestNote follows a request whose draft finds no room first, reads in pieces while the request goes on, and catches up.
func TestNote(t *testing.T) {
	var s reading
	s.note(100, 0, 32, true)
	require.Equal(t, reading{stuck: true}, s)
	s.note(101, 69, 32, false)
	require.Equal(t, reading{asked: 32, behind: 69, on: true}, s)
	s.note(102, 62, 8, false)
	require.Equal(t, reading{asked: 40, behind: 62, on: true}, s)
	s.note(102, 46, 32, false)
	require.Equal(t, reading{asked: 56, behind: 46, on: true}, s)
	s.note(102, 45, 8, false)
	require.False(t, s.on)
	s.note(103, 0, 8, false)
	require.Equal(t, reading{asked: 103, caughtUp: true}, s)
	s.note(104, -1<<62, 8, false)
	s.note(104, 1<<62, 8, false)
	require.Equal(t, reading{asked: 104, behind: 104 * maxSpelling, on: true, caughtUp: true}, s)
	s.note(104, 104*maxSpelling-15, 32, false)
	require.False(t, s.on, "nor one that reads much less than it might")
}

// TestWhoReadsSlowlyIsNotWaitedFor has a drafter that says it has much to read and takes its time: an answer with forced guesses does
// not wait longer for it than one that reads what it may.
func TestWhoReadsSlowlyIsNotWaitedFor(t *testing.T) {
	const nPrompt, nOut = 100, 20
	for _, step := range []int{0, 1, 4, 15, feedTokens / 2, feedTokens} {
		calls := 0
		d := &hostile{guess: func(r *drafter.Round) {
			r.Steps, r.Behind = 1, max(1, maxSpelling*len(r.IDs)-step*calls)
			calls++
		}}
		e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Drafter: d, Fixed: 3}})
		ids, _ := answer(t, e, request(1, nPrompt, nOut))
		require.Len(t, ids, nOut)
		require.NoError(t, e.Close())
		most := nOut + 2
		if step >= feedTokens/2 {
			most += maxSpelling * (nPrompt + nOut) / step
		}
		require.LessOrEqual(t, calls, most, "%d tokens a pass", step)
	}
}

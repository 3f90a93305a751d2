package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// TestAnyNumberOfWorkersChoosesAlike runs every sampling option at once with one to five workers, plainly and with guesses: ids
// and log probabilities have the same bits.
func TestAnyNumberOfWorkersChoosesAlike(t *testing.T) {
	var want [][]Token
	for _, threads := range []int{1, 2, 3, 5} {
		for _, spec := range []SpecOptions{{}, {Fixed: 4, Drafter: &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: randomTree}}} {
			e := openArch(t, "llama3-rope", Options{Context: 192, KVTokens: 4096, Threads: threads, Spec: spec})
			open := gate(t, e)
			var tickets []*Ticket
			for n := range families {
				tickets = append(tickets, submit(t, e, family(n)))
			}
			open()
			for n, ticket := range tickets {
				if got := whole(t, ticket); len(want) == n {
					want = append(want, got)
				} else {
					require.Equal(t, want[n], got, "%s with %d workers", families[n].name, threads)
				}
			}
			require.NoError(t, e.Close())
			require.Len(t, e.chooser.spaces, threads, "each worker chose in a place of its own")
		}
	}
}

// TestChoosingAllocatesNothing chooses for eight requests on three workers.
func TestChoosingAllocatesNothing(t *testing.T) {
	e := openArch(t, "llama3-rope", Options{Context: 64, Threads: 3})
	rng := rand.New(rand.NewPCG(1, 2))
	logits := tensor.NewF32(8, 512)
	for i := range logits.Data {
		logits.Data[i] = float32(rng.NormFloat64())
	}
	c := &chooser{e: e, spaces: []*sample.Workspace{e.samples}}
	for n := range logits.Rows {
		r, err := e.newRun(t.Context(), request(n, 9, 50))
		require.NoError(t, err)
		r.Sampling.TopP = 0.9
		c.picks = append(c.picks, pick{r: r, row: n})
	}
	choose := func() {
		for i := range c.picks {
			c.picks[i].r.ids = c.picks[i].r.ids[:9]
		}
		c.choose(logits)
	}
	require.NoError(t, e.do(func() error { // the pool is the loop's
		allocs := testing.AllocsPerRun(1, choose) // with as many to warm up
		for range 20 {
			allocs = min(allocs, testing.AllocsPerRun(10, choose)) // a thread that the runtime starts allocates
		}
		if allocs > 0 {
			return fmt.Errorf("%v allocations", allocs)
		}
		return nil
	}))
	for _, p := range c.picks {
		require.NoError(t, p.err)
		require.Len(t, p.r.picked, 1)
	}
}

// guest is a Matcher and a Stopper in one that panics in the n-th call of a kind, and finds out whether two calls come at once.
type guest struct {
	in    string
	left  *atomic.Int64 // calls of the kind, of all forks
	inner alternating
	busy  atomic.Bool
	both  *atomic.Bool
}

func newGuest(in string, n int) *guest {
	g := &guest{in: in, left: &atomic.Int64{}, both: &atomic.Bool{}}
	g.left.Store(int64(n))
	return g
}

func (g *guest) enter(call string) func() {
	if !g.busy.CompareAndSwap(false, true) {
		g.both.Store(true)
	}
	if call == g.in && g.left.Add(-1) < 0 {
		panic("boom in " + call)
	}
	return func() { g.busy.Store(false) }
}

func (g *guest) Mask() []uint64 {
	defer g.enter("Mask")()
	return g.inner.Mask()
}

func (g *guest) Accept(id int32) {
	defer g.enter("Accept")()
	g.inner.Accept(id)
}

func (g *guest) Fork() drafter.Matcher {
	defer g.enter("Fork")()
	return &guest{in: g.in, left: g.left, both: g.both, inner: alternating{n: g.inner.n}}
}

type stoppingGuest struct{ g *guest }

func (s stoppingGuest) Accept(int32) bool {
	defer s.g.enter("Stop")()
	return false
}

// TestAPanicEndsItsRequestOnly has a request's own code panic in each call, at once and later, in any worker, plainly and on
// guesses: that request ends with an error that says so, and its neighbours' answers stay.
func TestAPanicEndsItsRequestOnly(t *testing.T) {
	const n = 4
	var want [n][]Token
	for i := range want {
		want[i] = whole(t, submit(t, openTiny(t, Options{Context: 128}), family(i)))
	}
	for call, text := range map[string]string{"Mask": "Matcher.Mask", "Accept": "Matcher.Accept", "Stop": "Stopper.Accept"} {
		for _, threads := range []int{1, 4} {
			for _, after := range []int{0, 9} {
				for _, guesses := range []bool{false, true} {
					name := fmt.Sprintf("%s, %d workers, after %d, guesses %v", call, threads, after, guesses)
					o := Options{Context: 128, KVTokens: 1024, Threads: threads}
					if guesses { // which call no matcher of their own
						o.Spec = SpecOptions{Fixed: 4, Drafter: &scripted{guess: steady}}
					}
					e := openTiny(t, o)
					g := newGuest(call, after)
					r := request(1, 9, 40)
					if r.Matcher = g; call == "Stop" {
						r.Matcher, r.Stop = nil, stoppingGuest{g}
					}
					open := gate(t, e)
					ill := submit(t, e, r)
					var tickets []*Ticket
					for i := range n {
						tickets = append(tickets, submit(t, e, family(i)))
					}
					open()
					ids, end := 0, Token{}
					for tok, ok := receive(t, ill.Tokens()); ok; tok, ok = receive(t, ill.Tokens()) {
						if end = tok; tok.HasID {
							ids++
						}
					}
					require.Equal(t, FinishError, end.Finish, name)
					require.EqualError(t, end.Err, "the request's "+text+" panicked: boom in "+call, name)
					if want := after; call == "Stop" {
						require.Equal(t, want+1, ids, "%s: the token was the answer's by then", name)
					} else if call != "Mask" || !guesses {
						require.Equal(t, want, ids, name)
					}
					for i, ticket := range tickets {
						require.Equal(t, want[i], whole(t, ticket), name)
					}
					whole(t, submit(t, e, family(0)))
					require.False(t, g.both.Load(), "two calls at once: %s", name)
					require.NoError(t, e.Close())
					require.Equal(t, e.idleBlocks, e.cache.FreeBlocks(), name)
				}
			}
		}
	}
}

// TestAPanicEndsItsSearchOnly is the same for beam searches, beside a request that goes on.
func TestAPanicEndsItsSearchOnly(t *testing.T) {
	neighbour := family(1)
	want := whole(t, submit(t, openTiny(t, Options{Context: 128}), neighbour))
	for _, call := range []string{"Mask", "Accept", "Fork"} {
		for _, after := range []int{0, 7, 20} {
			for _, guesses := range []bool{false, true} {
				name := fmt.Sprintf("%s, after %d, guesses %v", call, after, guesses)
				o := Options{Context: 128, KVTokens: 1024, Note: func(what string) { t.Errorf("%s: %s", name, what) }}
				if guesses {
					o.Spec = SpecOptions{Fixed: 2, Open: withDrafter(t, "draft", nil)}
				}
				e := openTiny(t, o)
				r := beamRequest(1, 20, 30)
				r.EOG, r.Matcher = nil, newGuest(call, after)
				beside := submit(t, e, neighbour)
				_, err := e.Beams(t.Context(), r, beams(3, 1))
				require.EqualError(t, err, "the request's Matcher."+call+" panicked: boom in "+call, name)
				require.Equal(t, want, whole(t, beside), name)
				r.Matcher = newGuest("", 0)
				found, err := e.Beams(t.Context(), r, beams(3, 1))
				require.NoError(t, err)
				require.Len(t, found, 3)
				require.False(t, slices.ContainsFunc(found, func(b Beam) bool { return len(b.IDs) != 30 }))
				require.NoError(t, e.Close())
				require.Equal(t, e.idleBlocks, e.cache.FreeBlocks(), name)
			}
		}
	}
}

// TestAPanicInADraftersHandsEndsItsRequestOnly has a request's matcher panic in each call while drafters that follow it make
// guesses: that request ends with an error that says so, and its neighbours keep their answers and their guesses.
func TestAPanicInADraftersHandsEndsItsRequestOnly(t *testing.T) {
	neighbours := func() (all []Request) {
		for i := range 2 {
			r := request(2+i, 9, 60)
			if r.Reproducible = true; i > 0 {
				r.Matcher = &alternating{}
			}
			all = append(all, r)
		}
		return all
	}
	var want [][]Token
	plain := openTiny(t, Options{Context: 128})
	for _, r := range neighbours() {
		want = append(want, whole(t, submit(t, plain, r)))
	}
	for _, method := range []string{"draft", "hierarchical", "layerskip", "draft+suffix"} {
		for _, call := range []string{"Fork", "Mask", "Accept"} {
			for _, after := range []int{0, 3, 7} {
				for _, sampled := range []bool{false, true} {
					name := fmt.Sprintf("%s, %s, after %d, sampled %v", method, call, after, sampled)
					o := Options{Context: 128, KVTokens: 1024, Note: func(what string) { t.Errorf("%s: %s", name, what) }}
					o.Spec = SpecOptions{Fixed: 4, Open: withDrafter(t, method, nil)}
					e := openTiny(t, o)
					r := request(1, 9, 60)
					if !sampled {
						r.Sampling = sample.Greedy()
					}
					g := newGuest(call, after)
					r.Matcher = g
					open := gate(t, e)
					ill := submit(t, e, r)
					var tickets []*Ticket
					for _, r := range neighbours() {
						tickets = append(tickets, submit(t, e, r))
					}
					open()
					end := Token{}
					for tok, ok := receive(t, ill.Tokens()); ok; tok, ok = receive(t, ill.Tokens()) {
						end = tok
					}
					require.Equal(t, FinishError, end.Finish, name)
					require.EqualError(t, end.Err, "the request's Matcher."+call+" panicked: boom in "+call, name)
					require.Zero(t, ill.Stats().Spec.Failed, name)
					for i, ticket := range tickets {
						require.Equal(t, want[i], whole(t, ticket), name)
						s := ticket.Stats().Spec
						require.Zero(t, s.Failed, name)
						require.Greater(t, s.Rounds, 8, "%s: guesses go on", name)
					}
					require.NoError(t, e.Close())
					require.Equal(t, e.idleBlocks, e.cache.FreeBlocks(), name)
				}
			}
		}
	}
}

// TestAForkThatPanicsIsAnErrorOfItsChoices asks for choices with a matcher that cannot be forked.
func TestAForkThatPanicsIsAnErrorOfItsChoices(t *testing.T) {
	e := openTiny(t, Options{Context: 128})
	r := request(1, 9, 10)
	r.Matcher = newGuest("Fork", 1)
	_, err := e.SubmitChoices(t.Context(), r, 3, nil)
	require.EqualError(t, err, "the request's Matcher.Fork panicked: boom in Fork")
	require.Len(t, whole(t, submit(t, e, request(1, 9, 10))), 11)
}

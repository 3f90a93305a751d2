package engine

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
)

// hostile is a drafter that does what a function says in each of the calls that the engine makes.
type hostile struct {
	guess func(r *drafter.Round)
	in    func(call string) error // told the name of each call; nil does nothing
	show  func(t *drafter.Tree)   // shown each tree after its pass; nil does nothing
	void  bool                    // has no sessions to give
}

type hostileSession struct{ d *hostile }

func (d *hostile) call(name string) error {
	if d.in == nil {
		return nil
	}
	return d.in(name)
}

func (d *hostile) Name() string { return "hostile" }
func (d *hostile) Bytes() int64 { return math.MinInt64 }
func (d *hostile) Close() error { return d.call("Close") }
func (d *hostile) NewSession() (drafter.Session, error) {
	if d.void {
		return nil, nil
	}
	return &hostileSession{d}, d.call("NewSession")
}

func (d *hostile) Propose(rounds []drafter.Round) error {
	for i := range rounds {
		d.guess(&rounds[i])
	}
	return d.call("Propose")
}

func (s *hostileSession) Committed([]int32) { _ = s.d.call("Committed") }
func (s *hostileSession) Close()            { _ = s.d.call("Session.Close") }
func (s *hostileSession) Observed(t *drafter.Tree, argmax func(int32) int32) {
	for _, node := range []int32{-1, 0, -2, 1 << 20, math.MinInt32} {
		argmax(node)
	}
	if _ = s.d.call("Observed"); s.d.show != nil {
		s.d.show(t)
	}
}

// instantly is a hostile drafter that is asked beforehand.
type instantly struct{ *hostile }

func (instantly) Instant() {}

// chain guesses one token after the other.
func chain(r *drafter.Round, ids ...int32) {
	parent := int32(-1)
	for _, id := range ids {
		parent = r.Tree.Add(id, parent, nil)
	}
}

// wrongs are the ways in which an answer of a drafter can be wrong.
var wrongs = map[string]func(r *drafter.Round){
	"ids out of range":       func(r *drafter.Round) { chain(r, 1, 1<<30, -5, 511, 512, 3) },
	"the first out of range": func(r *drafter.Round) { chain(r, -1) },
	"parents that come later": func(r *drafter.Round) {
		r.Tree.Add(1, -1, nil)
		r.Tree.Add(1, 2, nil)
		r.Tree.Add(2, 1, nil)
	},
	"parents below -1": func(r *drafter.Round) { r.Tree.Add(3, math.MinInt32, nil) },
	"a long chain": func(r *drafter.Round) {
		for i := range int32(100000) {
			r.Tree.Add(i%512, i-1, nil)
		}
	},
	"NaN as q":          func(r *drafter.Round) { q(r, []int32{3}, math.NaN()) },
	"infinity as q":     func(r *drafter.Round) { q(r, []int32{3, 4}, math.Inf(1), math.Inf(-1)) },
	"denormal q":        func(r *drafter.Round) { q(r, []int32{3, 1 << 20}, 5e-324, 5e-324) },
	"negative q":        func(r *drafter.Round) { q(r, []int32{3, 4}, 5, -4) },
	"q of nothing":      func(r *drafter.Round) { q(r, nil) },
	"q without order":   func(r *drafter.Round) { q(r, []int32{9, 3, 3, 1}, 0.25, 0.25, 0.25, 0.25) },
	"q out of range":    func(r *drafter.Round) { q(r, []int32{3, 1 << 30}, 0.25, 0.75) },
	"q without p":       func(r *drafter.Round) { q(r, []int32{3, 4, 5}, 1) },
	"q without ids":     func(r *drafter.Round) { q(r, []int32{3}, 0.5, 0.25, 0.25) },
	"too few parents":   func(r *drafter.Round) { chain(r, 3); r.Tree.IDs = append(r.Tree.IDs, 4, 5, 6) },
	"too few ids":       func(r *drafter.Round) { chain(r, 3, 4); r.Tree.IDs = r.Tree.IDs[:1] },
	"too few q":         func(r *drafter.Round) { chain(r, 3, 4); r.Tree.Q = nil },
	"too few marks":     func(r *drafter.Round) { chain(r, 3, 4); r.Tree.Guest = r.Tree.Guest[:1:1] },
	"too few beliefs":   func(r *drafter.Round) { chain(r, 3, 4); r.Tree.Belief = nil },
	"too many of all":   func(r *drafter.Round) { *r.Tree = drafter.Tree{Q: make([]*sample.Dist, 9), Guest: make([]bool, 9)} },
	"no tree":           func(r *drafter.Round) { chain(r, 3); r.Tree = nil },
	"another tree":      func(r *drafter.Round) { r.Tree = &drafter.Tree{IDs: []int32{1, 2}} },
	"no session":        func(r *drafter.Round) { chain(r, 3); r.Session, r.Seq, r.Sampler = nil, nil, nil },
	"negative steps":    func(r *drafter.Round) { chain(r, 3); r.Steps = math.MinInt },
	"steps without end": func(r *drafter.Round) { chain(r, 3); r.Steps = math.MaxInt },
	"other ids": func(r *drafter.Round) {
		chain(r, 3)
		for i := range r.IDs {
			r.IDs[i] = int32(i)
		}
		_ = append(r.IDs, 7)
	},
	"NaN as belief":      func(r *drafter.Round) { belief(r, math.NaN()) },
	"an endless belief":  func(r *drafter.Round) { belief(r, math.Inf(1)) },
	"a huge belief":      func(r *drafter.Round) { belief(r, 1e300) },
	"a negative belief":  func(r *drafter.Round) { belief(r, -1e300) },
	"a belief above all": func(r *drafter.Round) { belief(r, 1+1e-9) },
}

func q(r *drafter.Round, ids []int32, p ...float64) {
	d := &sample.Dist{IDs: ids, P: p}
	r.Tree.Add(3, r.Tree.Add(3, -1, d), d)
	r.Tree.Add(3, -1, d)
	r.Tree.Add(1<<20, -1, d)
}

func belief(r *drafter.Round, p float64) {
	chain(r, 3, 4, 5)
	for i := range r.Tree.Belief {
		r.Tree.Belief[i] = p
	}
}

// requireUnharmed runs a request in three ways with a drafter and compares it with plain decoding where it has to be the same.
func requireUnharmed(t *testing.T, plain *Engine, o Options, n int) (stats []SpecStats) {
	t.Helper()
	e := openTiny(t, o)
	timed(e, func(int) time.Duration { return time.Millisecond }) // so that the controller has guesses made
	for mode := range 3 {
		r := request(n, 9, 24)
		if mode == 0 {
			r.Sampling = sample.Greedy()
		}
		r.Reproducible = mode == 1
		ticket := submit(t, e, r)
		ids, why := drain(t, ticket)
		require.Equal(t, FinishLength, why)
		require.Len(t, ids, 24)
		if mode < 2 {
			want, _ := answer(t, plain, r)
			require.Equal(t, want, ids)
		}
		for _, id := range ids {
			require.True(t, id >= 0 && id < 512, "token %d", id)
		}
		stats = append(stats, ticket.Stats().Spec)
	}
	if !o.Contiguous {
		r := beamRequest(n, 9, 12)
		want, _ := beamsOf(t, plain, r, beams(2, 1))
		got, _ := beamsOf(t, e, r, beams(2, 1))
		require.Equal(t, want, got)
	}
	require.NoError(t, e.Close())
	require.Equal(t, e.cache.Blocks(), e.cache.FreeBlocks())
	return stats
}

func TestWrongTreesChangeNothing(t *testing.T) {
	plain := openTiny(t, Options{Context: 64, KVTokens: 256})
	for name, guess := range wrongs {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // passes of one thread
			d := &hostile{guess: guess}
			rounds := 0
			for i, s := range []SpecOptions{
				{Drafter: d, Fixed: 16}, {Drafter: d}, {Drafter: instantly{d}}, {Drafter: d, Fixed: 8, Branch: 8, Lenience: 1},
				{Drafter: drafter.NewUnion(d, drafter.NewRandom(512, 1)), Fixed: 8}, {Drafter: drafter.NewUnion(instantly{d}, d)},
			} {
				for _, s := range requireUnharmed(t, plain, Options{Context: 64, KVTokens: 256, Threads: 1, Spec: s}, i) {
					require.Zero(t, s.Failed)
					rounds += s.Rounds
				}
			}
			require.Positive(t, rounds)
		})
	}
}

// TestTreesThatChangeWhenTheyAreShown has drafters write to the trees that they are shown, which instant ones are asked about again.
func TestTreesThatChangeWhenTheyAreShown(t *testing.T) {
	plain := openTiny(t, Options{Context: 64, KVTokens: 256})
	for name, show := range map[string]func(t *drafter.Tree){
		"more ids":     func(t *drafter.Tree) { t.IDs = append(t.IDs, 1, 2, 3) },
		"no parents":   func(t *drafter.Tree) { t.Parents = t.Parents[:0] },
		"no beliefs":   func(t *drafter.Tree) { t.Belief = nil },
		"no marks":     func(t *drafter.Tree) { t.Guest, t.By, t.Q = nil, nil, nil },
		"nothing":      func(t *drafter.Tree) { *t = drafter.Tree{} },
		"a long chain": func(t *drafter.Tree) { wrongs["a long chain"](&drafter.Round{Tree: t}) },
		"circles": func(t *drafter.Tree) {
			for i := range t.Parents {
				t.Parents[i] = int32(i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, shown := &hostile{guess: func(r *drafter.Round) { belief(r, 0.9) }}, 0
			d.show = func(t *drafter.Tree) { show(t); shown++ }
			for _, s := range []SpecOptions{{Drafter: d, Fixed: 4}, {Drafter: d}, {Drafter: instantly{d}}, {Drafter: drafter.NewUnion(instantly{d}, d)}} {
				requireUnharmed(t, plain, Options{Context: 64, KVTokens: 256, Threads: 1, Spec: s}, 1)
			}
			require.Positive(t, shown)
		})
	}
}

// TestPanickingDraftersAreOff has each call panic, at once and later: the request goes on without guesses, and is told apart.
func TestPanickingDraftersAreOff(t *testing.T) {
	plain := openTiny(t, Options{Context: 64, KVTokens: 256})
	for _, call := range []string{"NewSession", "Committed", "Propose", "Observed", "Session.Close"} {
		for _, after := range []int{0, 2} {
			for kind := range 4 {
				t.Run(fmt.Sprintf("%s, after %d, %d", call, after, kind), func(t *testing.T) {
					calls, notes := 0, 0
					d := &hostile{guess: func(r *drafter.Round) { chain(r, 1, 2) }, in: func(name string) error {
						if name == call {
							if calls++; calls > after {
								panic("boom in " + call)
							}
						}
						return nil
					}}
					o := Options{Context: 64, KVTokens: 256, Threads: 1, Note: func(line string) {
						require.Equal(t, "speculation: the drafter panicked: boom in "+call+"; its requests go on without guesses", line)
						notes++
					}}
					o.Spec = []SpecOptions{{Drafter: d, Fixed: 4}, {Drafter: d}, {Drafter: instantly{d}}, {Drafter: drafter.NewUnion(drafter.NewRandom(512, 1), d), Fixed: 4}}[kind]
					stats := requireUnharmed(t, plain, o, 1)
					if call == "Session.Close" {
						require.Zero(t, stats[0].Failed)
						return
					}
					require.Positive(t, notes)
					if after == 0 && (call != "Observed" || kind == 0) {
						for _, s := range stats {
							require.Equal(t, 1, s.Failed, "the first panic is the last")
							require.LessOrEqual(t, s.Rounds, 1)
						}
					}
				})
			}
		}
	}
}

func TestAUnionOfNothingIsRefused(t *testing.T) {
	_, err := Open(filepath.Join(golden.Dir(t, "archs"), "llama3-rope"), Options{Context: 64, Spec: SpecOptions{Drafter: drafter.NewUnion()}})
	require.ErrorContains(t, err, "want one or more")
}

// TestDraftersFailToOpenAndClose lets the calls outside of rounds fail.
func TestDraftersFailToOpenAndClose(t *testing.T) {
	plain := openTiny(t, Options{Context: 64, KVTokens: 256})
	for _, d := range []*hostile{{void: true}, {in: func(call string) error {
		if call == "NewSession" {
			return errors.New("no session")
		}
		return nil
	}}} {
		for _, s := range requireUnharmed(t, plain, Options{Context: 64, KVTokens: 256, Spec: SpecOptions{Drafter: d, Fixed: 4}}, 1) {
			require.Equal(t, 1, s.Failed)
			require.Zero(t, s.Rounds)
		}
	}
	e := openTiny(t, Options{Context: 64, Note: func(string) {}, Spec: SpecOptions{Drafter: &hostile{in: func(string) error { panic("boom") }}}})
	require.EqualError(t, e.Close(), "speculation: the drafter panicked: boom")
}

// TestUnionsCloseAllSessions has one part of a union panic: the other's keys and values are freed, as SelfCheck verifies.
func TestUnionsCloseAllSessions(t *testing.T) {
	for _, call := range []string{"NewSession", "Committed", "Propose", "Session.Close"} {
		d := &hostile{guess: func(*drafter.Round) {}, in: func(name string) error {
			if name == call {
				panic("boom")
			}
			return nil
		}}
		first := call == "Session.Close" // before the other is closed, elsewhere after it was called
		o := Options{Context: 64, Note: func(string) {}, Spec: SpecOptions{Fixed: 4}}
		o.Spec.Open = withUnion(t, "draft", d, first)
		e := openTiny(t, o)
		for n := range 3 {
			whole(t, submit(t, e, request(n, 9, 20)))
		}
		require.NoError(t, e.do(func() error { return e.opts.Spec.Drafter.(drafter.Checker).Check(true) }), call)
		require.NoError(t, e.Close())
	}
}

// TestGuessesOutsideTheVocabularyKeepTheDistribution draws truthfully from a q half of which lies outside the vocabulary. Guesses
// that were dropped there, instead of being rejected, would leave a token that is drawn from p.
func TestGuessesOutsideTheVocabularyKeepTheDistribution(t *testing.T) {
	const nSeeds = 2000
	counts := func(e *Engine, from int) map[[3]int32]float64 {
		seen := map[[3]int32]float64{}
		for at := 0; at < nSeeds; at += 50 {
			tickets := together(t, e, 50, func(n int) Request {
				r := request(5, 9, 4)
				r.Sampling.Temperature, r.Sampling.TopK = 1.5, 3
				r.Sampling.Seed = uint64(from + at + n)
				return r
			})
			for _, ticket := range tickets {
				ids, _ := drain(t, ticket)
				seen[[3]int32(ids[1:])]++
			}
		}
		return seen
	}
	plain := counts(openTiny(t, Options{Context: 64, KVTokens: 2048, MaxRunning: 25}), 0)
	at := map[[2]int32]map[int32]float64{} // what follows the tokens of an answer
	for ids, n := range plain {
		for k := range ids {
			key := [2]int32{int32(k), 0}
			if k > 0 {
				key[1] = ids[k-1]
			}
			if at[key] == nil {
				at[key] = map[int32]float64{}
			}
			at[key][ids[k]] += n
		}
	}
	for _, outside := range []int32{-7, 512, math.MaxInt32} {
		t.Run(fmt.Sprint(outside), func(t *testing.T) {
			rng, drafted := rand.New(rand.NewPCG(8, 9)), 0
			d := &hostile{guess: func(r *drafter.Round) {
				key := [2]int32{int32(len(r.IDs) - 10), 0}
				if key[0] > 0 {
					key[1] = r.IDs[len(r.IDs)-1]
				}
				best, most := int32(0), 0.0
				for id, n := range at[key] {
					if n > most || n == most && id < best {
						best, most = id, n
					}
				}
				q := &sample.Dist{IDs: []int32{min(best, outside), max(best, outside)}, P: []float64{0.5, 0.5}}
				r.Tree.Add(1, r.Tree.Add(q.Draw(rng.Float64()), -1, q), nil)
				drafted++
			}}
			e := openTiny(t, Options{Context: 64, KVTokens: 2048, MaxRunning: 25, StallTarget: time.Hour, Spec: SpecOptions{Fixed: 2, Drafter: d}})
			requireSameDistribution(t, plain, counts(e, 1<<20))
			require.Greater(t, e.SpecTotals().Rounds, 3*nSeeds/2)
			require.Equal(t, drafted, e.SpecTotals().Rounds)
			require.NoError(t, e.Close())
		})
	}
}

// withUnion opens a named drafter and another one beside it, first or last.
func withUnion(t testing.TB, name string, other drafter.Drafter, first bool) func(*model.Model) (drafter.Drafter, error) {
	inner := withDrafter(t, name, nil)
	return func(target *model.Model) (drafter.Drafter, error) {
		d, err := inner(target)
		if err != nil {
			return nil, err
		}
		if first {
			return drafter.NewUnion(other, d), nil
		}
		return drafter.NewUnion(d, other), nil
	}
}

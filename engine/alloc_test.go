package engine

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// frugal is a drafter that allocates nothing itself. Now and then it guesses right.
type frugal struct{}

func (frugal) Name() string                         { return "frugal" }
func (frugal) Bytes() int64                         { return 0 }
func (frugal) Close() error                         { return nil }
func (frugal) NewSession() (drafter.Session, error) { return frugalSession{}, nil }
func (frugal) Propose(rounds []drafter.Round) error {
	for i := range rounds {
		t, last := rounds[i].Tree, rounds[i].IDs[len(rounds[i].IDs)-1]
		t.Add((last+1)%256, -1, nil)
		t.Add(last, t.Add(last, -1, nil), nil)
	}
	return nil
}

type frugalSession struct{}

func (frugalSession) Committed([]int32) {}
func (frugalSession) Close()            {}

// TestStepAllocatesNothing counts what whole steps of steady decoding allocate: scheduling, the pass, checking guesses, sampling
// and handing tokens on. It counts over 16 steps, a KV block of every stream, after as many to warm up, in an engine that has
// seen contexts of that length and reads all prompts in one pass, however slow: the workers' memory for attention grows with the longest, in powers of two. One worker runs, and
// a count is taken again once, because the Go runtime allocates when it happens to start a thread.
func TestStepAllocatesNothing(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "gemma3-text"} {
		for _, streams := range []int{1, 4} {
			for name, change := range map[string]func(*Options, *Request){
				"greedy":  func(_ *Options, r *Request) { r.Sampling = sample.Greedy() },
				"sampled": func(*Options, *Request) {},
				"all steps of sampling": func(_ *Options, r *Request) {
					r.Sampling.RepeatPenalty, r.Sampling.TopK, r.Sampling.TopP, r.Sampling.MinP = 1.1, 40, 0.95, 0.05
					r.Sampling.LogitBias = map[int32]float64{7: -100}
				},
				"a matcher": func(_ *Options, r *Request) { r.Matcher = &alternating{} },
				"a matcher and guesses": func(o *Options, r *Request) {
					o.Spec = SpecOptions{Fixed: 3, Drafter: frugal{}}
					r.Matcher = &alternating{}
				},
				"8-bit cache": func(o *Options, _ *Request) { o.CacheTypeK, o.CacheTypeV = "q8_0", "q8_0" },
				"watched":     func(*Options, *Request) {},
				"contiguous":  func(o *Options, _ *Request) { o.Contiguous = streams == 1 },
				"greedy guesses": func(o *Options, r *Request) {
					o.Spec = SpecOptions{Fixed: 3, Drafter: frugal{}}
					r.Sampling = sample.Greedy()
				},
				"sampled guesses": func(o *Options, _ *Request) { o.Spec = SpecOptions{Fixed: 3, Drafter: frugal{}} },
			} {
				t.Run(fmt.Sprintf("%s, %d streams, %s", arch, streams, name), func(t *testing.T) {
					o, r := Options{Context: 256, KVTokens: streams * 256, StallTarget: time.Hour}, request(1, 30, 220)
					change(&o, &r)
					e := openArch(t, arch, o)
					if name == "watched" {
						require.NoError(t, e.WatchPasses(func(Pass) {}))
					}
					whole(t, submit(t, e, r))
					require.NoError(t, e.do(func() error {
						e.control.calibration.end() // its passes, which come a few times in the life of an engine, do allocate
						tickets := make([]*Ticket, streams)
						for n := range tickets {
							r.Prompt = request(n, 30, 0).Prompt
							change(&Options{}, &r) // a matcher of its own for each
							tickets[n] = submit(t, e, r)
						}
						return stepping(e, tickets)
					}))
				})
			}
		}
	}
}

// stepping does the steps in the engine's loop.
func stepping(e *Engine, tickets []*Ticket) error {
	const steps = 16
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector's own allocations would count
	drained, tries := 0, 0
	allocs := 1.0
	for ; allocs > 0 && tries < 2; tries++ {
		allocs = testing.AllocsPerRun(1, func() {
			for range steps {
				e.Step()
				for _, ticket := range tickets {
					for len(ticket.out) > 0 {
						<-ticket.out
						drained++
					}
				}
			}
		})
	}
	if allocs > 0 || drained < (2*steps*tries-2)*len(tickets) {
		return fmt.Errorf("%v allocations in %d steps, %d tokens in all", allocs, steps, drained)
	}
	return nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"quickdraft/engine"
	"quickdraft/tensor"
)

// StallRow says how long running streams wait from token to token while a long prompt arrives.
type StallRow struct {
	Streams   int     `json:"streams"`
	Before    float64 `json:"median_gap_before_ms"`      // between two tokens of a stream, before the prompt arrives
	MaxBefore float64 `json:"max_gap_before_ms"`         // what the machine does to answers that nothing disturbs
	Median    float64 `json:"median_gap_ms"`             // while it is read
	P99       float64 `json:"p99_gap_ms"`                // 99 of 100 are shorter
	Max       float64 `json:"max_gap_ms"`                // the longest of all streams
	Gaps      int     `json:"gaps"`                      // of all streams and rounds
	Seconds   float64 `json:"prompt_seconds"`            // until the prompt's first token
	PromptTPS float64 `json:"prompt_tokens_per_second"`  // of the prompt
	StreamTPS float64 `json:"streams_tokens_per_second"` // of all streams together, meanwhile
}

// Stalls is the result for all numbers of streams.
type Stalls struct {
	Head
	Model        string     `json:"model"`
	PromptTokens int        `json:"prompt_tokens"` // of the prompt that arrives
	TargetMs     float64    `json:"target_ms"`     // for a pass that carries tokens of it
	Rounds       int        `json:"rounds"`
	Rows         []StallRow `json:"rows"`
	LimitFigures
}

// Stalling measures the gaps between tokens of running streams while a prompt of o.Stall tokens arrives, on an engine that has
// room for all of them. Gaps are those of a reader: sampling and handing over are in them.
func Stalling(ctx context.Context, e *engine.Engine, name string, o BatchOptions) (*Stalls, error) {
	res := &Stalls{
		Head: NewHead(e.Threads()), Model: name, PromptTokens: o.Stall, TargetMs: 1e3 * e.StallTarget().Seconds(), Rounds: o.Rounds,
	}
	pool := tensor.NewPool(e.Threads())
	defer pool.Close()
	limits, err := NewLimits(pool)
	if err != nil {
		return nil, err
	}
	defer limits.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range o.Streams {
		sum := stallSum{streams: n}
		for range o.Rounds {
			limits.Measure()
			if err := o.stall(ctx, e, rng, &sum); err != nil {
				return nil, fmt.Errorf("%d streams: %w", n, err)
			}
		}
		res.Rows = append(res.Rows, sum.row(o.Stall*o.Rounds))
	}
	res.LimitFigures = limits.Figures()
	return res, nil
}

// arrivals are when a stream's tokens came.
type arrivals struct {
	times []time.Time
	err   error
}

// stall lets the prompt arrive once every stream has decoded o.Tokens tokens, and ends the streams when it has been read.
func (o *BatchOptions) stall(ctx context.Context, e *engine.Engine, rng *rand.Rand, sum *stallSum) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := sum.streams
	warm, ends := make(chan struct{}, n), make(chan arrivals, n)
	for range n {
		t, err := o.submit(ctx, e, rng, o.Prompt, o.Tokens+o.lead(n)+o.meanwhile())
		if err != nil {
			return err
		}
		go func() { ends <- o.receive(t, warm) }()
	}
	for range n {
		select {
		case <-warm:
		case a := <-ends:
			return errors.Join(a.err, errors.New("a stream ended before all ran"))
		}
	}
	began := time.Now()
	t, err := o.submit(ctx, e, rng, o.Stall, 1)
	if err != nil {
		return err
	}
	long := o.receive(t, warm)
	if long.err != nil {
		return long.err
	}
	read := long.times[0]
	cancel()
	for range n {
		a := <-ends
		if a.err != nil && !errors.Is(a.err, context.Canceled) {
			return a.err
		}
		sum.add(a.times, began, read)
	}
	if sum.took += read.Sub(began); len(sum.during) == 0 {
		return errors.New("the streams had ended before the prompt was read")
	}
	return nil
}

// meanwhile is how many tokens a stream may decode until the prompt is read, with some for the time before it is noticed: a
// tiny model decodes hundreds while this process waits for a core.
func (o *BatchOptions) meanwhile() int { return o.Stall/leastChunk + 512 }

// receive reads an answer and says on warm when it has o.Tokens tokens, or all.
func (o *BatchOptions) receive(t *engine.Ticket, warm chan<- struct{}) (a arrivals) {
	for tok := range t.Tokens() {
		if tok.HasID {
			a.times = append(a.times, time.Now())
		}
		if tok.HasID && len(a.times) == o.Tokens {
			warm <- struct{}{}
		}
		a.err = tok.Err
	}
	return a
}

// stallSum collects gaps.
type stallSum struct {
	streams        int
	before, during []float64 // seconds
	took           time.Duration
}

// add sorts a stream's gaps by whether they ended before the prompt came, or began before it had been read.
func (s *stallSum) add(times []time.Time, began, read time.Time) {
	for i := 1; i < len(times); i++ {
		gap := times[i].Sub(times[i-1]).Seconds()
		switch {
		case !times[i].After(began):
			s.before = append(s.before, gap)
		case times[i-1].Before(read):
			s.during = append(s.during, gap)
		}
	}
}

func (s *stallSum) row(nPrompt int) StallRow {
	r := StallRow{Streams: s.streams, Before: 1e3 * Median(s.before), Median: 1e3 * Median(s.during), Gaps: len(s.during), Seconds: s.took.Seconds()}
	if len(s.before) > 0 {
		r.MaxBefore = 1e3 * slices.Max(s.before)
	}
	if r.Gaps > 0 {
		slices.Sort(s.during)
		r.P99, r.Max = 1e3*s.during[(99*r.Gaps+99)/100-1], 1e3*s.during[r.Gaps-1]
	}
	r.PromptTPS, r.StreamTPS = float64(nPrompt)/r.Seconds, float64(r.Gaps)/r.Seconds
	return r
}

// String is the result for people.
func (s *Stalls) String() string {
	text := fmt.Sprintf("%v\nmodel    %s, a prompt of %d tokens arrives, target of a pass %.0f ms\n%v\n%8s %14s %8s %14s %8s %8s %8s %10s %16s %16s", s.Head, s.Model,
		s.PromptTokens, s.TargetMs, s.LimitFigures, "streams", "gap before ms", "max ms", "median gap ms", "p99 ms", "max ms", "gaps", "prompt s", "prompt tokens/s", "stream tokens/s")
	for _, r := range s.Rows {
		text += fmt.Sprintf("\n%8d %14.1f %8.1f %14.1f %8.1f %8.1f %8d %10.1f %16.1f %16.1f", r.Streams, r.Before, r.MaxBefore, r.Median, r.P99, r.Max, r.Gaps, r.Seconds, r.PromptTPS, r.StreamTPS)
	}
	return text
}

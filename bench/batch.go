package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"quickdraft/engine"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// BatchOptions say what is decoded at once.
type BatchOptions struct {
	Streams []int // numbers of requests at once, in the order of the rows
	Prompt  int   // tokens of each prompt, all different
	Tokens  int   // decoded by each request while it is measured
	Rounds  int   // times that every number is measured, in turns
	Stall   int   // tokens of the prompt of Stalling
	Sample  sample.Params
}

// leastChunk is how many tokens of a prompt the engine puts beside running answers at least.
const leastChunk = 4

// lead is how many tokens a request may decode while the prompts of n others are read.
func (o *BatchOptions) lead(n int) int { return n * ((o.Prompt + leastChunk - 1) / leastChunk) }

// MaxTokens is how long a request becomes.
func (o *BatchOptions) MaxTokens() int { return max(o.Stall+1, o.streamTokens()) }

// streamTokens is how long a stream becomes.
func (o *BatchOptions) streamTokens() int {
	n := o.Prompt + o.Tokens + o.lead(slices.Max(o.Streams))
	if o.Stall > 0 {
		n += o.meanwhile()
	}
	return n
}

// KVTokens is what the cache must hold for the most streams, and for the prompt that arrives beside them.
func (o *BatchOptions) KVTokens() int {
	return slices.Max(o.Streams)*(o.streamTokens()+16) + o.Stall + 16
}

// BatchRow is the speed of one number of streams.
type BatchRow struct {
	Streams         int     `json:"streams"`
	TokensPerSecond float64 `json:"tokens_per_second"` // of all streams together, median
	Spread          Spread  `json:"spread"`
	Ratio           float64 `json:"ratio"`     // to the row of one stream; 0 without one
	Steps           int     `json:"steps"`     // measured in the median run
	StepMs          float64 `json:"step_ms"`   // from the end of a pass to the end of the next
	KernelMs        float64 `json:"kernel_ms"` // products with weights
	AttentionMs     float64 `json:"attention_ms"`
	OtherMs         float64 `json:"other_ms"`       // the rest of the pass: norms, ropes, activations, the embedding
	SampleMs        float64 `json:"sampling_ms"`    // sampling and handing tokens on
	ScheduleMs      float64 `json:"scheduler_ms"`   // choosing what the next pass does
	IdleMs          float64 `json:"idle_ms"`        // what is left of the step
	OverheadShare   float64 `json:"overhead_share"` // of sampling and scheduler in a step
}

// Batch is the result for all numbers of streams.
type Batch struct {
	Head
	Model  string     `json:"model"`
	Rows   []BatchRow `json:"rows"`
	Prompt int        `json:"prompt_tokens"`
	Tokens int        `json:"tokens_each"`
	Rounds int        `json:"rounds"`
	LimitFigures
}

// Decoding measures decoding of several requests at once on an engine that has room for them; memory is measured before
// each run.
func Decoding(ctx context.Context, e *engine.Engine, name string, o BatchOptions) (*Batch, error) {
	res := &Batch{Head: NewHead(e.Threads()), Model: name, Prompt: o.Prompt, Tokens: o.Tokens, Rounds: o.Rounds}
	pool := tensor.NewPool(e.Threads())
	defer pool.Close()
	limits, err := NewLimits(pool)
	if err != nil {
		return nil, err
	}
	defer limits.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	runs := make([][]BatchRow, len(o.Streams))
	for range o.Rounds {
		for i, n := range o.Streams {
			limits.Measure()
			row, err := o.run(ctx, e, rng, n)
			if err != nil {
				return nil, fmt.Errorf("%d streams: %w", n, err)
			}
			runs[i] = append(runs[i], row)
		}
	}
	res.Rows, res.LimitFigures = batchRows(runs), limits.Figures()
	return res, nil
}

// batchRows are the results of some runs of each number of streams.
func batchRows(runs [][]BatchRow) (rows []BatchRow) {
	for _, same := range runs {
		rows = append(rows, middle(same))
	}
	if one := slices.IndexFunc(rows, func(r BatchRow) bool { return r.Streams == 1 }); one >= 0 {
		for i := range rows {
			rows[i].Ratio = rows[i].TokensPerSecond / rows[one].TokensPerSecond
		}
	}
	return rows
}

// run decodes n requests and measures the passes in which all of them get a token, until there are enough.
func (o *BatchOptions) run(parent context.Context, e *engine.Engine, rng *rand.Rand, n int) (BatchRow, error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	sum := stepSum{streams: n, want: o.Tokens, enough: cancel}
	if err := e.WatchPasses(sum.add); err != nil {
		return BatchRow{}, err
	}
	err := o.decode(ctx, e, rng, n)
	if errors.Is(err, context.Canceled) && parent.Err() == nil {
		err = nil
	}
	if end := e.WatchPasses(nil); err == nil {
		err = end
	}
	if err != nil {
		return BatchRow{}, err
	}
	return sum.row()
}

// decode runs n requests at once, to their ends or until ctx ends.
func (o *BatchOptions) decode(ctx context.Context, e *engine.Engine, rng *rand.Rand, n int) error {
	tickets := make([]*engine.Ticket, n)
	for i := range tickets {
		var err error
		if tickets[i], err = o.submit(ctx, e, rng, o.Prompt, o.Tokens+o.lead(n)); err != nil {
			return err
		}
	}
	ends := make(chan error, n)
	for _, t := range tickets {
		go func() {
			var err error
			for tok := range t.Tokens() {
				err = tok.Err
			}
			ends <- err
		}()
	}
	var err error
	for range n {
		if end := <-ends; err == nil {
			err = end
		}
	}
	return err
}

// submit starts a request with a random prompt.
func (o *BatchOptions) submit(ctx context.Context, e *engine.Engine, rng *rand.Rand, nPrompt, maxTokens int) (*engine.Ticket, error) {
	prompt := make([]int32, nPrompt)
	for i := range prompt {
		prompt[i] = int32(rng.IntN(e.Model().Config().Vocab))
	}
	p := o.Sample
	p.Seed = rng.Uint64()
	return e.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: maxTokens, IgnoreEOS: true, NoSpec: true, Sampling: p})
}

// stepSum adds up the passes in which all streams decode, one after the other.
type stepSum struct {
	streams int
	want    int       // steps that are enough
	enough  func()    // called then
	last    time.Time // end of the pass before, if it was one of them
	steps   int
	took    time.Duration
	parts   engine.Pass
}

// add sees a pass; it is called by the engine's loop.
func (s *stepSum) add(p engine.Pass) {
	if p.Requests != s.streams || p.Tokens != s.streams || s.steps == s.want {
		s.last = time.Time{}
		return
	}
	if !s.last.IsZero() {
		s.steps++
		s.took += p.End.Sub(s.last)
		s.parts.Schedule += p.Schedule
		s.parts.Forward += p.Forward
		s.parts.Products += p.Products
		s.parts.Attention += p.Attention
		s.parts.Sample += p.Sample
		if s.steps == s.want {
			s.enough()
		}
	}
	s.last = p.End
}

func (s *stepSum) row() (BatchRow, error) {
	if s.steps == 0 || s.took <= 0 {
		return BatchRow{}, errors.New("all were at it in no two passes: want more tokens")
	}
	ms := func(d time.Duration) float64 { return 1e3 * d.Seconds() / float64(s.steps) }
	p := &s.parts
	row := BatchRow{
		Streams: s.streams, TokensPerSecond: float64(s.steps*s.streams) / s.took.Seconds(), StepMs: ms(s.took), Steps: s.steps,
		KernelMs: ms(p.Products), AttentionMs: ms(p.Attention), OtherMs: ms(p.Forward - p.Products - p.Attention),
		SampleMs: ms(p.Sample), ScheduleMs: ms(p.Schedule), IdleMs: ms(s.took - p.Forward - p.Sample - p.Schedule),
	}
	row.OverheadShare = (row.SampleMs + row.ScheduleMs) / row.StepMs
	return row, nil
}

// middle is the run of the median speed, with the spread of all.
func middle(rows []BatchRow) BatchRow {
	speeds := make([]float64, len(rows))
	for i, r := range rows {
		speeds[i] = r.TokensPerSecond
	}
	slices.SortFunc(rows, func(a, b BatchRow) int {
		switch {
		case a.TokensPerSecond < b.TokensPerSecond:
			return -1
		case a.TokensPerSecond > b.TokensPerSecond:
			return 1
		}
		return 0
	})
	row := rows[len(rows)/2]
	row.Spread = SpreadOf(speeds)
	return row
}

// String is the result for people.
func (b *Batch) String() string {
	s := fmt.Sprintf("%v\nmodel    %s, prompts of %d tokens, %d tokens decoded by each stream\n%v\n%8s %10s %7s %7s %9s %9s %10s %8s %10s %10s %8s",
		b.Head, b.Model, b.Prompt, b.Tokens, b.LimitFigures, "streams", "tokens/s", "spread", "ratio", "step ms", "kernels", "attention",
		"other", "sampling", "scheduler", "idle")
	for _, r := range b.Rows {
		s += fmt.Sprintf("\n%8d %10.2f %7v %7.2f %9.2f %9.2f %10.3f %8.3f %10.4f %10.4f %8.4f", r.Streams, r.TokensPerSecond, r.Spread,
			r.Ratio, r.StepMs, r.KernelMs, r.AttentionMs, r.OtherMs, r.SampleMs, r.ScheduleMs, r.IdleMs)
	}
	return s
}

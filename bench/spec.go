package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"quickdraft/bench/prompts"
	"quickdraft/engine"
	"quickdraft/sample"
)

// SpecOptions say what a comparison with and without guesses runs.
type SpecOptions struct {
	Kinds    []string      // of prompts.Kinds
	PerKind  int           // prompts of each kind
	Tokens   int           // answer length at most
	Streams  int           // requests at once
	Sampling sample.Params // its seed is that of the first of the requests at once, the others count on from there
	Fixed    []int         // fixed numbers of guesses to run beside the controller
	Encode   func(prompt string) ([]int32, error)
	EOG      []int32
	Note     func(line string) // progress; may be nil
}

// SpecRow is one kind of prompt.
type SpecRow struct {
	Kind         string     `json:"kind"`
	Plain        float64    `json:"plain_tokens_per_second"`
	With         float64    `json:"tokens_per_second"`
	Ratio        float64    `json:"ratio"`
	PlainSpread  Spread     `json:"plain_spread"` // of the speed without guesses over groups of prompts: what the machine does
	RatioSpread  Spread     `json:"ratio_spread"` // over groups of prompts
	Rounds       int        `json:"rounds"`
	Drafted      int        `json:"draft_n"`
	Accepted     int        `json:"draft_n_accepted"`
	AcceptedAt   []float64  `json:"accepted_per_position"` // share of the guesses at a position that became part of the answer
	MeanAccepted float64    `json:"mean_accepted_length"`  // tokens a round of guesses gave, the target's own included
	PerPass      float64    `json:"tokens_per_pass"`
	Predicted    float64    `json:"predicted_tokens_per_second"`
	Error        float64    `json:"prediction_error"` // predicted over measured, less 1
	Identical    int        `json:"identical_answers"`
	Answers      int        `json:"answers"`
	Fixed        []FixedRun `json:"fixed,omitempty"`
	AgainstBest  float64    `json:"controller_over_best_fixed,omitempty"` // of these and of no guesses

	plainSpeeds, speeds []float64 // of each group of prompts
	plainTime, time     time.Duration
	plainTokens, tokens int
	accepted, offered   []int
	foreseen            float64 // tokens
	foreseenIn          float64 // seconds
}

// FixedRun is the same prompts with a fixed number of guesses in every round.
type FixedRun struct {
	Guesses         int     `json:"guesses"`
	TokensPerSecond float64 `json:"tokens_per_second"`

	tokens int
	time   time.Duration
}

// SpecResult is the whole comparison.
type SpecResult struct {
	Head
	Rows     []SpecRow `json:"kinds"`
	All      SpecRow   `json:"all"`
	Pass     []float64 `json:"pass_seconds"`  // T(M), M from 1
	Draft    []float64 `json:"draft_seconds"` // D of 1, 2, ... levels
	Lossy    bool      `json:"lossy"`
	Streams  int       `json:"streams"`
	Temp     float64   `json:"temperature"`
	Sampling string    `json:"sampling"`
}

// Speculation decodes every prompt with and without guesses in turns, on the same engine and in the same minutes.
func Speculation(ctx context.Context, e *engine.Engine, o SpecOptions) (*SpecResult, error) {
	res := &SpecResult{Head: NewHead(e.Threads()), Streams: o.Streams, Temp: o.Sampling.Temperature, Sampling: describe(&o.Sampling)}
	groups := 0
	for _, kind := range o.Kinds {
		set := prompts.Set(kind)
		if set == nil {
			return nil, fmt.Errorf("prompts %q: want one of %s", kind, strings.Join(prompts.Kinds, ", "))
		}
		row := SpecRow{Kind: kind}
		set = set[:min(o.PerKind, len(set))]
		for first := 0; first < len(set); first += o.Streams {
			if err := o.both(ctx, e, &row, set[first:min(first+o.Streams, len(set))], groups); err != nil {
				return nil, err
			}
			groups++
		}
		report, _ := e.SpecReport()
		res.Pass, res.Draft = report.Pass, report.Draft
		row.finish()
		res.Rows = append(res.Rows, row)
		res.All.add(&row)
		if o.Note != nil {
			o.Note(row.line())
		}
	}
	res.All.Kind = "all"
	res.All.finish()
	res.Lossy = e.Spec().Lenience < 1
	return res, nil
}

// mode is how requests run: without guesses, as the controller decides, or with a fixed number.
type mode struct {
	plain bool
	fixed int
}

// both runs some prompts with and without guesses, the order changing from group to group.
func (o *SpecOptions) both(ctx context.Context, e *engine.Engine, row *SpecRow, group []string, n int) error {
	var ids [][]int32
	for _, p := range group {
		prompt, err := o.Encode(p)
		if err != nil {
			return err
		}
		ids = append(ids, prompt)
	}
	// All find the prompt in the caches, a draft model too: two tokens have one of them drafted for.
	if _, _, err := o.run(ctx, e, ids, mode{fixed: 1}, 3); err != nil {
		return err
	}
	modes := []mode{{plain: true}, {}}
	for _, n := range o.Fixed {
		modes = append(modes, mode{fixed: n})
	}
	answers := make([][][]int32, len(modes))
	for i := range modes {
		at := (n + i) % len(modes)
		before, _ := e.SpecReport()
		out, stats, err := o.run(ctx, e, ids, modes[at], o.Tokens)
		if err != nil {
			return err
		}
		row.count(stats, modes[at])
		if after, _ := e.SpecReport(); at == 1 && o.Streams == 1 {
			row.foresee(stats, after.Foreseen-before.Foreseen)
		}
		answers[at] = out
	}
	for i := range ids {
		row.Answers++
		same := true
		for _, other := range answers[1:] {
			same = same && slices.Equal(answers[0][i], other[i])
		}
		if same {
			row.Identical++
		}
	}
	return nil
}

// run answers the prompts at once.
func (o *SpecOptions) run(ctx context.Context, e *engine.Engine, ids [][]int32, m mode, tokens int) (out [][]int32, stats []engine.Stats, err error) {
	p := o.Sampling
	var tickets []*engine.Ticket
	for i, prompt := range ids {
		p.Seed = o.Sampling.Seed + uint64(i)
		t, err := e.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: tokens, Sampling: p, EOG: o.EOG, NoSpec: m.plain, SpecFixed: m.fixed})
		if err != nil {
			return nil, nil, err
		}
		tickets = append(tickets, t)
	}
	out = make([][]int32, len(tickets))
	done := make(chan error, len(tickets))
	for i, t := range tickets {
		go func() {
			var err error
			for tok := range t.Tokens() {
				if tok.HasID {
					out[i] = append(out[i], tok.ID)
				}
				if tok.Err != nil {
					err = tok.Err
				}
			}
			done <- err
		}()
	}
	for range tickets {
		if failed := <-done; failed != nil {
			err = failed
		}
	}
	for _, t := range tickets {
		stats = append(stats, t.Stats())
	}
	return out, stats, err
}

// count takes the figures of one group in: its time is that of its longest answer.
func (r *SpecRow) count(stats []engine.Stats, m mode) {
	var longest time.Duration
	tokens := 0
	for _, s := range stats {
		longest = max(longest, s.Decode)
		tokens += max(0, s.DecodedTokens-1)
	}
	if m.fixed > 0 {
		r.addFixed(FixedRun{Guesses: m.fixed, tokens: tokens, time: longest})
		return
	}
	if m.plain {
		r.plainTime, r.plainTokens = r.plainTime+longest, r.plainTokens+tokens
		r.plainSpeeds = append(r.plainSpeeds, perSecond(tokens, longest))
		return
	}
	r.time, r.tokens = r.time+longest, r.tokens+tokens
	r.speeds = append(r.speeds, perSecond(tokens, longest))
	for _, s := range stats {
		r.Rounds, r.Drafted, r.Accepted = r.Rounds+s.Spec.Rounds, r.Drafted+s.Spec.Drafted, r.Accepted+s.Spec.Accepted
		r.accepted, r.offered = addTo(r.accepted, s.Spec.PerDepth), addTo(r.offered, s.Spec.Offered)
	}
}

// add joins the counts of another row.
func (r *SpecRow) add(o *SpecRow) {
	r.plainTime, r.plainTokens, r.time, r.tokens = r.plainTime+o.plainTime, r.plainTokens+o.plainTokens, r.time+o.time, r.tokens+o.tokens
	r.plainSpeeds, r.speeds = append(r.plainSpeeds, o.plainSpeeds...), append(r.speeds, o.speeds...)
	r.Rounds, r.Drafted, r.Accepted = r.Rounds+o.Rounds, r.Drafted+o.Drafted, r.Accepted+o.Accepted
	r.accepted, r.offered = addTo(r.accepted, o.accepted), addTo(r.offered, o.offered)
	r.foreseen, r.foreseenIn = r.foreseen+o.foreseen, r.foreseenIn+o.foreseenIn
	for _, f := range o.Fixed {
		r.addFixed(f)
	}
	r.Identical, r.Answers = r.Identical+o.Identical, r.Answers+o.Answers
}

// addFixed adds the counts of a fixed number of guesses.
func (r *SpecRow) addFixed(f FixedRun) {
	for i := range r.Fixed {
		if r.Fixed[i].Guesses == f.Guesses {
			r.Fixed[i].tokens, r.Fixed[i].time = r.Fixed[i].tokens+f.tokens, r.Fixed[i].time+f.time
			return
		}
	}
	r.Fixed = append(r.Fixed, f)
}

// against derives the rates of the fixed settings, and how the controller compares with the best of these and plain decoding.
func (r *SpecRow) against() {
	best := r.Plain
	for i := range r.Fixed {
		f := &r.Fixed[i]
		f.TokensPerSecond = perSecond(f.tokens, f.time)
		best = max(best, f.TokensPerSecond)
	}
	if len(r.Fixed) > 0 && best > 0 {
		r.AgainstBest = r.With / best
	}
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func addTo(sum, x []int) []int {
	for len(sum) < len(x) {
		sum = append(sum, 0)
	}
	for i, v := range x {
		sum[i] += v
	}
	return sum
}

// spreads derives how far the groups of prompts differ; an answer of one token has no speed.
func (r *SpecRow) spreads() {
	var plain, ratios []float64
	for i, speed := range r.plainSpeeds {
		if speed > 0 {
			plain, ratios = append(plain, speed), append(ratios, r.speeds[i]/speed)
		}
	}
	r.PlainSpread, r.RatioSpread = SpreadOf(plain), SpreadOf(ratios)
}

// finish derives the rates.
func (r *SpecRow) finish() {
	r.spreads()
	r.Plain, r.With = perSecond(r.plainTokens, r.plainTime), perSecond(r.tokens, r.time)
	if r.Plain > 0 {
		r.Ratio = r.With / r.Plain
	}
	for i, n := range r.accepted {
		r.AcceptedAt = append(r.AcceptedAt, float64(n)/float64(max(1, r.offered[i])))
	}
	if r.Rounds > 0 {
		r.MeanAccepted = 1 + float64(r.Accepted)/float64(r.Rounds)
	}
	if passes := r.tokens - r.Accepted; passes > 0 {
		r.PerPass = float64(r.tokens) / float64(passes)
	}
	r.against()
	if r.foreseenIn > 0 && r.With > 0 {
		r.Predicted = r.foreseen / r.foreseenIn
		r.Error = r.Predicted/r.With - 1
	}
}

// foresee adds what the model of a round predicts for one answer: its tokens in the seconds that T and D, as known before each
// round, gave for it. A round-by-round prediction follows a machine that drifts.
func (r *SpecRow) foresee(stats []engine.Stats, seconds float64) {
	for _, s := range stats {
		r.foreseen += float64(max(0, s.DecodedTokens-1))
	}
	r.foreseenIn += seconds
}

func (r *SpecRow) line() string {
	line := fmt.Sprintf("%-16s %8.2f %7v %8.2f %6.2fx %7v %9.2f %9.2f  %3d/%-3d", r.Kind, r.Plain, r.PlainSpread, r.With, r.Ratio, r.RatioSpread, r.MeanAccepted, r.PerPass, r.Identical, r.Answers)
	if r.Predicted > 0 {
		line += fmt.Sprintf(" %8.2f %+5.1f %%", r.Predicted, 100*r.Error)
	}
	if len(r.Fixed) > 0 {
		line += fmt.Sprintf("  %.2f of the best of 0:%.1f", r.AgainstBest, r.Plain)
		for _, f := range r.Fixed {
			line += fmt.Sprintf(" %d:%.1f", f.Guesses, f.TokensPerSecond)
		}
	}
	line += "  "
	for i, a := range r.AcceptedAt {
		if i == 8 {
			break
		}
		line += fmt.Sprintf(" %.2f", a)
	}
	return line
}

// describe names the settings that most answers are drawn with; the command line has others.
func describe(p *sample.Params) string {
	s := fmt.Sprintf("temperature %v", p.Temperature)
	if p.Temperature > 0 {
		s += fmt.Sprintf(", top-k %d, top-p %v, min-p %v", p.TopK, p.TopP, p.MinP)
	}
	return s
}

// SpecHeader names the columns of a row.
const SpecHeader = "prompts             plain  spread     with   ratio  spread accepted  per pass   same  predicted  off   accepted per position"

// String prints the comparison as a table.
func (s *SpecResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s; %d at once; tokens/s without and with guesses, in turns\n", s.Head, s.Sampling, s.Streams)
	if s.Lossy {
		b.WriteString("LOSSY: lenience changes the answers\n")
	}
	fmt.Fprintln(&b, SpecHeader)
	for i := range s.Rows {
		fmt.Fprintln(&b, s.Rows[i].line())
	}
	fmt.Fprintln(&b, s.All.line())
	b.WriteString("T(M) ms ")
	for _, t := range s.Pass {
		fmt.Fprintf(&b, " %.1f", 1e3*t)
	}
	b.WriteString("\nD(g) ms ")
	for _, d := range s.Draft {
		fmt.Fprintf(&b, " %.2f", 1e3*d)
	}
	return b.String()
}

package bench

import (
	"fmt"
	"time"

	"quickdraft/engine"
)

// SpecRow is one kind of prompt.
type SpecRow struct {
	Kind         string     `json:"kind"`
	Plain        float64    `json:"plain_tokens_per_second"` // 0 where no answer took longer than its first pass
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
	line := fmt.Sprintf("%-16s %8s %7v %8s %7s %7v", r.Kind, Figure(r.Plain).text("%.2f"), r.PlainSpread, Figure(r.With).text("%.2f"), Figure(r.Ratio).text("%.2fx"), r.RatioSpread)
	line += fmt.Sprintf(" %9.2f %9.2f  %3d/%-3d", r.MeanAccepted, r.PerPass, r.Identical, r.Answers)
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

// SpecHeader names the columns of a row.
const SpecHeader = "prompts             plain  spread     with   ratio  spread accepted  per pass   same  predicted  off   accepted per position"

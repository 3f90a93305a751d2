package bench

import (
	"context"
	"fmt"
)

// burst is the number of tokens that are decoded between two measurements of the limits.
const burst = 8

// Decode is the result of decoding token after token.
type Decode struct {
	Head
	Work
	TokensPerSecond float64 `json:"tokens_per_second"`
	Spread          Spread  `json:"spread"`          // of tokens_per_second over bursts of 8 tokens
	WeightGBps      float64 `json:"weight_gbps"`     // weights read
	BandwidthShare  float64 `json:"bandwidth_share"` // of what memory gave just before and after
	RooflineRatio   float64 `json:"roofline_ratio"`  // time of a token over its least time
	Context         int     `json:"context"`         // tokens in the cache before the first
	Tokens          int     `json:"tokens"`          // decoded in all
	LimitFigures
}

// Decode decodes nTokens tokens repeat times, each time after nContext others, and always takes the highest logit.
func (r *Runner) Decode(ctx context.Context, nContext, nTokens, repeat int) (*Decode, error) {
	res := &Decode{Head: NewHead(r.model.Pool().N()), Work: r.Work, Context: nContext}
	var speed, share, ratio []float64
	for range repeat {
		if err := r.fill(nContext); err != nil {
			return nil, err
		}
		next := r.random(1)[0]
		before := r.Limits.Measure()
		for done := 0; done < nTokens; done += burst {
			n := min(burst, nTokens-done)
			start := r.now()
			for range n {
				logits, err := r.pass(append(r.ids[:0], next), 1)
				if err != nil {
					return nil, err
				}
				r.seq.Commit(1)
				next = highest(logits)
			}
			token := r.now().Sub(start).Seconds() / float64(n)
			after := r.Limits.Measure()
			at := between(before, after)
			before = after
			speed = append(speed, 1/token)
			share = append(share, float64(r.Work.WeightBytes)/1e9/token/at.DRAM)
			ratio = append(ratio, token/r.Work.Roofline(1, 1, at))
			res.Tokens += n
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	res.TokensPerSecond, res.Spread = Median(speed), SpreadOf(speed)
	res.WeightGBps = res.TokensPerSecond * float64(r.Work.WeightBytes) / 1e9
	res.BandwidthShare, res.RooflineRatio = Median(share), Median(ratio)
	res.LimitFigures = r.Limits.Figures()
	return res, nil
}

func highest(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// String is the result for people.
func (d *Decode) String() string {
	return fmt.Sprintf("%v\n%v\n%v\ndecode   %.2f tokens/s (spread %v), %.1f GB/s of weights, share of memory bandwidth %.2f, time over roofline %.2f",
		d.Head, d.Work, d.LimitFigures, d.TokensPerSecond, d.Spread, d.WeightGBps, d.BandwidthShare, d.RooflineRatio)
}

// VerifyRow is the time of passes over M tokens of one sequence, the logits of all of them wanted.
type VerifyRow struct {
	M             int     `json:"m"`
	Ms            float64 `json:"ms"`    // median
	Ratio         float64 `json:"ratio"` // to the row of one token
	RooflineRatio float64 `json:"roofline_ratio"`
	Spread        Spread  `json:"spread"` // of ms
}

// Verify is the result of passes of every size.
type Verify struct {
	Head
	Work
	Rows    []VerifyRow `json:"rows"`
	Context int         `json:"context"`
	Rounds  int         `json:"rounds"`
	LimitFigures
}

// Verify times passes over 1 to maxM tokens after nContext others, rounds times each, in a new order every round.
func (r *Runner) Verify(ctx context.Context, nContext, maxM, rounds int) (*Verify, error) {
	if err := r.fill(nContext); err != nil {
		return nil, err
	}
	times, ratios := make([][]float64, maxM+1), make([][]float64, maxM+1)
	before := r.Limits.Measure()
	for round := -1; round < rounds; round++ { // the first warms up
		for _, i := range r.rng.Perm(maxM) {
			m := i + 1
			ids := r.random(m)
			start := r.now()
			if _, err := r.pass(ids, m); err != nil {
				return nil, err
			}
			took := r.now().Sub(start).Seconds()
			after := r.Limits.Measure()
			if round >= 0 {
				times[m] = append(times[m], 1e3*took)
				ratios[m] = append(ratios[m], took/r.Work.Roofline(m, m, between(before, after)))
			}
			before = after
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	res := &Verify{Head: NewHead(r.model.Pool().N()), Work: r.Work, Context: nContext, Rounds: rounds, LimitFigures: r.Limits.Figures()}
	for m := 1; m <= maxM; m++ {
		res.Rows = append(res.Rows, VerifyRow{
			M: m, Ms: Median(times[m]), Ratio: Median(times[m]) / Median(times[1]),
			RooflineRatio: Median(ratios[m]), Spread: SpreadOf(times[m]),
		})
	}
	return res, nil
}

// String is the result for people.
func (v *Verify) String() string {
	s := fmt.Sprintf("%v\n%v\n%v\n%6s %10s %8s %10s %8s", v.Head, v.Work, v.LimitFigures, "tokens", "ms", "ratio", "roofline", "spread")
	for _, row := range v.Rows {
		s += fmt.Sprintf("\n%6d %10.2f %8.2f %10.2f %8v", row.M, row.Ms, row.Ratio, row.RooflineRatio, row.Spread)
	}
	return s
}

// Prefill is the result of reading prompts.
type Prefill struct {
	Head
	Work
	TokensPerSecond float64 `json:"tokens_per_second"`
	Spread          Spread  `json:"spread"`
	GMACs           float64 `json:"gmacs"`      // 10^9 multiply-adds with weights a second
	PeakShare       Figure  `json:"peak_share"` // of the int8 peak just before and after
	RooflineRatio   float64 `json:"roofline_ratio"`
	PromptTokens    int     `json:"prompt_tokens"`
	Batch           int     `json:"batch"` // tokens of one pass
	Repeat          int     `json:"repeat"`
	LimitFigures
}

// Prefill reads a prompt of nTokens tokens repeat times, after once to warm up. The logits of each pass's last token are
// computed, as a real prompt wants at least those of the last.
func (r *Runner) Prefill(ctx context.Context, nTokens, repeat int) (*Prefill, error) {
	res := &Prefill{Head: NewHead(r.model.Pool().N()), Work: r.Work, PromptTokens: nTokens, Batch: r.model.MaxBatch(), Repeat: repeat}
	passes := (nTokens + res.Batch - 1) / res.Batch
	macs := float64(r.Work.TokenMACs)*float64(nTokens) + float64(r.Work.LogitMACs)*float64(passes)
	var speed, share, ratio []float64
	for i := -1; i < repeat; i++ {
		n := nTokens
		if i < 0 {
			n = min(n, 64)
		}
		before := r.Limits.Measure()
		start := r.now()
		if err := r.fill(n); err != nil {
			return nil, err
		}
		took := r.now().Sub(start).Seconds()
		at := between(before, r.Limits.Measure())
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if i < 0 {
			continue
		}
		speed = append(speed, float64(nTokens)/took)
		if at.Peak > 0 {
			share = append(share, macs/1e9/took/at.Peak)
		}
		ratio = append(ratio, took/(r.Work.Roofline(nTokens, passes, at)))
	}
	res.TokensPerSecond, res.Spread = Median(speed), SpreadOf(speed)
	res.GMACs = res.TokensPerSecond / float64(nTokens) * macs / 1e9
	res.PeakShare, res.RooflineRatio = Figure(Median(share)), Median(ratio)
	res.LimitFigures = r.Limits.Figures()
	return res, nil
}

// String is the result for people.
func (p *Prefill) String() string {
	return fmt.Sprintf("%v\n%v\n%v\nprefill  %d tokens, %.1f tokens/s (spread %v), %.0f GMAC/s, share of the int8 peak %s, time over roofline %.2f",
		p.Head, p.Work, p.LimitFigures, p.PromptTokens, p.TokensPerSecond, p.Spread, p.GMACs, p.PeakShare.text("%.2f"), p.RooflineRatio)
}

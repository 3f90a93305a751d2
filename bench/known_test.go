package bench

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/engine"
)

// Tests of the arithmetic of results: clocks go by hand.

type handClock struct{ at time.Time }

func (c *handClock) now() time.Time          { return c.at }
func (c *handClock) advance(d time.Duration) { c.at = c.at.Add(d) }

// knownLimits measure memory at 25 and 55 GB/s and products at 250 and 550 GMAC/s in turns, 40 and 400 between any two. Of the
// three tries of products only the second is not interrupted.
func knownLimits(c *handClock) *Limits {
	reads, tries := 0, 0
	gbps := func() float64 { return []float64{25, 55}[(reads-1)%2] }
	return &Limits{
		bytes: 550e6, rounds: 1000, now: c.now,
		read: func() {
			reads++
			c.advance(time.Duration(550e6 / gbps()))
		},
		multiply: func(rounds int) int64 {
			d := time.Duration(float64(rounds) * 550e3 / (10 * gbps()))
			if tries++; tries%peakTries != 2 {
				d *= 3
			}
			c.advance(d)
			return int64(rounds) * 550e3
		},
	}
}

// known has the tiny model's passes take what took says, and work whose least time is 20 ms and 3 ms for each token with
// logits or 0.5 ms for each without, whichever is longer.
func known(t *testing.T, took func(nTokens, nLogits int) time.Duration) *Runner {
	r, c := runner(t, 200), &handClock{time.Unix(1, 0)}
	r.Limits.Close()
	r.Limits, r.now = knownLimits(c), c.now
	r.Work = Work{Model: "known", WeightBytes: 800e6, TokenMACs: 200e6, LogitMACs: 1e9}
	r.pass = func(ids []int32, nLogits int) ([]float32, error) {
		c.advance(took(len(ids), nLogits))
		return r.forward(ids, nLogits)
	}
	return r
}

func TestDecodeOfKnownTimes(t *testing.T) {
	passes := 0
	r := known(t, func(nTokens, _ int) time.Duration {
		if nTokens > 1 {
			return time.Second // of the context, not counted
		}
		passes++
		return []time.Duration{20, 25, 40}[(passes-1)/burst] * time.Millisecond
	})
	d, err := r.Decode(context.Background(), 32, 20, 1)
	require.NoError(t, err)
	require.Equal(t, 20, d.Tokens)
	require.InDelta(t, 40, d.TokensPerSecond, 1e-6, "50, 40 and 25")
	require.InDelta(t, 25.0/40, float64(d.Spread), 1e-6)
	require.InDelta(t, 32, d.WeightGBps, 1e-6)
	require.InDelta(t, 0.8, d.BandwidthShare, 1e-6)
	require.InDelta(t, 1.25, d.RooflineRatio, 1e-6)
	require.InDelta(t, 40, d.DRAMGBps, 1e-6)
	require.InDelta(t, 400, float64(d.PeakGMACs), 1e-3)
	require.InDelta(t, 0.75, float64(d.DRAMSpread), 1e-6)
	require.InDelta(t, 0.75, float64(d.PeakSpread), 1e-6)
}

func TestVerifyOfKnownTimes(t *testing.T) {
	ms := []float64{1: 30, 2: 31, 3: 36, 4: 33, 5: 33, 6: 33, 7: 35, 8: 42} // of the middle round
	seen := make([]int, len(ms))
	r := known(t, func(nTokens, nLogits int) time.Duration {
		if nTokens != nLogits {
			return time.Second // of the context
		}
		seen[nTokens]++
		return time.Duration(ms[nTokens] * []float64{100, 1.3, 1, 0.9}[seen[nTokens]-1] * 1e6)
	})
	v, err := r.Verify(context.Background(), 32, 8, 3)
	require.NoError(t, err)
	require.Len(t, v.Rows, 8)
	for i, row := range v.Rows {
		m := i + 1
		require.Equal(t, m, row.M)
		require.InDelta(t, ms[m], row.Ms, 1e-6)
		require.InDelta(t, ms[m]/30, row.Ratio, 1e-6)
		require.InDelta(t, ms[m]/max(20, 3*float64(m)), row.RooflineRatio, 1e-6, "%d tokens", m)
		require.InDelta(t, 0.4, float64(row.Spread), 1e-6)
	}
	require.InDelta(t, 1.75, v.Rows[7].RooflineRatio, 1e-6, "42 ms over 24 of products")
}

func TestPrefillOfKnownTimes(t *testing.T) {
	var sizes []int
	r := known(t, func(nTokens, nLogits int) time.Duration {
		require.Equal(t, 1, nLogits)
		sizes = append(sizes, nTokens)
		run := max(0, (len(sizes)-3)/4) // 2 passes of 32 tokens to warm up, then 4 a run
		if len(sizes) <= 2 {
			return time.Minute
		}
		return time.Duration(nTokens) * []time.Duration{1, 4, 2}[run] * time.Millisecond
	})
	p, err := r.Prefill(context.Background(), 100, 3)
	require.NoError(t, err)
	require.Equal(t, []int{32, 32, 32, 32, 32, 4}, sizes[:6])
	require.InDelta(t, 500, p.TokensPerSecond, 1e-6, "1000, 500 and 250")
	require.InDelta(t, 1.5, float64(p.Spread), 1e-6)
	require.InDelta(t, (100*0.2+4*1)/0.2, p.GMACs, 1e-6, "four rows of logits")
	require.InDelta(t, 0.3, float64(p.PeakShare), 1e-6)
	require.InDelta(t, 200.0/60, p.RooflineRatio, 1e-6)
}

func TestPlaceOfKnownTimes(t *testing.T) {
	r := known(t, func(nTokens, _ int) time.Duration { return time.Duration(nTokens) * 25 * time.Millisecond })
	p, err := r.PlaceModel(context.Background())
	require.NoError(t, err)
	require.InDelta(t, 40, p.TokensPerSecond, 1e-6)
	require.InDelta(t, 50, p.RooflineTokensPerSecond, 1e-6)
	require.InDelta(t, 1.25, p.RooflineRatio, 1e-6)
	require.InDelta(t, 20.0/3, float64(p.TokensUntilCompute), 1e-6)
	require.InDelta(t, 0, float64(p.Spread), 1e-6)
}

// TestPeakUnknown has no kernel that measures products: nothing is said of their peak, rather than that it is 0.
func TestPeakUnknown(t *testing.T) {
	r := known(t, func(nTokens, _ int) time.Duration { return time.Duration(nTokens) * 25 * time.Millisecond })
	r.Limits.multiply = func(int) int64 { return 0 }
	p, err := r.Prefill(context.Background(), 8, 2)
	require.NoError(t, err)
	require.Contains(t, p.String(), ") n/a GMAC/s (spread n/a), measured between the passes\n")
	require.Contains(t, p.String(), "share of the int8 peak n/a, ")
	place, err := r.PlaceModel(context.Background())
	require.NoError(t, err)
	roofline := Roofline{Chain: &Chain{}, Place: place, Peaks: []PeakRow{{Threads: 2}}, MatrixPeaks: []PeakRow{{GMACs: 5}}}
	require.Regexp(t, `2 +int8 +n/a `, roofline.String())
	require.Contains(t, roofline.String(), "passes of more than n/a tokens")
	f, g := fields(t, p), fields(t, roofline)
	for _, value := range []struct {
		in  any
		key string
	}{{f, "peak_gmacs"}, {f, "peak_share"}, {g["place"], "tokens_until_compute"}, {g["peaks"].([]any)[0], "gmacs"}} {
		require.Contains(t, value.in, value.key)
		require.Nil(t, value.in.(map[string]any)[value.key], value.key)
	}
	require.EqualValues(t, 5, g["matrix_peaks"].([]any)[0].(map[string]any)["gmacs"])
}

func TestStepsOfKnownPasses(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	pass := func(end, tokens, schedule, forward, products, attention, sample int) engine.Pass {
		return engine.Pass{
			Requests: 2, Tokens: tokens, End: time.Unix(1, 0).Add(ms(end)), Schedule: ms(schedule), Forward: ms(forward),
			Products: ms(products), Attention: ms(attention), Sample: ms(sample),
		}
	}
	enough := 0
	s := stepSum{streams: 2, want: 2, enough: func() { enough++ }}
	_, err := s.row()
	require.ErrorContains(t, err, "want more tokens")
	s.add(pass(0, 2, 90, 90, 90, 90, 90)) // nobody knows when it began
	s.add(pass(10, 2, 1, 7, 4, 2, 1))
	s.add(pass(110, 9, 90, 90, 90, 90, 90)) // one reads a prompt
	s.add(pass(200, 2, 90, 90, 90, 90, 90))
	s.add(pass(220, 2, 1, 15, 10, 3, 2))
	s.add(pass(230, 2, 90, 90, 90, 90, 90))
	require.Equal(t, 1, enough)
	row, err := s.row()
	require.NoError(t, err)
	require.Equal(t, 2, row.Steps)
	for name, c := range map[string][2]float64{
		"tokens/s": {4 / 0.03, row.TokensPerSecond}, "step": {15, row.StepMs}, "kernels": {7, row.KernelMs},
		"attention": {2.5, row.AttentionMs}, "other": {1.5, row.OtherMs}, "sampling": {1.5, row.SampleMs},
		"scheduler": {1, row.ScheduleMs}, "idle": {1.5, row.IdleMs}, "overhead": {1.0 / 6, row.OverheadShare},
	} {
		require.InDelta(t, c[0], c[1], 1e-9, name)
	}
	sum := row.KernelMs + row.AttentionMs + row.OtherMs + row.SampleMs + row.ScheduleMs + row.IdleMs
	require.InDelta(t, row.StepMs, sum, 1e-9, "the parts of a step")
}

func TestBatchRowsOfKnownRuns(t *testing.T) {
	speeds := func(streams int, x ...float64) (rows []BatchRow) {
		for _, v := range x {
			rows = append(rows, BatchRow{Streams: streams, TokensPerSecond: v})
		}
		return rows
	}
	rows := batchRows([][]BatchRow{speeds(8, 60, 20, 40), speeds(1, 11, 10, 9)})
	require.InDelta(t, 40, rows[0].TokensPerSecond, 1e-9)
	require.InDelta(t, 1, float64(rows[0].Spread), 1e-9)
	require.InDelta(t, 4, rows[0].Ratio, 1e-9)
	require.InDelta(t, 0.2, float64(rows[1].Spread), 1e-9)
	require.InDelta(t, 1, rows[1].Ratio, 1e-9)
	require.Zero(t, batchRows([][]BatchRow{speeds(8, 60)})[0].Ratio, "to nothing")
}

// TestLimitsOfInterruptedTries has the system interrupt one call of the products, whichever.
func TestLimitsOfInterruptedTries(t *testing.T) {
	for stalled := range 40 {
		c, calls := &handClock{}, 0
		l := &Limits{bytes: 1, now: c.now, read: func() {}, multiply: func(rounds int) int64 {
			if calls++; calls == stalled {
				c.advance(5 * time.Millisecond)
			}
			c.advance(time.Duration(10 * rounds))
			return 500 * int64(rounds)
		}}
		l.calibrate()
		require.Equal(t, 64000, l.rounds, "0.64 ms, with call %d interrupted", stalled)
		require.InDelta(t, 50, l.Measure().Peak, 1e-9)
	}
}

// TestLimitsOfABusyMachine has every call take 3 ms longer, as where workers wait for a core.
func TestLimitsOfABusyMachine(t *testing.T) {
	c := &handClock{}
	l := &Limits{bytes: 1, now: c.now, read: func() {}, multiply: func(rounds int) int64 {
		c.advance(3*time.Millisecond + time.Duration(10*rounds))
		return 500 * int64(rounds)
	}}
	l.calibrate()
	require.Greater(t, l.Measure().Peak, 40.0)
	require.Less(t, l.rounds, 10_000_000)
	l.multiply = func(int) int64 { return 0 }
	l.calibrate()
	require.Zero(t, l.Measure().Peak, "no kernel")
}

func TestLimitsThatMovedAreUnsure(t *testing.T) {
	unknown := SpreadOf(nil)
	for _, c := range []struct {
		dram, peak Spread
		unsure     bool
	}{{0.2, 0.2, false}, {0.21, 0, true}, {0, 0.21, true}, {unknown, unknown, false}, {unknown, 0.5, true}} {
		s := LimitFigures{DRAMSpread: c.dram, PeakSpread: c.peak}.String()
		require.Equal(t, c.unsure, strings.Contains(s, "\nunsure   limits spread by more than 20 %"), s)
	}
}

func TestReadsOfInterruptedTries(t *testing.T) {
	for stalled := range 5 {
		c, calls := &handClock{}, []int(nil)
		rate := rateOf(1e6, c.now, func(times int) {
			if len(calls) == stalled {
				c.advance(20 * time.Millisecond)
			}
			calls = append(calls, times)
			c.advance(time.Duration(times) * 100 * time.Microsecond)
		})
		require.Equal(t, []int{1, 1, 1, 1, 150}, calls)
		if stalled < 4 {
			require.InDelta(t, 10, rate, 1e-9)
		}
	}
}

func TestSpreadOfOneIsUnknown(t *testing.T) {
	for _, x := range [][]float64{nil, {5}, {0, 0}} {
		require.True(t, math.IsNaN(float64(SpreadOf(x))))
	}
	require.Equal(t, "n/a", SpreadOf([]float64{5}).String())
	require.Equal(t, "50 %", SpreadOf([]float64{4, 5, 3}).String())
	data, err := json.Marshal([]Spread{SpreadOf([]float64{5}), SpreadOf([]float64{3, 4, 5})})
	require.NoError(t, err)
	require.JSONEq(t, "[null, 0.5]", string(data))

	r := known(t, func(nTokens, _ int) time.Duration { return time.Duration(nTokens) * time.Millisecond })
	d, err := r.Decode(context.Background(), 2, 8, 1)
	require.NoError(t, err)
	v, err := r.Verify(context.Background(), 3, 1, 1)
	require.NoError(t, err)
	p, err := r.Prefill(context.Background(), 8, 1)
	require.NoError(t, err)
	require.Contains(t, d.String(), "tokens/s (spread n/a)")
	require.Contains(t, p.String(), "tokens/s (spread n/a)")
	require.Regexp(t, `1 +1.00 +1.00 +0.05 +n/a$`, v.String())
	f := fields(t, d)
	require.Contains(t, f, "spread")
	require.Nil(t, f["spread"])
	require.Nil(t, fields(t, p)["spread"])
	require.Nil(t, fields(t, v)["rows"].([]any)[0].(map[string]any)["spread"])
	b := Batch{Rows: batchRows([][]BatchRow{{{Streams: 1, TokensPerSecond: 3}}})}
	require.Contains(t, b.String(), "3.00     n/a")
	require.Nil(t, fields(t, b)["rows"].([]any)[0].(map[string]any)["spread"])
}

func TestCommandLine(t *testing.T) {
	env := map[string]string{"QUICKDRAFT_ISA": "avx2", "GOGC": "off", "QUICKDRAFT_MODELS": "/m", "HOME": "/root"}
	line := commandLine([]string{"/tmp/bin/quickdraft", "bench", "decode", "-m", "qwen2.5-coder:1.5b", "--x=my file's", "", "a$b"},
		func(name string) string { return env[name] })
	require.Equal(t, `QUICKDRAFT_ISA=avx2 GOGC=off quickdraft bench decode -m qwen2.5-coder:1.5b '--x=my file'\''s' '' 'a$b'`, line)
	none := func(string) string { return "" }
	require.Equal(t, "quickdraft bench", commandLine([]string{"quickdraft", "bench"}, none))
	t.Setenv("QUICKDRAFT_ISA", "avx2")
	require.True(t, slices.Contains(figureVariables, "QUICKDRAFT_ISA"))
	require.Contains(t, NewHead(2).String(), "command  QUICKDRAFT_ISA=avx2 ")
}

package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

// TestFlatLists compares top-p and typical-p of long lists of which most stays with their definition, in all shapes: a bell,
// steps with many equal logits, all equal, one far above, and some forbidden.
func TestFlatLists(t *testing.T) {
	const n = 20_037
	shapes := map[string]func(rng *rand.Rand, i int) float64{
		"bell":      func(rng *rand.Rand, _ int) float64 { return rng.NormFloat64() },
		"even":      func(rng *rand.Rand, _ int) float64 { return rng.Float64() },
		"steps":     func(rng *rand.Rand, _ int) float64 { return float64(rng.IntN(40)) / 16 },
		"equal":     func(*rand.Rand, int) float64 { return 1.5 },
		"one above": func(rng *rand.Rand, i int) float64 { return rng.Float64() + map[bool]float64{true: 12}[i == 777] },
		"forbidden": func(rng *rand.Rand, i int) float64 {
			if i%5 == 0 {
				return math.Inf(-1)
			}
			return rng.NormFloat64() / 2
		},
	}
	flat := 0
	for name, shape := range shapes {
		rng := rand.New(rand.NewPCG(11, 12))
		logits := make([]float64, n)
		for i := range logits {
			logits[i] = float64(float32(shape(rng, i)))
		}
		for _, mass := range []float64{0.1234567, 0.51234, 0.9012345, 0.9991234} {
			for step, set := range map[string]func(p *Params){
				"top_p": func(p *Params) { p.TopP = mass }, "typical_p": func(p *Params) { p.TypicalP = mass },
			} {
				if step == "typical_p" && name == "forbidden" {
					continue // the definition divides by no probability
				}
				s := mustNew(t, n, set)
				want := naive{append([]float64{}, logits...)}
				p := s.Params()
				want.apply(&p, step, nil, 0)
				var d Dist
				require.NoError(t, distOf(s, &d, logits, nil))
				got, probs := dense(&d, n), want.probs()
				for id := range probs {
					require.InDelta(t, probs[id], got[id], 1e-11, "%s, %s %v: token %d", name, step, mass, id)
				}
				if s.w.cand.dense && s.w.cand.row == nil { // what went kept its place
					flat++
				}
			}
		}
	}
	require.Greater(t, flat, 15, "hardly a list went the way of flat ones")
}

// TestAtLeastIsTheLoop compares the marks and sums of every level with those of the loops.
func TestAtLeastIsTheLoop(t *testing.T) {
	for name, kind := range rows {
		for _, n := range []int{1, 63, 64, 127, 128} {
			rng := rand.New(rand.NewPCG(uint64(n), 9))
			x, wide, w := make([]float32, n), make([]float64, n), make([]float64, n)
			for i := range x {
				x[i], w[i] = kind(rng), rng.Float64()
				wide[i] = float64(x[i])
			}
			for _, low := range []float32{x[0], x[n/2], 0, float32(math.Inf(-1)), float32(math.Inf(1))} {
				var want mask
				for i, v := range x {
					if v >= low {
						want[i/64] |= 1 << (i % 64)
					}
				}
				reference := kernelSets[len(kernelSets)-1]
				sums, wantSums := make([]float64, 1), make([]float64, 1)
				reference.sumsWhere(wantSums, w, wide, float64(low))
				for _, k := range kernelSets {
					if !cpu.Has(k.level) {
						continue
					}
					what := fmt.Sprint(name, " ", n, " ", low, " ", k.level)
					var a, b mask
					k.atLeast32(&a, x, low)
					k.atLeast64Of(&b, wide, float64(low))
					k.sumsWhere(sums, w, wide, float64(low))
					require.Equal(t, want, a, what)
					require.Equal(t, want, b, what)
					require.Equal(t, wantSums, sums, what)
				}
			}
		}
	}
}

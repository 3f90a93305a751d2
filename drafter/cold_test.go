package drafter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAColdStart has nothing calibrated: all that is known of T is what the passes of the requests themselves took, noisy as
// they are. Guesses that do not pay cost the first credit and little more.
func TestAColdStart(t *testing.T) {
	most := map[int]float64{64: 1.045, 256: 1.03} // by tokens of an answer; the mean over the seeds
	for name, pass := range map[string]func(int) float64{"cheap": cheap, "dear": dear, "wall": wall} {
		for _, streams := range []int{1, 8, 16} {
			for tokens, bound := range most {
				for _, a := range []float64{0, 0.3, 0.6} {
					for _, level := range []float64{0, 8e-3} {
						m := simulation{pass: pass, level: level, accept: constant(a), streams: streams, tokens: tokens, noise: 0.1, cold: true}
						t.Run(fmt.Sprint(name, streams, tokens, a, level), func(t *testing.T) {
							var plain, with, worst float64
							for m.seed = range 8 {
								p, _ := m.run(t, 0)
								w, _ := m.run(t, -1)
								plain, with, worst = plain+p, with+w, max(worst, w/p)
							}
							require.LessOrEqual(t, with, plain*bound, "%.3f of the plain time", with/plain)
							require.LessOrEqual(t, worst, bound+0.04, "the slowest of 8")
						})
					}
				}
			}
		}
	}
}

func TestAFirstMeasurementMovesNoOtherCount(t *testing.T) {
	c := newPassCosts()
	for range 8 {
		c.Observe(8, 1)
	}
	expected := c.At(32)
	c.Observe(32, 1.9*expected)
	require.InDelta(t, 1.9*expected, c.At(32), 1e-9, "nothing spoke for what was expected")
	require.InDelta(t, 1, c.At(8), 1e-9)
	for range 2 * settled {
		c.Observe(32, 3*expected)
	}
	require.Greater(t, c.At(8), 1.0, "what was known and has changed speaks of the machine")
}

func TestWiderPassesAreNotFreeBecauseOfNoise(t *testing.T) {
	c := newPassCosts()
	for range 4 {
		c.Observe(16, 1)
		c.Observe(17, 0.9)
	}
	require.Greater(t, c.At(32), 1.3)
	require.Greater(t, c.At(maxCounts+64)-c.At(maxCounts), 1.5)
}

package kvcache

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/quant"
)

// TestScaleOfWhatIsNoNumber wants a scale that makes the whole group NaN when one value is NaN or infinite: an infinite scale
// would hide it behind codes of zero and infinities.
func TestScaleOfWhatIsNoNumber(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, bad := range []float32{inf, -inf, float32(math.NaN())} {
		scale := scaleOf([]float32{1, bad, -3})
		require.True(t, math.IsNaN(float64(quant.HalfToFloat(scale))), "%v", bad)
	}
	require.Equal(t, quant.FloatToHalf(float32(3)/127), scaleOf([]float32{1, 0, -3}))
	require.Zero(t, scaleOf([]float32{0, 0}))
}

// TestCodesStayInRange encodes values so small that their scale loses bits: a code is never beyond 127 in magnitude, as the
// kernels want it.
func TestCodesStayInRange(t *testing.T) {
	const step = 1.0 / (1 << 24) // the smallest float16
	beyond := 0
	for i := 1; i < 2000; i++ {
		x := float32(i) * step / 2
		d := quant.HalfToFloat(scaleOf([]float32{x, -x}))
		if d == 0 {
			require.Zero(t, codeOf(x, d))
			continue
		}
		if x/d > 128 {
			beyond++
		}
		require.LessOrEqual(t, codeOf(x, d), int8(127), "%g in units of %g", x, d)
		require.Equal(t, -codeOf(x, d), codeOf(-x, d), "%g in units of %g", x, d)
	}
	require.Positive(t, beyond)
}

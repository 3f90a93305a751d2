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

package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExp32(t *testing.T) {
	inf := float32(math.Inf(1))
	for x, want := range map[float32]float32{
		0: 1, float32(math.Copysign(0, -1)): 1, inf: inf, -inf: 0, 1e30: inf, -1e30: 0, -88: 0, 88.73: inf,
		1e-30: 1, -1e-30: 1,
	} {
		require.Equal(t, want, Exp32(x), "Exp32(%v)", x)
	}
	require.True(t, math.IsNaN(float64(Exp32(float32(math.NaN())))))

	worst, last := 0.0, float32(0)
	check := func(x float32) {
		want := math.Exp(float64(x))
		got := Exp32(x)
		worst = max(worst, math.Abs(float64(got)-want)/want)
		if got < last*(1-2.5e-7) {
			t.Fatalf("Exp32(%v) is %v, below its neighbour %v", x, got, last)
		}
		last = got
	}
	for x := float32(expMin); x <= expMax; x += 1.0 / 4096 {
		check(x)
	}
	last = 0
	for bits := uint32(0); bits < 0x3f800000; bits += 997 { // 0 to 1 by bit patterns
		check(math.Float32frombits(bits))
	}
	t.Logf("relative error of Exp32: %.3g", worst)
	require.Less(t, worst, 1e-7)
}

func TestTanh(t *testing.T) {
	worst := 0.0
	for x := float32(-120); x <= 120; x += 1.0 / 512 {
		worst = max(worst, math.Abs(float64(tanh32(x))-math.Tanh(float64(x))))
		if tanh32(x) != -tanh32(-x) {
			t.Fatalf("tanh32(%v) and tanh32(%v) differ in more than the sign", x, -x)
		}
	}
	t.Logf("absolute error of tanh32: %.3g", worst)
	require.Less(t, worst, 1e-7)
	nan := float32(math.NaN())
	require.NotEqual(t, tanh32(nan), tanh32(nan))
}

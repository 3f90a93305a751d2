package quant

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// halfValue evaluates a finite binary16 pattern by its definition.
func halfValue(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&0x3ff)
	v := math.Ldexp(frac, -24)
	if exp > 0 {
		v = math.Ldexp(1024+frac, exp-25)
	}
	if h&0x8000 != 0 {
		return -v
	}
	return v
}

func TestHalfToFloatAllPatterns(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got := HalfToFloat(h)
		switch {
		case h&0x7fff == 0x7c00:
			require.True(t, math.IsInf(float64(got), 1-int(h>>15)*2), "%#x", h)
		case h&0x7c00 == 0x7c00:
			require.True(t, got != got, "%#x", h)
			require.NotZero(t, FloatToHalf(got)&0x3ff, "%#x", h)
			continue
		default:
			require.Equal(t, math.Float64bits(halfValue(h)), math.Float64bits(float64(got)), "%#x", h)
		}
		require.Equal(t, h, FloatToHalf(got), "%#x", h)
	}
}

func TestFloatToHalfRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	check := func(v float32) {
		h := FloatToHalf(v)
		low, high := h&0x7fff, h&0x7fff
		got, want := math.Abs(halfValue(low)), math.Abs(float64(v))
		if low > 0 {
			low--
		}
		high++
		require.LessOrEqual(t, math.Abs(got-want), math.Abs(halfValue(low)-want), "%v", v)
		if high < 0x7c00 {
			require.LessOrEqual(t, math.Abs(got-want), math.Abs(halfValue(high)-want), "%v", v)
			if math.Abs(halfValue(high)-want) == math.Abs(got-want) || low != h&0x7fff && math.Abs(halfValue(low)-want) == math.Abs(got-want) {
				require.Zero(t, h&1, "tie of %v goes to the even code", v)
			}
		}
		require.Equal(t, math.Signbit(float64(v)), h&0x8000 != 0, "%v", v)
	}
	for range 60_000 {
		check(sparse(rng, -27, 14))
		check(float32(rng.NormFloat64()))
	}
	require.Equal(t, uint16(0x7c00), FloatToHalf(65520))
	require.Equal(t, uint16(0x7bff), FloatToHalf(65519.996))
	require.Equal(t, uint16(0xfc00), FloatToHalf(float32(math.Inf(-1))))
	require.Equal(t, uint16(0), FloatToHalf(0x1p-25))
	require.Equal(t, uint16(1), FloatToHalf(0x1.000002p-25))
}

func TestFloatToBFloatRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 100_000 {
		v := math.Float32frombits(rng.Uint32())
		got := BFloatToFloat(FloatToBFloat(v))
		if v != v {
			require.True(t, got != got)
			continue
		}
		want, _ := new(big.Float).SetPrec(8).SetFloat64(float64(v)).Float32()
		if math.Abs(float64(v)) >= 0x1p-126 { // below, bfloat16 has fewer bits than big.Float keeps
			require.Equal(t, want, got, "%x", v)
		}
	}
	require.Equal(t, uint16(1), FloatToBFloat(math.Float32frombits(0x8001)))
	require.Equal(t, uint16(0), FloatToBFloat(math.Float32frombits(0x8000)))
}

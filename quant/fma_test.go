package quant

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// exactFMA rounds the exact x*y + z once. All finite float32 products and sums fit in 700 bits.
func exactFMA(x, y, z float32) float32 {
	p := new(big.Float).SetPrec(700).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
	p.Add(p, big.NewFloat(float64(z)))
	if p.Sign() == 0 {
		return x*y + z // zero is exact; the hardware rule gives its sign
	}
	v, _ := p.Float32()
	return v
}

// fma32 is what loops spell out.
func fma32(x, y, z float32) float32 {
	s := fmaSum(x, y, z)
	if mayTie(s) {
		return fmaTie(x, y, z)
	}
	return float32(s)
}

func requireSameFMA(t *testing.T, x, y, z float32) {
	t.Helper()
	want, got := exactFMA(x, y, z), fma32(x, y, z)
	if math.Float32bits(want) != math.Float32bits(got) {
		require.Failf(t, "FMA32", "%x*%x + %x: want %x, got %x", x, y, z, want, got)
	}
}

// sparse returns a float32 with few significant bits, so that sums meet midpoints often.
func sparse(rng *rand.Rand, minExp, maxExp int) float32 {
	mantissa := uint32(0)
	for range rng.IntN(4) {
		mantissa |= 1 << rng.IntN(23)
	}
	switch rng.IntN(4) {
	case 0:
		mantissa = 0x7fffff &^ mantissa
	case 1:
		mantissa &= 3
	}
	exp := uint32(minExp + rng.IntN(maxExp-minExp+1) + 127)
	return math.Float32frombits(rng.Uint32()&(1<<31) | exp<<23 | mantissa)
}

func TestFMA32Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	finite := func() float32 {
		for {
			if v := math.Float32frombits(rng.Uint32()); v-v == 0 {
				return v
			}
		}
	}
	for range 30_000 {
		requireSameFMA(t, finite(), finite(), finite())
	}
	for range 30_000 {
		x, y := float32(rng.NormFloat64()), float32(rng.NormFloat64())
		requireSameFMA(t, x, y, float32(rng.NormFloat64()))
		requireSameFMA(t, x, y, float32(-float64(x)*float64(y))) // cancellation
	}
}

func TestFMA32Midpoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	wrong := 0
	for range 40_000 {
		// The product is half a unit of z's last place, give or take 2^-2k of it: from k = 15 on float64 rounds to the tie.
		z := math.Float32frombits(127<<23 | rng.Uint32()&0x7fffff)
		delta := math.Ldexp(1, -8-rng.IntN(16))
		x, y := float32(1+delta), float32(math.Ldexp(1-delta, -24))
		if rng.IntN(2) == 0 {
			y = float32(math.Ldexp(1+delta, -24))
		}
		if rng.IntN(2) == 0 {
			x = -x
		}
		scale := float32(math.Ldexp(1, rng.IntN(40)-20))
		requireSameFMA(t, x, y, z)
		requireSameFMA(t, -x, y, -z)
		requireSameFMA(t, x*scale, y, z*scale)
		requireSameFMA(t, x, sparse(rng, -30, -20), z)
		if float32(float64(x)*float64(y)+float64(z)) != exactFMA(x, y, z) {
			wrong++
		}
	}
	require.Greater(t, wrong, 2_000, "inputs on which rounding through float64 is wrong")
}

func TestFMA32Subnormal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 40_000 {
		z := math.Float32frombits(rng.Uint32() & (1<<31 | 0xffffff>>rng.IntN(24)))
		requireSameFMA(t, sparse(rng, -90, -60), sparse(rng, -90, -60), z)
		requireSameFMA(t, sparse(rng, -75, -70), sparse(rng, -75, -70), z)
	}
}

func TestFMA32Special(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(0)
	negZero := float32(math.Copysign(0, -1))
	top := float32(math.MaxFloat32)
	for _, c := range []struct{ x, y, z, want float32 }{
		{1, 1, inf, inf}, {-1, inf, 1, -inf}, {top, top, 0, inf}, {top, -top, 0, -inf}, {top, 1, 0x1p103, inf}, {-top, 1, -0x1p103, -inf},
		{top, 1, 0x1.fffffep102, top}, {zero, zero, negZero, zero}, {negZero, 1, negZero, negZero}, {1, 1, -1, zero}, {top, 2, -top, top},
	} {
		require.Equal(t, math.Float32bits(c.want), math.Float32bits(fma32(c.x, c.y, c.z)), "%v", c)
	}
	for _, c := range [][3]float32{{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}, {inf, 0, 1}, {inf, 1, -inf}, {-inf, 1, inf}, {1, -inf, inf}} {
		v := fma32(c[0], c[1], c[2])
		require.True(t, v != v, "%v gives %v", c, v)
	}
}

func BenchmarkFMA32(b *testing.B) {
	x, y, z := float32(1.1), float32(0.7), float32(0)
	for b.Loop() {
		z = fma32(x, y, z)
		if z > 100 {
			z = 0.01
		}
	}
}

package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// referenceAct quantises one block by the text of act.go, in float64 where that is exact.
func referenceAct(x []float32) (codes [32]int8, scale float32) {
	top := float32(0)
	for _, v := range x {
		top = max(top, abs32(v))
	}
	if top < 0x1p-96 {
		return codes, 0
	}
	inv := 127 / top
	for i, v := range x {
		codes[i] = int8(math.RoundToEven(float64(float32(v * inv))))
	}
	return codes, top / 127
}

func TestQuantizeRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "blocks")
		scale := math.Ldexp(1, rapid.IntRange(-120, 120).Draw(t, "exponent"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x := make([]float32, 32*n)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * scale)
		}
		if rapid.Bool().Draw(t, "integers") { // 127 and halves make ties
			for i := range x {
				x[i] = float32(rng.IntN(255)-127) / 2
			}
			x[rng.IntN(32)] = 127
		}
		act := make([]byte, ActBytes(len(x)))
		QuantizeRow(act, x)
		for b := range n {
			a := actBlock(act[b*64:][:64])
			codes, scale := referenceAct(x[b*32:][:32])
			var lo, hi int32
			for i, c := range codes {
				require.Equal(t, c, int8(a[i]), "column %d", i)
				if i < 16 {
					lo += int32(c)
				} else {
					hi += int32(c)
				}
			}
			require.Equal(t, scale, a.scale())
			require.Equal(t, scale*float32(lo+hi), a.sum())
			require.Equal(t, scale*float32(lo), a.sumLo())
			require.Equal(t, scale*float32(hi), a.sumHi())
			require.Equal(t, -(lo + hi), int32(le.Uint32(a[actNegSum:])))
			require.Equal(t, lo, a.isumLo())
			require.Equal(t, hi, a.isumHi())
			require.Equal(t, -8*(lo+hi), int32(le.Uint32(a[actNeg8Sum:])))
		}
	})
}

func TestQuantizeRowSpecial(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, v := range map[string]float32{"inf": inf, "-inf": -inf, "nan": float32(math.NaN()), "-nan": -float32(math.NaN())} {
		x := make([]float32, 64)
		for i := range x {
			x[i] = float32(i)
		}
		x[5] = v
		act := make([]byte, ActBytes(64))
		QuantizeRow(act, x)
		a := actBlock(act[:64])
		require.Equal(t, make([]byte, 32), []byte(a[:32]), name)
		for _, s := range []float32{a.scale(), a.sum(), a.sumLo(), a.sumHi()} {
			require.Equal(t, uint32(actNaNBits), math.Float32bits(s), name)
		}
		require.Equal(t, make([]byte, 16), []byte(a[48:]), name)
		require.Equal(t, x[63]/127, actBlock(act[64:]).scale(), "%s: the other block is untouched", name)
	}
	for _, v := range []float32{0, 0x1.fffffep-97, -0x1p-126, math.SmallestNonzeroFloat32} {
		act := make([]byte, 64)
		for i := range act {
			act[i] = 0xff
		}
		x := make([]float32, 32)
		x[3] = v
		QuantizeRow(act, x)
		require.Equal(t, make([]byte, 64), act, "%g", v)
	}
	for _, v := range []float32{0x1p-96, math.MaxFloat32, -math.MaxFloat32} {
		act := make([]byte, 64)
		x := make([]float32, 32)
		x[3] = v
		QuantizeRow(act, x)
		require.Equal(t, float32(math.Copysign(127, float64(v))), float32(int8(act[3])))
		require.Equal(t, abs32(v)/127, actBlock(act).scale())
	}
	require.Panics(t, func() { QuantizeRow(make([]byte, 64), make([]float32, 31)) })
}

func TestQuantizeRowDoesNotAllocate(t *testing.T) {
	x, act := make([]float32, 256), make([]byte, ActBytes(256))
	require.Zero(t, testing.AllocsPerRun(10, func() { QuantizeRow(act, x) }))
}

func BenchmarkQuantizeRow(b *testing.B) {
	x, act := make([]float32, 4096), make([]byte, ActBytes(4096))
	for i := range x {
		x[i] = float32(i%97) - 40
	}
	b.SetBytes(4 * 4096)
	for b.Loop() {
		QuantizeRow(act, x)
	}
}

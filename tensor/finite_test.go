package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

func TestFinite(t *testing.T) {
	for _, workers := range []int{1, 3} {
		pool := NewPool(workers)
		defer pool.Close()
		checkFinite(t, pool)
	}
}

// checkFinite spoils the first, a middle and the last value of every length.
func checkFinite(t *testing.T, pool *Pool) {
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(0xff800001)}
	good := []float32{math.MaxFloat32, -math.MaxFloat32, 0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32}
	for _, k := range kernelSets {
		if !cpu.Has(k.level) {
			continue
		}
		c := newCPU(pool, 1, 32, k)
		for _, n := range []int{0, 1, 70, 127, 128, 129, 300, 8192, 8193, 20_000} {
			x := newFenced(n, n%5, func() float32 { return 1 })
			require.True(t, c.Finite(x.data), "%d, %s", n, k.level)
			for _, at := range []int{0, n / 2, n - 1} {
				if n == 0 {
					continue
				}
				for _, v := range bad {
					x.data[at] = v
					require.False(t, c.Finite(x.data), "%v at %d of %d, %s", v, at, n, k.level)
				}
				for _, v := range good {
					x.data[at] = v
					require.True(t, c.Finite(x.data), "%v at %d of %d, %s", v, at, n, k.level)
				}
			}
			x.check(t, "finite")
		}
	}
}

func BenchmarkFinite(b *testing.B) {
	pool := NewPool(1)
	defer pool.Close()
	x := make([]float32, 151_936)
	for i := range kernelSets {
		k := kernelSets[len(kernelSets)-1-i]
		if !cpu.Has(k.level) {
			continue
		}
		c := newCPU(pool, 1, 32, k)
		b.Run(k.level.String(), func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				c.Finite(x)
			}
		})
	}
}

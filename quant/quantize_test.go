package quant

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

func TestQuantizersHaveTheBitsOfTheReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	bits := func(b uint32) func() float32 { return func() float32 { return math.Float32frombits(b) } }
	normal := func(s float64) func() float32 { return func() float32 { return float32(rng.NormFloat64() * s) } }
	kinds := map[string]func() float32{
		"normal":           normal(1),
		"any bits":         func() float32 { return math.Float32frombits(rng.Uint32()) },
		"finite bits":      func() float32 { return math.Float32frombits(rng.Uint32() &^ (1 << 30)) },
		"large":            normal(1e37),
		"near the limit":   normal(0x1p-97),
		"subnormal":        normal(1e-40),
		"zero":             bits(0),
		"minus zero":       bits(1 << 31),
		"2^-96":            bits(actMinBits),
		"just below 2^-96": bits(actMinBits - 1),
		"largest":          bits(infBits - 1),
		"infinity":         bits(infBits),
		"minus infinity":   bits(infBits | 1<<31),
		"ties":             func() float32 { return float32(rng.IntN(255)-127) / 2 },
		"one NaN":          normal(3),
	}
	for name, x := range kinds {
		for _, n := range []int{0, 1, 2, 7, 48} {
			for _, shift := range []int{0, 1, 3, atPageEnd} {
				src, want := newGuarded(n*ActBlockCols*4, alignedShift(shift)), make([]byte, n*ActBlockBytes+1)
				for i := range n * ActBlockCols {
					putFloat(src.data[4*i:], x())
				}
				if n > 1 && name == "one NaN" {
					putFloat(src.data[4*37:], float32(math.NaN()))
				}
				quantizeGo(&want[0], ActBlockBytes, src.floats(), n)
				checkQuantizers(t, fmt.Sprintf("%s, %d blocks", name, n), src, want[:n*ActBlockBytes], n, shift)
				src.free()
			}
		}
	}
}

func checkQuantizers(t *testing.T, name string, src *guarded, want []byte, n, shift int) {
	t.Helper()
	for i, q := range quantizers {
		if !cpu.Has(q.Level) {
			continue
		}
		stride := ActBlockBytes * (1 + (n+i)%3)
		before := bytes.Clone(src.data)
		dst := newGuarded(max(n-1, 0)*stride+min(n, 1)*ActBlockBytes, shift)
		dst.fill(0xa5)
		q.Quantize(dst.first(), stride, src.floats(), n)
		for i, got := range dst.data {
			if at := i % stride; at < ActBlockBytes {
				require.Equal(t, want[i/stride*ActBlockBytes+at], got, "%s of %s: byte %d of block %d", q.Name, name, at, i/stride)
			} else {
				require.Equal(t, byte(0xa5), got, "%s of %s wrote between blocks", q.Name, name)
			}
		}
		require.True(t, dst.intact() && src.intact() && bytes.Equal(before, src.data), "%s wrote past its buffer", q.Name)
		dst.free()
	}
}

func TestEveryQuantizerIsAssembly(t *testing.T) {
	all := quantizers
	require.Equal(t, Quantizer{Level: cpu.Go, Name: "go.Quantize"}.Name, all[len(all)-1].Name)
	if runtime.GOARCH != "amd64" {
		require.Len(t, all, 1)
		return
	}
	require.Len(t, all, 3)
	for i, level := range []cpu.Level{cpu.AVX512, cpu.AVX2} {
		require.Equal(t, level, all[i].Level)
		require.Equal(t, level.String()+".Quantize", all[i].Name)
		require.Equal(t, "quickdraft/asm/"+all[i].Name, runtime.FuncForPC(reflect.ValueOf(all[i].Quantize).Pointer()).Name())
	}
	for _, q := range all {
		if cpu.Active(q.Level) {
			require.Equal(t, reflect.ValueOf(q.Quantize).Pointer(), reflect.ValueOf(quantize).Pointer())
			break
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	const cols = 1536
	rng := rand.New(rand.NewPCG(9, 9))
	x, dst := make([]float32, cols), make([]byte, ActBytes(cols))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for _, q := range quantizers {
		if cpu.Has(q.Level) {
			b.Run(q.Level.String(), func(b *testing.B) {
				b.SetBytes(4 * cols)
				for b.Loop() {
					q.Quantize(&dst[0], ActBlockBytes, &x[0], cols/ActBlockCols)
				}
			})
		}
	}
}

// alignedShift keeps floats at multiples of 4 bytes.
func alignedShift(shift int) int {
	if shift == atPageEnd {
		return shift
	}
	return 4 * shift
}

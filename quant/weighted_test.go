package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// weightedError is the sum of w times the squared difference of x and what its encoding stands for.
func weightedError(f *Format, data []byte, x, w []float32) float64 {
	got := make([]float32, len(x))
	f.Decode(got, data)
	sum := 0.0
	for i, v := range x {
		e := float64(v) - float64(got[i])
		sum += float64(w[i]) * e * e
	}
	return sum
}

// TestEncodeWeighted lowers the weighted error of every row, by more the fewer values the codes have.
func TestEncodeWeighted(t *testing.T) {
	share := map[string]float64{ // of the plain error that may be left
		"Q2_K": 0.8, "Q3_K": 0.9, "Q4_K": 0.9, "Q5_K": 0.92, "Q6_K": 0.97, "IQ4_NL": 0.95, "IQ4_XS": 0.95,
	}
	for _, f := range All() {
		limit, weighted := share[f.Name]
		require.Equal(t, weighted, f.EncodeWeighted != nil, f.Name)
		if !weighted {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, uint64(f.Type)))
			const cols, rows = 1024, 40
			w := make([]float32, cols)
			for i := range w {
				w[i] = float32(math.Exp(1.5 * rng.NormFloat64())) // as activations are: a few columns are large
			}
			var before, after float64
			plain, better := make([]byte, f.RowBytes(cols)), make([]byte, f.RowBytes(cols))
			for range rows {
				x := make([]float32, cols)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				f.Encode(plain, x)
				f.EncodeWeighted(better, x, w)
				a, b := weightedError(f, plain, x, w), weightedError(f, better, x, w)
				require.Less(t, b, a)
				before, after = before+a, after+b
			}
			t.Logf("weighted error %.3f of the plain encoder's", after/before)
			require.Less(t, after/before, limit)
		})
	}
}

// TestEvenImportances give the bytes of Encode, and so do importances that are all zero.
func TestEvenImportances(t *testing.T) {
	for _, f := range All() {
		if f.EncodeWeighted == nil {
			continue
		}
		rng := rand.New(rand.NewPCG(4, uint64(f.Type)))
		x := make([]float32, 4*f.BlockSize)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		want, got := make([]byte, f.RowBytes(len(x))), make([]byte, f.RowBytes(len(x)))
		f.Encode(want, x)
		for _, w := range []float32{0, 1, 0.25, 1 << 20} {
			f.EncodeWeighted(got, x, slices.Repeat([]float32{w}, len(x)))
			require.Equal(t, want, got, "%s, all %g", f.Name, w)
		}
		f.EncodeWeighted(got, x, nil)
		require.Equal(t, want, got, "%s, none", f.Name)
	}
}

// TestImportancesOfNothing keeps scales finite when the weights that matter are zero, alone, or tiny.
func TestImportancesOfNothing(t *testing.T) {
	for _, f := range All() {
		if f.EncodeWeighted == nil {
			continue
		}
		rng := rand.New(rand.NewPCG(5, uint64(f.Type)))
		for range 200 {
			x, w := make([]float32, f.BlockSize), make([]float32, f.BlockSize)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(40)-36)))
				if rng.IntN(4) == 0 {
					x[i] = 0
				}
				if rng.IntN(3) == 0 {
					w[i] = float32(math.Pow(10, float64(rng.IntN(70)-35)))
				}
			}
			block := make([]byte, f.BlockBytes)
			f.EncodeWeighted(block, x, w)
			_, ok := CheckScales(f.Type, block, f.BlockSize)
			require.True(t, ok, "%s: %v, importances %v", f.Name, x, w)
		}
	}
}

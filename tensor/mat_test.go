package tensor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// A matrix over tiles that another one packed multiplies alike, and tiles of another size are refused.
func TestNewMatTiles(t *testing.T) {
	const rows, cols = 37, 64
	rng := rand.New(rand.NewPCG(3, 4))
	weights, x := make([]float32, rows*cols), NewF32(2, cols)
	for i := range weights {
		weights[i] = float32(rng.NormFloat64())
	}
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	pool := NewPool(2)
	defer pool.Close()
	cpu := NewCPU(pool, 2, cols)
	for _, typ := range []gguf.Type{gguf.TypeQ4_0, gguf.TypeQ8_0, gguf.TypeF16} {
		format, _ := quant.Get(typ)
		src := make([]byte, rows*format.RowBytes(cols))
		format.Encode(src, weights)
		packed, err := NewMat("w", typ, rows, cols, src, nil, pool)
		require.NoError(t, err)
		over, err := NewMatTiles("w", typ, rows, cols, packed.Tiles)
		require.NoError(t, err)
		want, got := NewF32(2, rows), NewF32(2, rows)
		cpu.MatMul(want, packed, x)
		cpu.MatMul(got, over, x)
		require.Equal(t, want.Data, got.Data)
		over.Free()
		require.NotEmpty(t, packed.Tiles, "Free leaves tiles that belong to another alone")
		for _, n := range []int{0, len(packed.Tiles) - 1, len(packed.Tiles) - format.TileSize(cols)} {
			_, err = NewMatTiles("w", typ, rows, cols, packed.Tiles[:n])
			require.ErrorContains(t, err, `tensor "w"`)
		}
		packed.Free()
	}
	_, err := NewMatTiles("w", gguf.TypeQ4_K, 16, 100, nil)
	require.ErrorContains(t, err, "multiple of 256")
	_, err = NewMatTiles("w", gguf.Type(77), 16, 256, nil)
	require.ErrorContains(t, err, "no weight format")
}

package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/modelfile/gguf"
)

func TestFormatTableMatchesFileTypes(t *testing.T) {
	require.Len(t, All(), len(gguf.Types()))
	for _, typ := range gguf.Types() {
		f, ok := Get(typ)
		require.True(t, ok, typ.String())
		require.Equal(t, typ, f.Type)
		require.Equal(t, typ.String(), f.Name)
		require.Equal(t, typ.BlockSize(), f.BlockSize, f.Name)
		require.Equal(t, typ.BlockBytes(), f.BlockBytes, f.Name)
		require.LessOrEqual(t, float64(f.TileBytes), 1.04*float64(TileRows*f.BlockBytes), "%s: tiles may not grow the weights", f.Name)
	}
	for _, typ := range []gguf.Type{4, 5, 9, 40, 63, 64, 1 << 31, math.MaxUint32} {
		_, ok := Get(typ)
		require.False(t, ok, "type %d", typ)
		require.Panics(t, func() { mustGet(typ) })
	}
}

// TestUnpackRowEqualsDecode packs random bit patterns (scales too: NaN and infinity) of matrices with odd row counts,
// some rows reordered, and reads each row back.
func TestUnpackRowEqualsDecode(t *testing.T) {
	for _, f := range All() {
		t.Run(f.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkUnpack(t, f) })
		})
	}
}

func checkUnpack(t *rapid.T, f *Format) {
	rows, nBlocks := rapid.IntRange(1, 50).Draw(t, "rows"), rapid.IntRange(1, 4).Draw(t, "blocks")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
	cols, rowBytes := nBlocks*f.BlockSize, nBlocks*f.BlockBytes
	src := make([]byte, rows*rowBytes)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	rowAt := func(i int) int { return i }
	var order func(int) int
	if rapid.Bool().Draw(t, "reorder") {
		perm := rng.Perm(rows)
		rowAt = func(i int) int { return perm[i] }
		order = rowAt
	}
	nTiles := Tiles(rows)
	tiles := make([]byte, nTiles*f.TileSize(cols))
	for i := range tiles {
		tiles[i] = 0xa5 // what Pack leaves out shows
	}
	split := rng.IntN(nTiles + 1)
	PackMatrix(tiles, f.Type, src, rows, cols, split, nTiles, order)
	PackMatrix(tiles, f.Type, src, rows, cols, 0, split, order)
	want, got := make([]float32, cols), make([]float32, cols)
	for i := range nTiles * TileRows {
		f.UnpackRow(got, tiles[i/TileRows*f.TileSize(cols):], i%TileRows)
		if i >= rows {
			for _, v := range got {
				require.Zero(t, v, "padding row %d", i)
			}
			continue
		}
		f.Decode(want, src[rowAt(i)*rowBytes:])
		requireSameBits(t, want, got, f.Name)
	}
}

func TestPackCoversTheTile(t *testing.T) {
	for _, f := range All() {
		var rows [TileRows][]byte
		for r := range rows {
			rows[r] = make([]byte, f.BlockBytes)
			for i := range rows[r] {
				rows[r][i] = 0xff
			}
		}
		a, b := make([]byte, f.TileBytes), make([]byte, f.TileBytes)
		for i := range b {
			b[i] = 0xff
		}
		f.Pack(a, &rows)
		f.Pack(b, &rows)
		require.Equal(t, a, b, "%s: bytes that Pack does not write", f.Name)
	}
}

func TestCheckScales(t *testing.T) {
	const rows, cols = 5, 512
	rng := rand.New(rand.NewPCG(4, 4))
	for _, f := range All() {
		data := randomBlocks(rng, f, rows*cols/f.BlockSize, 0)
		if f.Type == gguf.TypeF16 {
			for i := 1; i < len(data); i += 2 {
				data[i] &= 0xbf
			}
		}
		row, ok := CheckScales(f.Type, data, cols)
		require.True(t, ok, "%s: row %d", f.Name, row)
		row, ok = CheckScales(f.Type, nil, cols)
		require.True(t, ok && row == 0, f.Name)
		scales := f.scales
		bad := [][]byte{{0, 0x7c}, {0, 0xfc}, {1, 0x7e}} // infinity, -infinity, NaN
		switch f.Type {
		case gguf.TypeMXFP4:
			scales, bad = []int{0}, [][]byte{{255}}
		case gguf.TypeBF16:
			scales, bad = []int{0}, [][]byte{{0x80, 0x7f}, {0x80, 0xff}, {0xc0, 0x7f}}
		case gguf.TypeF32:
			scales, bad = []int{0}, [][]byte{{0, 0, 0x80, 0x7f}, {0, 0, 0x80, 0xff}, {1, 0, 0x80, 0x7f}}
		}
		require.NotEmpty(t, scales, f.Name)
		for _, at := range scales {
			for _, pattern := range bad {
				broken := append([]byte(nil), data...)
				block := 3*cols/f.BlockSize + rng.IntN(cols/f.BlockSize)
				copy(broken[block*f.BlockBytes+at:], pattern)
				row, ok = CheckScales(f.Type, broken, cols)
				require.False(t, ok, "%s %x", f.Name, pattern)
				require.Equal(t, 3, row, f.Name)
			}
		}
	}
}

// encodeLimits bounds the relative error of normally distributed weights.
var encodeLimits = map[string]float64{
	"F32": 0, "F16": 5e-4, "BF16": 3e-3, "Q8_0": 0.007, "Q6_K": 0.02, "Q5_K": 0.04, "Q5_1": 0.045, "Q5_0": 0.05, "Q4_K": 0.08, "IQ4_NL": 0.08,
	"IQ4_XS": 0.085, "Q4_1": 0.09, "Q4_0": 0.1, "MXFP4": 0.13, "Q3_K": 0.16, "Q2_K": 0.3,
}

func TestEncodeError(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, f := range All() {
		for _, scale := range []float64{1e-3, 1, 300} {
			x := make([]float32, 8192)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * scale)
			}
			got := relativeError(f, x, 0)
			require.LessOrEqual(t, got, encodeLimits[f.Name], "%s at scale %g", f.Name, scale)
			if f.Name != "F32" {
				require.Greater(t, got, encodeLimits[f.Name]/4, f.Name)
			}
		}
	}
}

// TestEncodeOddRows quantises blocks that have no spread, one value, or no sense: what is exact must stay so, and
// nothing may panic.
func TestEncodeOddRows(t *testing.T) {
	for _, f := range All() {
		encoded := func(value func(i int) float32) (x, out []float32) {
			x, out = make([]float32, 256), make([]float32, 256)
			for i := range x {
				x[i] = value(i)
			}
			q := make([]byte, f.RowBytes(256))
			for i := range q {
				q[i] = 0xff
			}
			f.Encode(q, x)
			f.Decode(out, q)
			return x, out
		}
		x, out := encoded(func(int) float32 { return 0 })
		for i := range x {
			require.Zero(t, out[i], f.Name)
		}
		tolerance := 0.02
		if f.Name == "MXFP4" { // has -3 and -4 and takes its scale from a power of two
			tolerance = 0.08
		}
		for _, v := range []float32{1, -3.25} {
			x, out = encoded(func(int) float32 { return v })
			for i := range x {
				require.InDelta(t, v, out[i], tolerance*math.Abs(float64(v)), "%s constant %v", f.Name, v)
			}
		}
		x, out = encoded(func(i int) float32 { return float32(i%3 - 1) })
		for i := range x {
			require.InDelta(t, x[i], out[i], 0.126, "%s ternary", f.Name) // Q4_0 keeps -1 and makes 1 of 7/8
		}
		for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, 1e-45} {
			require.NotPanics(t, func() {
				encoded(func(i int) float32 {
					if i == 7 {
						return float32(odd)
					}
					return float32(i) - 100
				})
				encoded(func(i int) float32 { return float32(odd) })
			}, "%s with %v", f.Name, odd)
		}
	}
}

func BenchmarkPackMatrix(b *testing.B) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, f := range All() {
		b.Run(f.Name, func(b *testing.B) {
			const rows, cols = 64, 2048
			src := randomBlocks(rng, f, rows*cols/f.BlockSize, 0)
			dst := make([]byte, rows/TileRows*f.TileSize(cols))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				PackMatrix(dst, f.Type, src, rows, cols, 0, rows/TileRows, nil)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 7))
	x := make([]float32, 8192)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for _, f := range All() {
		b.Run(f.Name, func(b *testing.B) {
			q := make([]byte, f.RowBytes(len(x)))
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				f.Encode(q, x)
			}
		})
	}
}

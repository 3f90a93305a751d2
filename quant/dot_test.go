package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/modelfile/gguf"
)

// term is one step of the specification: columns first.. of a block share a scale and perhaps a minimum.
type term struct {
	first  int
	values []int32 // signed values of the codes
	w      float32
	hasMin bool
	min    float32 // added times the activation sum of the same columns
}

// terms reads a file block as the specification does, with no tile in between.
func terms(t gguf.Type, block []byte) []term {
	var u codes
	half := func(at int) float32 { return halfAt(block[at:]) }
	values := func(first, n int, zero int32) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(u.at(first+i)) - zero
		}
		return out
	}
	table := func(table *[16]int8) []int32 {
		out := values(0, 32, 0)
		for i := range out {
			out[i] = int32(table[out[i]])
		}
		return out
	}
	var out []term
	switch t {
	case gguf.TypeQ4_0:
		u.nibbles(block[2:])
		return []term{{0, values(0, 32, 8), half(0), false, 0}}
	case gguf.TypeQ4_1:
		u.nibbles(block[4:])
		return []term{{0, values(0, 32, 0), half(0), true, half(2)}}
	case gguf.TypeQ5_0:
		u.codes5(block[2:])
		return []term{{0, values(0, 32, 16), half(0), false, 0}}
	case gguf.TypeQ5_1:
		u.codes5(block[4:])
		return []term{{0, values(0, 32, 0), half(0), true, half(2)}}
	case gguf.TypeQ8_0:
		signed := make([]int32, 32)
		for i := range signed {
			signed[i] = int32(int8(block[2+i]))
		}
		return []term{{0, signed, half(0), false, 0}}
	case gguf.TypeIQ4_NL:
		u.nibbles(block[2:])
		return []term{{0, table(&tableIQ4), half(0), false, 0}}
	case gguf.TypeMXFP4:
		u.nibbles(block[1:])
		return []term{{0, table(&tableMXFP4), halfE8M0(block[0]), false, 0}}
	case gguf.TypeIQ4_XS:
		for j := range 8 {
			u.nibbles(block[8+16*j:])
			out = append(out, term{32 * j, table(&tableIQ4), half(0) * float32(scaleIQ4(block, j)), false, 0})
		}
	case gguf.TypeQ4_K, gguf.TypeQ5_K:
		for j := range 8 {
			if t == gguf.TypeQ4_K {
				u.codes4K(block, j)
			} else {
				u.codes5K(block, j)
			}
			sc, mn := scales6(block[4:], j)
			out = append(out, term{32 * j, values(0, 32, 0), half(0) * float32(sc), true, -(half(2) * float32(mn))})
		}
	case gguf.TypeQ2_K:
		for h := range 16 {
			u.codes2K(block, h/2)
			sc, mn := float32(block[h]&15), float32(block[h]>>4)
			out = append(out, term{16 * h, values(h&1*16, 16, 0), half(80) * sc, true, -(half(82) * mn)})
		}
	case gguf.TypeQ3_K:
		for h := range 16 {
			u.codes3K(block, h/2)
			out = append(out, term{16 * h, values(h&1*16, 16, 4), half(108) * float32(scale3K(block[96:], h)), false, 0})
		}
	case gguf.TypeQ6_K:
		for h := range 16 {
			u.codes6K(block, h/2)
			out = append(out, term{16 * h, values(h&1*16, 16, 32), half(208) * float32(int8(block[192+h])), false, 0})
		}
	}
	return out
}

// specDot multiplies one file row with one activation row by the text of the specification.
func specDot(f *Format, row, act []byte) (acc float32) {
	if f.Float {
		w := make([]float32, len(row)/f.BlockBytes)
		f.Decode(w, row)
		for c, v := range w {
			acc += float32(v * floatAt(act[4*c:]))
		}
		return acc
	}
	for b := 0; b*f.BlockBytes < len(row); b++ {
		for _, s := range terms(f.Type, row[b*f.BlockBytes:][:f.BlockBytes]) {
			column := b*f.BlockSize + s.first
			a := act[column/32*64:][:64]
			var dot, isum int32
			for i, v := range s.values {
				x := int32(int8(a[column%32+i]))
				dot += v * x
				isum += x
			}
			acc = fma32(float32(dot), float32(s.w*actBlock(a).scale()), acc)
			if s.hasMin {
				acc = fma32(s.min, float32(actBlock(a).scale()*float32(isum)), acc)
			}
		}
	}
	return acc
}

// randomBlocks returns n file blocks of random bits with finite scales. kind 0 is any bits, 1 all codes at their top, 2
// all at their bottom, 3 zero scales.
func randomBlocks(rng *rand.Rand, f *Format, n, kind int) []byte {
	data := make([]byte, n*f.BlockBytes)
	for i := range data {
		data[i] = byte(rng.Uint32())
		if kind == 1 {
			data[i] = 0xff
		} else if kind == 2 {
			data[i] = 0
		}
		if f.Type == gguf.TypeQ8_0 && kind == 1 {
			data[i] = 0x80
		}
	}
	for b := range n {
		block := data[b*f.BlockBytes:][:f.BlockBytes]
		for _, at := range f.scales {
			d := float32(rng.NormFloat64() * 0.05)
			if kind == 3 {
				d = 0
			}
			putHalf(block[at:], d)
		}
		switch f.Type {
		case gguf.TypeF32:
			putFloat(block, float32(rng.NormFloat64()))
		case gguf.TypeBF16:
			le.PutUint16(block, FloatToBFloat(float32(rng.NormFloat64())))
		case gguf.TypeMXFP4:
			block[0] = byte(110 + rng.IntN(30))
		}
	}
	return data
}

// randomAct returns m activation rows, their stride, each row alone, and the values that they stand for.
func randomAct(rng *rand.Rand, f *Format, m, cols, pad int, extreme bool) (act []byte, actStride int, rows [][]byte, values [][]float64) {
	if actStride = m*ActBlockBytes + pad; f.Float {
		actStride = 4*cols + pad
	}
	act = make([]byte, f.actSize(m, cols, actStride))
	values = make([][]float64, m)
	for i := range m {
		x := make([]float32, cols)
		for c := range x {
			x[c] = float32(rng.NormFloat64())
			if extreme {
				x[c] = float32(1 - 2*rng.IntN(2)*(i&1))
			}
		}
		row := make([]byte, f.ActBytes(cols))
		values[i] = make([]float64, cols)
		if f.Float {
			encodeF32(row, x)
		} else {
			QuantizeRow(row, x)
		}
		putAct(f, act, row, i, actStride)
		rows = append(rows, row)
		for c := range x {
			values[i][c] = float64(x[c])
			if !f.Float {
				values[i][c] = float64(actBlock(row[c/32*64:]).scale()) * float64(int8(row[c/32*64+c%32]))
			}
		}
	}
	return act, actStride, rows, values
}

func TestDotRefIsTheSpecification(t *testing.T) {
	for _, f := range All() {
		t.Run(f.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkDot(t, f) })
		})
	}
}

func checkDot(t *rapid.T, f *Format) {
	rows, m := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 9).Draw(t, "m")
	nBlocks := rapid.IntRange(1, 3).Draw(t, "blocks")
	if f.Float {
		nBlocks = rapid.IntRange(1, 70).Draw(t, "columns")
	}
	kind, extreme := rapid.IntRange(0, 4).Draw(t, "kind"), rapid.Bool().Draw(t, "extreme")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	cols := nBlocks * f.BlockSize
	src := randomBlocks(rng, f, rows*nBlocks, kind)
	nTiles := Tiles(rows)
	tiles := make([]byte, nTiles*f.TileSize(cols))
	PackMatrix(tiles, f.Type, src, rows, cols, 0, nTiles, nil)
	act, actStride, actRows, values := randomAct(rng, f, m, cols, 64*rng.IntN(3), extreme)
	const canary = 12345
	dstStride := nTiles*TileRows + rng.IntN(5)
	dst := make([]float32, m*dstStride)
	for i := range dst {
		dst[i] = canary
	}
	f.DotRef(dst, dstStride, tiles, nTiles, act, actStride, nBlocks, m)
	w := make([]float32, cols)
	for i := range m {
		for r := range dstStride {
			got := dst[i*dstStride+r]
			switch {
			case r >= nTiles*TileRows:
				require.Equal(t, float32(canary), got, "past the tiles")
				continue
			case r >= rows:
				require.Equal(t, float32(0), got, "padding row %d", r)
				continue
			}
			row := src[r*f.RowBytes(cols):][:f.RowBytes(cols)]
			want := specDot(f, row, actRows[i])
			requireSameBits(t, []float32{want}, []float32{got}, f.Name)
			f.Decode(w, row)
			exact, bound := exactDot(f, row, w, values[i])
			require.LessOrEqual(t, math.Abs(exact-float64(got)), bound, "row %d token %d: exact %v, got %v", r, i, exact, got)
		}
	}
}

// exactDot evaluates a row in float64, with a bound for the error of the float32 steps: each rounds by at most 2^-24 of
// a partial sum, and scales are products of up to three roundings.
func exactDot(f *Format, row []byte, w []float32, x []float64) (sum, bound float64) {
	var size float64
	for c, v := range w {
		sum += float64(float64(v) * x[c])
		size += math.Abs(float64(v) * x[c])
	}
	steps := len(w)
	if !f.Float {
		steps = 0
		for b := 0; b*f.BlockBytes < len(row); b++ {
			for _, s := range terms(f.Type, row[b*f.BlockBytes:][:f.BlockBytes]) {
				steps += 2
				for i, v := range s.values {
					size += (math.Abs(float64(s.w)*float64(v)) + math.Abs(float64(s.min))) * math.Abs(x[b*f.BlockSize+s.first+i])
				}
			}
		}
	}
	return sum, float64(steps+6) * 0x1p-24 * size
}

func TestDotRefSurfacesNaN(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, f := range All() {
		cols := 256
		nBlocks := cols / f.BlockSize
		tiles := make([]byte, f.TileSize(cols))
		PackMatrix(tiles, f.Type, randomBlocks(rng, f, 16*nBlocks, 0), 16, cols, 0, 1, nil)
		x := make([]float32, cols)
		x[100] = float32(math.Inf(1))
		act := make([]byte, f.ActBytes(cols))
		if f.Float {
			x[100] = float32(math.NaN())
			encodeF32(act, x)
		} else {
			QuantizeRow(act, x)
		}
		dst := make([]float32, 16)
		f.DotRef(dst, 16, tiles, 1, act, ActBlockBytes, nBlocks, 1)
		for r, v := range dst {
			require.True(t, v != v, "%s row %d is %v", f.Name, r, v)
		}
	}
}

func TestDotRefDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, f := range All() {
		nBlocks := 256 / f.BlockSize
		tiles := make([]byte, 2*f.TileSize(256))
		act, actStride, _, _ := randomAct(rng, f, 3, 256, 0, false)
		dst := make([]float32, 3*32)
		pick := reference(f, 3)
		require.Zero(t, testing.AllocsPerRun(5, func() {
			f.DotRef(dst, 32, tiles, 2, act, actStride, nBlocks, 3)
			pick.Dot(&dst[0], 32, &tiles[0], 2, &act[0], actStride, nBlocks)
		}), f.Name)
	}
}

func BenchmarkDotRef(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 3))
	const cols, nTiles = 2048, 4
	for _, f := range All() {
		for _, m := range []int{1, 4} {
			b.Run(f.Name+"/m"+string(rune('0'+m)), func(b *testing.B) {
				nBlocks := cols / f.BlockSize
				tiles := make([]byte, nTiles*f.TileSize(cols))
				PackMatrix(tiles, f.Type, randomBlocks(rng, f, 16*nTiles*nBlocks, 0), 16*nTiles, cols, 0, nTiles, nil)
				act, actStride, _, _ := randomAct(rng, f, m, cols, 0, false)
				dst := make([]float32, m*nTiles*16)
				b.SetBytes(int64(len(tiles)))
				for b.Loop() {
					f.DotRef(dst, nTiles*16, tiles, nTiles, act, actStride, nBlocks, m)
				}
				b.ReportMetric(float64(b.N)*cols*nTiles*16*float64(m)/b.Elapsed().Seconds()/1e9, "GMAC/s")
			})
		}
	}
}

package quant

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
	"quickdraft/modelfile/gguf"
)

func tokenCounts() (out []int) {
	for m := 1; m <= WideM; m++ {
		out = append(out, m)
	}
	return out
}

// fileRows fills 16 rows of nBlocks file blocks with fill, and sets the float scales to values of scale.
func fileRows(f *Format, nBlocks int, fill func(b []byte), scale func() float32) *[TileRows][]byte {
	var rows [TileRows][]byte
	for r := range rows {
		rows[r] = make([]byte, nBlocks*f.BlockBytes)
		fill(rows[r])
		for b := range nBlocks {
			block := rows[r][b*f.BlockBytes:][:f.BlockBytes]
			for _, at := range f.scales {
				putHalf(block[at:], scale())
			}
			if f.Type == gguf.TypeMXFP4 {
				block[0] = byte(math.Float32bits(scale()) >> 23)
			}
		}
		for i := range nBlocks * f.BlockSize {
			switch f.Type {
			case gguf.TypeF32:
				putFloat(rows[r][4*i:], scale())
			case gguf.TypeF16:
				putHalf(rows[r][2*i:], scale())
			case gguf.TypeBF16:
				le.PutUint16(rows[r][2*i:], uint16(math.Float32bits(scale())>>16))
			}
		}
	}
	return &rows
}

// actRow is an activation row of values of x: floats or quantised.
func actRow(f *Format, cols int, x func() float32) []byte {
	row := make([]float32, (cols+31)/32*32)
	for i := range row {
		row[i] = x()
	}
	if !f.Float {
		dst := make([]byte, ActBytes(cols))
		QuantizeRow(dst, row[:cols])
		return dst
	}
	dst := make([]byte, 4*cols)
	for i := range cols {
		putFloat(dst[4*i:], row[i])
	}
	return dst
}

// putAct places row i where DotRef expects it.
func putAct(f *Format, act, row []byte, i, actStride int) {
	if f.Float {
		copy(act[i*actStride:], row)
		return
	}
	for b := 0; b*ActBlockBytes < len(row); b++ {
		copy(act[b*actStride+i*ActBlockBytes:], row[b*ActBlockBytes:][:ActBlockBytes])
	}
}

// dotCase is one multiplication; the buffers lie between guard bytes, or end where a page ends that must not be touched.
type dotCase struct {
	f                    *Format
	m, nTiles, nBlocks   int
	dst                  *guarded
	tiles, act           *guarded
	dstStride, actStride int
}

func newDotCase(f *Format, m, nTiles, nBlocks, shift int, fill func([]byte), scale, x func() float32) *dotCase {
	c := &dotCase{f: f, m: m, nTiles: nTiles, nBlocks: nBlocks}
	pad, cols := max(shift, 0), nBlocks*f.BlockSize
	c.dstStride = nTiles*TileRows + 3*pad
	if c.actStride = m*ActBlockBytes + 4*pad; f.Float {
		c.actStride = 4*cols + 4*pad
	}
	c.dst = newGuarded(4*((m-1)*c.dstStride+nTiles*TileRows), shift)
	c.tiles = newGuarded(nTiles*nBlocks*f.TileBytes, shift)
	c.act = newGuarded(f.actSize(m, cols, c.actStride), shift)
	for t := range nTiles {
		f.Pack(c.tiles.data[t*nBlocks*f.TileBytes:][:nBlocks*f.TileBytes], fileRows(f, nBlocks, fill, scale))
	}
	for i := range m {
		putAct(f, c.act.data, actRow(f, cols, x), i, c.actStride)
	}
	return c
}

// run multiplies with a candidate and returns the m x (nTiles*16) results; everything else must be as before.
func (c *dotCase) run(t *testing.T, cand Candidate) []float32 {
	c.dst.fill(0xa5)
	tiles, act := bytes.Clone(c.tiles.data), bytes.Clone(c.act.data)
	cand.Dot(c.dst.floats(), c.dstStride, c.tiles.first(), c.nTiles, c.act.first(), c.actStride, c.nBlocks)
	require.True(t, bytes.Equal(tiles, c.tiles.data) && bytes.Equal(act, c.act.data), "%s wrote to its inputs", cand.Name)
	require.True(t, c.dst.intact() && c.tiles.intact() && c.act.intact(), "%s wrote past a buffer", cand.Name)
	var out []float32
	for i := range c.m {
		row := c.dst.data[4*i*c.dstStride:]
		for j := range c.nTiles * TileRows {
			out = append(out, floatAt(row[4*j:]))
		}
		if i+1 < c.m {
			for _, b := range row[4*c.nTiles*TileRows : 4*c.dstStride] {
				require.Equal(t, byte(0xa5), b, "%s wrote between rows", cand.Name)
			}
		}
	}
	return out
}

// check compares all candidates that the processor can run with the reference.
func (c *dotCase) check(t *testing.T, name string) {
	all := Candidates(c.f.Type, c.m)
	want := c.run(t, all[len(all)-1])
	for _, cand := range all[:len(all)-1] {
		if !cpu.Has(cand.Level) {
			continue
		}
		got := c.run(t, cand)
		for i := range want {
			if math.Float32bits(want[i]) != math.Float32bits(got[i]) && !(want[i] != want[i] && got[i] != got[i]) {
				require.Failf(t, "different bits", "%s %s: m %d, tiles %d, blocks %d: token %d row %d: got %v (%08x), the reference has %v (%08x)",
					cand.Name, name, c.m, c.nTiles, c.nBlocks, i/(c.nTiles*TileRows), i%(c.nTiles*TileRows),
					got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
			}
		}
	}
}

func TestCandidatesHaveTheBitsOfTheReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(b []byte) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	same := func(v byte) func([]byte) {
		return func(b []byte) {
			for i := range b {
				b[i] = v
			}
		}
	}
	normal := func(s float64) func() float32 { return func() float32 { return float32(rng.NormFloat64() * s) } }
	constant := func(v float32) func() float32 { return func() float32 { return v } }
	sometimes := func(v float32, x func() float32) func() float32 {
		return func() float32 {
			if rng.IntN(40) == 0 {
				return v
			}
			return x()
		}
	}
	inf := float32(math.Inf(1))
	kinds := []struct {
		name     string
		fill     func([]byte)
		scale, x func() float32
	}{
		{"random", random, normal(0.01), normal(1)},
		{"random large", random, normal(60), normal(1e6)},
		{"zero scales", random, constant(0), normal(1)},
		{"zero activations", random, normal(1), constant(0)},
		{"subnormal scales", random, normal(1e-7), normal(1e-30)},
		{"lowest codes, highest activations", same(0), constant(-1), constant(3)},
		{"highest codes, highest activations", same(0xff), constant(1), constant(3)},
		{"highest codes, lowest activations", same(0xff), constant(1), constant(-3)},
		{"bytes 0x80, lowest activations", same(0x80), constant(1), constant(-3)},
		{"bytes 0x7f, highest activations", same(0x7f), constant(1), constant(3)},
		{"NaN activations", random, normal(1), sometimes(float32(math.NaN()), normal(1))},
		{"infinite activations", random, normal(1), sometimes(inf, normal(1))},
	}
	for _, f := range All() {
		t.Run(f.Name, func(t *testing.T) {
			for _, m := range tokenCounts() {
				for i, k := range kinds {
					nTiles, nBlocks := 1+i%3, 1+(i+m)%4
					c := newDotCase(f, m, nTiles, nBlocks, (i+m)%4, k.fill, k.scale, k.x)
					c.check(t, k.name)
					c.free()
				}
			}
		})
	}
}

func TestCandidatesOfNothing(t *testing.T) {
	zero := func() float32 { return 0 }
	for _, f := range All() {
		for _, m := range tokenCounts() {
			for _, size := range [][2]int{{0, 1}, {2, 0}} {
				c := newDotCase(f, m, size[0], size[1], 1, func([]byte) {}, zero, zero)
				c.check(t, "nothing")
				c.free()
			}
		}
	}
}

func TestCandidatesReadNothingBeyondTheirBuffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	x := func() float32 { return float32(rng.NormFloat64()) }
	for _, f := range All() {
		for _, m := range tokenCounts() {
			c := newDotCase(f, m, 2, 3, atPageEnd, func([]byte) {}, x, x)
			c.check(t, "at the end of a page")
			c.free()
		}
	}
}

// kernelLevels are the levels that have a kernel for every format.
var kernelLevels = []cpu.Level{cpu.VNNI, cpu.AVX512, cpu.AVXVNNI, cpu.AVX2}

// matrixFormats have kernels for more than MaxM activation rows at the level with matrix registers.
var matrixFormats = []string{"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q4_K", "Q5_K"}

// levelsOf returns the levels that have a kernel for a format and m activation rows, best first.
func levelsOf(f *Format, m int) []cpu.Level {
	if m > MaxM && slices.Contains(matrixFormats, f.Name) {
		return append([]cpu.Level{cpu.AMX}, kernelLevels...)
	}
	return kernelLevels
}

func TestEveryCellIsServedByAssembly(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		for _, f := range All() {
			require.Len(t, Candidates(f.Type, 1), 1, "only the reference here")
		}
		return
	}
	served := 0
	for _, f := range All() {
		for _, m := range tokenCounts() {
			all, levels := Candidates(f.Type, m), levelsOf(f, m)
			require.Len(t, all, len(levels)+1, "%s x%d", f.Name, m)
			for i, level := range levels {
				require.Equal(t, level, all[i].Level)
				name := fmt.Sprintf("%s.Dot%sx%d", level, strings.ReplaceAll(f.Name, "_", ""), m)
				fn := runtime.FuncForPC(reflect.ValueOf(all[i].Dot).Pointer()).Name()
				if MaxM < m && m < WideM && level != cpu.AMX {
					name = strings.TrimSuffix(name, fmt.Sprint(m)) + fmt.Sprintf("%d+%d", (m+1)/2, m/2)
					require.Equal(t, "quickdraft/quant.twice.func1", fn)
				} else {
					require.Equal(t, "quickdraft/asm/"+name, fn)
				}
				require.Equal(t, name, all[i].Name)
				served++
			}
			require.Equal(t, cpu.Go, all[len(levels)].Level)
		}
	}
	t.Logf("%d cells", served)
}

func TestPickTakesTheBestActiveLevel(t *testing.T) {
	for _, f := range All() {
		for _, m := range tokenCounts() {
			picked := Pick(f.Type, m)
			require.True(t, cpu.Active(picked.Level))
			if runtime.GOARCH == "amd64" {
				want := cpu.Best()
				if want == cpu.AMX {
					want = levelsOf(f, m)[0]
				}
				require.Equal(t, want, picked.Level, "%s x%d", f.Name, m)
			}
		}
	}
	require.Panics(t, func() { Candidates(gguf.TypeQ4_0, WideM+1) })
	require.Panics(t, func() { Candidates(gguf.TypeQ4_0, 0) })
}

func BenchmarkDot(b *testing.B) {
	const nTiles, cols = 16, 2048
	rng := rand.New(rand.NewPCG(5, 6))
	x := func() float32 { return float32(rng.NormFloat64()) }
	for _, f := range All() {
		for _, m := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16} {
			c := newDotCase(f, m, nTiles, cols/f.BlockSize, 0, func([]byte) {}, x, x)
			for _, cand := range Candidates(f.Type, m) {
				if !cpu.Has(cand.Level) {
					continue
				}
				b.Run(fmt.Sprintf("%s/x%d/%s", f.Name, m, cand.Level), func(b *testing.B) {
					b.SetBytes(int64(len(c.tiles.data)))
					for b.Loop() {
						cand.Dot(c.dst.floats(), c.dstStride, c.tiles.first(), nTiles, c.act.first(), c.actStride, c.nBlocks)
					}
					macs := float64(m) * nTiles * TileRows * cols
					b.ReportMetric(macs*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
				})
			}
			c.free()
		}
	}
}

func (c *dotCase) free() {
	c.dst.free()
	c.tiles.free()
	c.act.free()
}

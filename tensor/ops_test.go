package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// random fills a new matrix with normal values.
func random(rng *rand.Rand, rows, cols int) F32 {
	x := NewF32(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	return x
}

func clone(x F32) F32 {
	y := NewF32(x.Rows, x.Cols)
	copy(y.Data, x.Data)
	return y
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// near compares with float64 values to a relative tolerance, absolute below 1.
func near(t *testing.T, want []float64, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.InDelta(t, w, float64(got[i]), tolerance*max(1, math.Abs(w)), "element %d", i)
	}
}

// same compares bits.
func same(t *testing.T, want, got F32, what string, args ...any) {
	t.Helper()
	require.Equal(t, [2]int{want.Rows, want.Cols}, [2]int{got.Rows, got.Cols})
	for i, w := range want.Data {
		if math.Float32bits(w) != math.Float32bits(got.Data[i]) {
			t.Fatalf("%s: element %d of row %d is %v (%#x), want %v (%#x)", fmt.Sprintf(what, args...), i%want.Cols, i/want.Cols,
				got.Data[i], math.Float32bits(got.Data[i]), w, math.Float32bits(w))
		}
	}
}

// cpus returns one CPU for every number of workers that tests compare.
func cpus(t testing.TB, maxTokens, maxCols int) []*CPU {
	var all []*CPU
	for n := 1; n <= 3; n++ {
		p := NewPool(n)
		t.Cleanup(p.Close)
		all = append(all, NewCPU(p, maxTokens, maxCols))
	}
	return all
}

// onAll runs an operation with each number of workers on all rows at once and row by row, and requires the same bits.
// The operation gets rows [lo, hi) and returns their result.
func onAll(t *testing.T, rows int, op func(c *CPU, lo, hi int) F32) F32 {
	t.Helper()
	all := cpus(t, max(rows, 1), 64)
	want := op(all[0], 0, rows)
	for _, c := range all {
		same(t, want, op(c, 0, rows), "%d workers", c.pool.N())
		for i := range rows {
			one := F32{Data: want.Row(i), Rows: 1, Cols: want.Cols}
			same(t, one, op(c, i, i+1), "row %d alone, %d workers", i, c.pool.N())
		}
	}
	return want
}

func rowsOf(x F32, lo, hi int) F32 {
	return F32{Data: x.Data[lo*x.Cols : hi*x.Cols], Rows: hi - lo, Cols: x.Cols}
}

// shapes of (tokens, columns): small and odd ones, and one that is shared among workers.
var shapes = [][2]int{{1, 1}, {1, 15}, {2, 16}, {3, 17}, {5, 576}, {1, 9001}, {33, 300}}

func TestRMSNorm(t *testing.T) {
	for _, shape := range shapes {
		rng := newRand(1)
		x, w := random(rng, shape[0], shape[1]), random(rng, 1, shape[1]).Data
		got := onAll(t, x.Rows, func(c *CPU, lo, hi int) F32 {
			dst := NewF32(hi-lo, x.Cols)
			c.RMSNorm(dst, rowsOf(x, lo, hi), w, 1e-5)
			inPlace := clone(rowsOf(x, lo, hi))
			c.RMSNorm(inPlace, inPlace, w, 1e-5)
			same(t, dst, inPlace, "in place")
			return dst
		})
		for i := range x.Rows {
			near(t, normReference(x.Row(i), w, 1e-5), got.Row(i), 1e-6)
		}
	}
}

func normReference(x, w []float32, eps float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v) / math.Sqrt(sum/float64(len(x))+eps) * float64(w[i])
	}
	return out
}

func TestRMSNormHeads(t *testing.T) {
	const headDim, heads = 24, 5
	rng := newRand(2)
	x, w := random(rng, 40, heads*headDim), random(rng, 1, headDim).Data
	got := onAll(t, x.Rows, func(c *CPU, lo, hi int) F32 {
		y := clone(rowsOf(x, lo, hi))
		c.RMSNormHeads(y, headDim, w, 1e-6)
		return y
	})
	for i := range x.Rows {
		for h := range heads {
			near(t, normReference(x.Row(i)[h*headDim:][:headDim], w, 1e-6), got.Row(i)[h*headDim:][:headDim], 1e-6)
		}
	}
}

// TestSumSquaresOrder pins the order of a reduction: lanes by index, then the tree.
func TestSumSquaresOrder(t *testing.T) {
	x := random(newRand(3), 1, 75).Data
	var lanes [16]float32
	for i, v := range x {
		lanes[i%16] += float32(v * v)
	}
	for _, half := range []int{8, 4, 2, 1} {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	require.Equal(t, lanes[0], sumSquares(new([Lanes]float32), x))
}

func TestElementwise(t *testing.T) {
	gelu := func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	for _, op := range []struct {
		name string
		run  func(c *CPU, dst, a, b F32)
		want func(dst, a, b float64) float64
	}{
		{"Add", func(c *CPU, dst, a, b F32) { c.Add(dst, a) }, func(dst, a, b float64) float64 { return dst + a }},
		{"Scale", func(c *CPU, dst, a, b F32) { c.Scale(dst, 1.7) }, func(dst, a, b float64) float64 { return dst * float64(float32(1.7)) }},
		{"SiLUMul", func(c *CPU, dst, a, b F32) { c.SiLUMul(dst, a, b) },
			func(dst, a, b float64) float64 { return a / (1 + math.Exp(-a)) * b }},
		{"GELUTanhMul", func(c *CPU, dst, a, b F32) { c.GELUTanhMul(dst, a, b) },
			func(dst, a, b float64) float64 { return gelu(a) * b }},
		{"Softcap", func(c *CPU, dst, a, b F32) { c.Softcap(dst, 2.5) },
			func(dst, a, b float64) float64 { return 2.5 * math.Tanh(dst/2.5) }},
	} {
		t.Run(op.name, func(t *testing.T) {
			for _, shape := range shapes {
				rng := newRand(4)
				d, a, b := random(rng, shape[0], shape[1]), random(rng, shape[0], shape[1]), random(rng, shape[0], shape[1])
				for i := range a.Data {
					a.Data[i] *= 4
				}
				got := onAll(t, d.Rows, func(c *CPU, lo, hi int) F32 {
					dst := clone(rowsOf(d, lo, hi))
					op.run(c, dst, rowsOf(a, lo, hi), rowsOf(b, lo, hi))
					return dst
				})
				want := make([]float64, len(d.Data))
				for i := range want {
					want[i] = op.want(float64(d.Data[i]), float64(a.Data[i]), float64(b.Data[i]))
				}
				near(t, want, got.Data, 3e-6)
			}
			nan := F32{Data: []float32{1, float32(math.NaN()), 1}, Rows: 1, Cols: 3}
			c := cpus(t, 1, 32)[0]
			dst := clone(nan)
			op.run(c, dst, nan, nan)
			for i, v := range dst.Data {
				require.Equal(t, i == 1, math.IsNaN(float64(v)))
			}
		})
	}
}

func TestGatedExtremes(t *testing.T) {
	c := cpus(t, 1, 32)[0]
	gate := F32{Data: []float32{-1e4, -200, -90, 0, 90, 200, 1e4}, Rows: 1, Cols: 7}
	ones := F32{Data: []float32{1, 1, 1, 1, 1, 1, 1}, Rows: 1, Cols: 7}
	for _, op := range []func(dst, gate, up F32){c.SiLUMul, c.GELUTanhMul} {
		dst := NewF32(1, 7)
		op(dst, gate, ones)
		near(t, []float64{0, 0, 0, 0, 90, 200, 1e4}, dst.Data, 1e-6)
	}
}

func TestRope(t *testing.T) {
	const headDim, heads, rotDim = 20, 3, 12
	r := &Rope{RotDim: rotDim, Scale: 1.25}
	for i := range rotDim / 2 {
		r.InvFreq = append(r.InvFreq, float32(math.Pow(10000, -2*float64(i)/rotDim)))
	}
	x := random(newRand(5), 37, heads*headDim)
	pos := make([]int32, x.Rows)
	for i := range pos {
		pos[i] = int32(i * i * 17)
	}
	got := onAll(t, x.Rows, func(c *CPU, lo, hi int) F32 {
		y := clone(rowsOf(x, lo, hi))
		c.Rope(y, headDim, pos[lo:hi], r)
		return y
	})
	for i := range x.Rows {
		for h := range heads {
			in, want := x.Row(i)[h*headDim:][:headDim], make([]float64, headDim)
			for d, v := range in {
				want[d] = float64(v)
			}
			for k, f := range r.InvFreq {
				sin, cos := math.Sincos(float64(float32(pos[i]) * f))
				a, b := float64(in[k]), float64(in[k+rotDim/2])
				want[k], want[k+rotDim/2] = 1.25*(a*cos-b*sin), 1.25*(b*cos+a*sin)
			}
			near(t, want, got.Row(i)[h*headDim:][:headDim], 1e-6)
		}
	}
}

// TestRopeTables alternates more ropes and positions than there are tables, as a target and its draft may.
func TestRopeTables(t *testing.T) {
	c := cpus(t, 4, 64)[0]
	var ropes []*Rope
	for i := range 6 {
		ropes = append(ropes, &Rope{RotDim: 2, InvFreq: []float32{1 / float32(i+1)}})
	}
	rng := newRand(6)
	for range 200 {
		k := rng.IntN(len(ropes))
		pos := []int32{rng.Int32N(3), rng.Int32N(3)}[:1+rng.IntN(2)]
		x := NewF32(len(pos), 2)
		for i := range pos {
			x.Row(i)[0] = 1
		}
		c.Rope(x, 2, pos, ropes[k])
		for i, p := range pos {
			require.InDelta(t, math.Cos(float64(p)/float64(k+1)), x.Row(i)[0], 1e-6)
			require.InDelta(t, math.Sin(float64(p)/float64(k+1)), x.Row(i)[1], 1e-6)
		}
	}
}

func TestShapesThatDoNotFit(t *testing.T) {
	c := cpus(t, 2, 64)[0]
	a, b := NewF32(2, 32), NewF32(2, 33)
	for name, op := range map[string]func(){
		"Add":          func() { c.Add(a, b) },
		"SiLUMul":      func() { c.SiLUMul(a, a, b) },
		"RMSNorm":      func() { c.RMSNorm(a, b, make([]float32, 33), 0) },
		"RMSNorm w":    func() { c.RMSNorm(a, a, make([]float32, 33), 0) },
		"RMSNormHeads": func() { c.RMSNormHeads(a, 5, make([]float32, 5), 0) },
		"Rope":         func() { c.Rope(a, 32, []int32{1}, &Rope{}) },
		"Rope dims":    func() { c.Rope(a, 32, []int32{1, 2}, &Rope{RotDim: 64, InvFreq: make([]float32, 32)}) },
		"Softcap":      func() { c.Softcap(a, 0) },
		"Attend":       func() { c.Attend(a, a, nil, AttnParams{HeadDim: 5, Heads: 5, KVHeads: 1}) },
		"NewCPU":       func() { NewCPU(c.pool, 0, 1) },
	} {
		require.Panics(t, op, name)
	}
}

func TestArena(t *testing.T) {
	a, err := NewArena(2*F32Bytes(3, 5) + 100)
	require.NoError(t, err)
	x, y := a.F32(3, 5), a.F32(3, 5)
	x.Row(2)[4], y.Row(0)[0] = 1, 2
	require.EqualValues(t, 1, x.Data[14])
	require.Len(t, a.Bytes(100), 100)
	require.PanicsWithValue(t, "tensor: arena of 228 bytes cannot give 4 more after 256", func() { a.F32(1, 1) })
	a.Reset()
	require.EqualValues(t, 1, a.F32(3, 5).Data[14])
	require.EqualValues(t, 15, cap(x.Data))
	a.Free()
	_, err = NewArena(1 << 60)
	require.ErrorContains(t, err, fmt.Sprint(1<<60))
}

package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// encoded is a random matrix in a format: its file bytes and the weights they stand for.
type encoded struct {
	format *quant.Format
	src    []byte
	values F32
}

func encode(t testing.TB, rng *rand.Rand, typ gguf.Type, rows, cols int) encoded {
	f, ok := quant.Get(typ)
	require.True(t, ok, typ)
	e := encoded{format: f, src: make([]byte, rows*f.RowBytes(cols)), values: random(rng, rows, cols)}
	f.Encode(e.src, e.values.Data)
	f.Decode(e.values.Data, e.src)
	return e
}

func (e encoded) mat(t testing.TB, pool *Pool) *Mat {
	m, err := NewMat("w", e.format.Type, e.values.Rows, e.values.Cols, e.src, nil, pool)
	require.NoError(t, err)
	t.Cleanup(m.Free)
	return m
}

func TestMatMul(t *testing.T) {
	const maxTokens, cols = 41, 512
	all := cpus(t, maxTokens, cols)
	for _, f := range quant.All() {
		t.Run(f.Name, func(t *testing.T) {
			rng := newRand(uint64(f.Type))
			for _, rows := range []int{1, 16, 83} {
				e := encode(t, rng, f.Type, rows, cols)
				m := e.mat(t, all[2].pool)
				x := random(rng, maxTokens, cols)
				x.Row(2)[5] = 100 // an outlier costs its block precision and no other
				want := NewF32(maxTokens, rows)
				for i := range maxTokens {
					all[0].MatMul(rowsOf(want, i, i+1), m, rowsOf(x, i, i+1))
				}
				checkProducts(t, e, x, want)
				for n := 1; n <= maxTokens; n++ {
					got := NewF32(n, rows)
					all[n%3].MatMul(got, m, x.Head(n))
					same(t, want.Head(n), got, "%d tokens, %d rows, %d workers", n, rows, 1+n%3)
				}
				for _, c := range all {
					got := NewF32(maxTokens, rows)
					for lo := 0; lo < maxTokens; lo += 7 {
						hi := min(lo+7, maxTokens)
						c.MatMul(rowsOf(got, lo, hi), m, rowsOf(x, lo, hi))
					}
					same(t, want, got, "pieces of 7, %d workers", c.pool.N())
				}
			}
		})
	}
}

// checkProducts compares with float64 products of the decoded weights and the activations as the format takes them.
func checkProducts(t *testing.T, e encoded, x, got F32) {
	t.Helper()
	for i := range x.Rows {
		row := make([]float64, x.Cols)
		for k, v := range x.Row(i) {
			row[k] = float64(v)
		}
		if !e.format.Float {
			act := make([]byte, quant.ActBytes(x.Cols))
			quant.QuantizeRow(act, x.Row(i))
			for k := range row {
				block := act[k/32*64:]
				row[k] = float64(int8(block[k%32])) * float64(math.Float32frombits(binary.LittleEndian.Uint32(block[32:])))
			}
		}
		for r := range got.Cols {
			sum, size := 0.0, 0.0
			for k, w := range e.values.Row(r) {
				sum += float64(w) * row[k]
				size += math.Abs(float64(w) * row[k])
			}
			require.InDelta(t, sum, float64(got.Row(i)[r]), 1e-6*size+1e-30, "token %d, row %d", i, r)
		}
	}
}

// TestMatMuls multiplies matrices of several formats and heights at once, with and without biases.
func TestMatMuls(t *testing.T) {
	const cols = 256
	rng := newRand(1)
	for _, tokens := range []int{1, 5, 20} {
		x := random(rng, tokens, cols)
		for _, c := range cpus(t, 20, cols) {
			var out []Proj
			for i, typ := range []gguf.Type{gguf.TypeQ4_K, gguf.TypeF32, gguf.TypeQ6_K, gguf.TypeQ8_0, gguf.TypeBF16} {
				rows := []int{100, 7, 16, 31, 64}[i]
				p := Proj{Dst: NewF32(tokens, rows), W: encode(t, rng, typ, rows, cols).mat(t, c.pool)}
				if i%2 == 0 {
					p.Bias = random(rng, 1, rows).Data
				}
				out = append(out, p)
			}
			c.MatMuls(x, out...)
			for i, p := range out {
				want := NewF32(tokens, p.W.Rows)
				c.MatMul(want, p.W, x)
				for k := range want.Data {
					if p.Bias != nil {
						want.Data[k] += p.Bias[k%p.W.Rows]
					}
				}
				same(t, want, p.Dst, "matrix %d, %d tokens, %d workers", i, tokens, c.pool.N())
			}
		}
	}
}

func TestMatMulNaN(t *testing.T) {
	rng := newRand(2)
	c := cpus(t, 4, 256)[1]
	for _, f := range quant.All() {
		m := encode(t, rng, f.Type, 40, 256).mat(t, nil)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			x := random(rng, 3, 256)
			x.Row(1)[77] = bad
			got := NewF32(3, 40)
			c.MatMul(got, m, x)
			for i := range 3 {
				for _, v := range got.Row(i) {
					finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
					require.Equal(t, i != 1, finite, "%s, token %d: %v", f.Name, i, v)
				}
			}
		}
	}
}

func TestRowOrderAndF32(t *testing.T) {
	const rows, cols = 50, 256
	rng := newRand(3)
	all := cpus(t, 4, cols)
	order := rng.Perm(rows)
	at := func(i int) int { return order[i] }
	x := random(rng, 3, cols)
	for _, f := range quant.All() {
		e := encode(t, rng, f.Type, rows, cols)
		plain, decoded := NewF32(3, rows), NewF32(3, rows)
		all[0].MatMul(plain, e.mat(t, all[2].pool), x)
		m, err := NewMat("w", f.Type, rows, cols, e.src, at, all[2].pool)
		require.NoError(t, err)
		got := NewF32(3, rows)
		all[1].MatMul(got, m, x)
		m32, err := NewMatF32("w", f.Type, rows, cols, e.src, at, all[2].pool)
		require.NoError(t, err)
		require.Equal(t, gguf.TypeF32, m32.Type)
		all[1].MatMul(decoded, m32, x)
		for i := range 3 {
			for r, v := range got.Row(i) {
				require.Equal(t, plain.Row(i)[order[r]], v)
				sum := 0.0
				for k, w := range e.values.Row(order[r]) {
					sum += float64(w) * float64(x.Row(i)[k])
				}
				require.InDelta(t, sum, decoded.Row(i)[r], 1e-4)
			}
		}
		ids := []int32{0, rows - 1, 17}
		emb, emb32 := NewF32(3, cols), NewF32(3, cols)
		all[1].Embed(emb, m, ids, 1)
		all[2].Embed(emb32, m32, ids, 2)
		for i, id := range ids {
			for k, w := range e.values.Row(order[id]) {
				require.Equal(t, w, emb.Row(i)[k])
				require.Equal(t, w*2, emb32.Row(i)[k])
			}
		}
		m.Free()
		m32.Free()
	}
	m := encode(t, rng, gguf.TypeF32, 4, cols).mat(t, nil)
	require.PanicsWithValue(t, `tensor: Embed of id 4, "w" has 4 rows`, func() { all[0].Embed(NewF32(1, cols), m, []int32{4}, 1) })
	require.Panics(t, func() { all[0].Embed(NewF32(1, cols), m, []int32{-1}, 1) })
	require.Panics(t, func() { all[0].MatMul(NewF32(5, 4), m, NewF32(5, cols)) })
	require.Panics(t, func() { all[0].MatMul(NewF32(1, 3), m, NewF32(1, cols)) })
}

func TestNewMatRefuses(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	good := make([]byte, 64*18)
	bad := append([]byte(nil), good...)
	binary.LittleEndian.PutUint16(bad[18*37:], 0x7e00)
	for _, c := range []struct {
		typ        gguf.Type
		rows, cols int
		src        []byte
		want       string
	}{
		{gguf.Type(255), 64, 32, good, `tensor "blk.0.w": no weight format for type`},
		{gguf.TypeQ4_0, 64, 33, good, `shape 64 x 33`},
		{gguf.TypeQ4_0, 64, 0, good, `shape 64 x 0`},
		{gguf.TypeQ4_0, 0, 32, nil, `shape 0 x 32`},
		{gguf.TypeQ4_0, -1, 32, good, `shape -1 x 32`},
		{gguf.TypeQ4_0, 63, 32, good, `1152 bytes of Q4_0 for 63 x 32 weights, must be 63 rows of 18 bytes`},
		{gguf.TypeQ4_0, 1 << 62, 32, good, `1152 bytes`},
		{gguf.TypeQ4_0, 64, 32, bad, `tensor "blk.0.w": row 37 has a scale that is not a finite number`},
	} {
		for _, p := range []*Pool{nil, pool} {
			_, err := NewMat("blk.0.w", c.typ, c.rows, c.cols, c.src, nil, p)
			require.ErrorContains(t, err, c.want)
			_, err = NewMatF32("blk.0.w", c.typ, c.rows, c.cols, c.src, nil, p)
			require.ErrorContains(t, err, c.want)
		}
	}
}

// TestGatedMatMul compares the products of one task with the operations one after the other.
func TestGatedMatMul(t *testing.T) {
	rng := newRand(17)
	for _, c := range cpus(t, 20, 512) {
		for _, typ := range []gguf.Type{gguf.TypeQ4_0, gguf.TypeF32} {
			for _, shape := range [][2]int{{1, 32}, {1, 512}, {5, 96}, {20, 512}} {
				w := encode(t, rng, typ, 50, shape[1]).mat(t, c.pool)
				gate, up := random(rng, shape[0], shape[1]), random(rng, shape[0], shape[1])
				for name, op := range map[string][2]func(dst, gate F32){
					"SiLU": {func(dst, g F32) { c.SiLUMul(g, g, up); c.MatMul(dst, w, g) },
						func(dst, g F32) { c.MatMulSiLU(g, up, Proj{Dst: dst, W: w}) }},
					"GELUTanh": {func(dst, g F32) { c.GELUTanhMul(g, g, up); c.MatMul(dst, w, g) },
						func(dst, g F32) { c.MatMulGELUTanh(g, up, Proj{Dst: dst, W: w}) }},
				} {
					want, got := NewF32(shape[0], 50), NewF32(shape[0], 50)
					x, y := clone(gate), clone(gate)
					op[0](want, x)
					op[1](got, y)
					same(t, want, got, "%s, %v, %d workers", name, shape, c.pool.N())
					same(t, x, y, "%s, gate, %v, %d workers", name, shape, c.pool.N())
				}
			}
		}
	}
}

// BenchmarkMatMul multiplies the matrices of a feed-forward layer of Qwen2.5 1.5B.
func BenchmarkMatMul(b *testing.B) {
	rng := newRand(31)
	pools := []*Pool{NewPool(1), NewPool(2)}
	for _, typ := range []gguf.Type{gguf.TypeQ4_K, gguf.TypeQ6_K, gguf.TypeQ8_0} {
		for _, shape := range [][2]int{{8960, 1536}, {1536, 8960}} {
			e := encode(b, rng, typ, shape[0], shape[1])
			m := e.mat(b, pools[1])
			for _, n := range []int{1, 4, 8, 16, 64, 512} {
				x, dst := random(rng, n, shape[1]), NewF32(n, shape[0])
				for _, pool := range pools {
					c := NewCPU(pool, n, shape[1])
					b.Run(fmt.Sprintf("%s/%dx%d/x%d/%d", e.format.Name, shape[0], shape[1], n, pool.N()), func(b *testing.B) {
						b.SetBytes(m.Bytes())
						for b.Loop() {
							c.MatMul(dst, m, x)
						}
						b.ReportMetric(float64(n*shape[0]*shape[1])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
					})
				}
			}
		}
	}
}

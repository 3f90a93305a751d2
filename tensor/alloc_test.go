package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

// TestNoAllocations runs every operation as a pass does, on one worker and on three.
func TestNoAllocations(t *testing.T) {
	const cols, headDim = 512, 64
	p := AttnParams{HeadDim: headDim, Heads: cols / headDim, KVHeads: 2, Scale: 0.125, Softcap: 30}
	rng := newRand(1)
	for _, c := range cpus(t, 32, cols) {
		w := encode(t, rng, gguf.TypeQ4_K, 500, cols).mat(t, c.pool)
		f := encode(t, rng, gguf.TypeF32, cols, cols).mat(t, c.pool)
		s := newSequence(rng, p, 100, 0)
		rope := &Rope{RotDim: headDim, InvFreq: make([]float32, headDim/2)}
		spans := make([]KVSpan, 0, 2)
		for _, n := range []int{1, 5, 32} {
			x, y, q := random(rng, n, cols), NewF32(n, cols), NewF32(n, 500)
			ids, pos, weight := make([]int32, n), make([]int32, n), make([]float32, cols)
			parents := make([]int32, n)
			for i := range parents {
				parents[i] = int32(i) - 1
			}
			round := int32(0)
			pass := func() {
				round++
				pos[0] = round // new positions every pass
				c.Embed(y, f, ids, 2)
				c.RMSNorm(y, x, weight, 1e-5)
				c.RMSNormHeads(y, headDim, weight[:headDim], 1e-5)
				c.Rope(y, headDim, pos, rope)
				c.MatMul(q, w, x)
				c.MatMulSiLU(y, x, Proj{Dst: q, W: w})
				c.MatMulGELUTanh(y, x, Proj{Dst: q, W: w})
				c.MatMuls(x, Proj{Dst: q, W: w}, Proj{Dst: y, W: f, Bias: weight})
				spans = append(spans[:0], KVSpan{N: n, View: s.view, Parents: parents})
				c.Attend(y, x, spans, p)
				c.SiLUMul(y, y, x)
				c.GELUTanhMul(y, y, x)
				c.Softcap(y, 10)
				c.Scale(y, 0.5)
				c.Add(y, x)
				c.Finite(y.Data)
			}
			pass()
			require.Zero(t, allocations(pass), "%d tokens, %d workers", n, c.pool.N())
		}
	}
}

// allocations is the smallest of three counts: a thread that the Go scheduler starts, once, allocates as well.
func allocations(pass func()) float64 {
	n := testing.AllocsPerRun(5, pass)
	for range 2 {
		n = min(n, testing.AllocsPerRun(5, pass))
	}
	return n
}

package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

// TestWatch sees each matrix of a product with its activations, and changes nothing.
func TestWatch(t *testing.T) {
	const cols = 64
	rng := newRand(4)
	c := cpus(t, 8, cols)[1]
	a := encode(t, rng, gguf.TypeQ8_0, 40, cols).mat(t, c.pool)
	b := encode(t, rng, gguf.TypeF16, 16, cols).mat(t, c.pool)
	x := random(rng, 3, cols)
	product := func() (F32, F32) {
		y, z := NewF32(3, 40), NewF32(3, 16)
		c.MatMuls(x, Proj{Dst: y, W: a}, Proj{Dst: z, W: b})
		return y, z
	}
	wantY, wantZ := product()
	var seen []*Mat
	w := &Watch{MatMul: func(m *Mat, in F32) {
		require.Equal(t, x, in)
		seen = append(seen, m)
	}}
	c.SetWatch(w)
	y, z := product()
	require.Equal(t, []*Mat{a, b}, seen)
	same(t, wantY, y, "first matrix")
	same(t, wantZ, z, "second matrix")
	p := AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25}
	s := newSequence(rng, p, 20, 0)
	c.Attend(NewF32(2, cols), random(rng, 2, cols), []KVSpan{{N: 2, View: s.view}}, p)
	require.Positive(t, w.Products)
	require.Positive(t, w.Attention)
	before := *w
	c.SetWatch(nil)
	product()
	require.Len(t, seen, 2)
	require.Equal(t, before.Products, w.Products)
}

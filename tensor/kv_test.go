package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/quant"
)

// TestAttendEightBits requires the bits of the same values in float32, for keys and values in 8 bits together and alone.
func TestAttendEightBits(t *testing.T) {
	rng := newRand(31)
	for _, dim := range []int{16, 32, 40, 64, 80} {
		p := AttnParams{HeadDim: dim, Heads: 6, KVHeads: 2, Scale: 0.3}
		const blocks, n = 5, 7
		size, groups := p.KVHeads*dim*KVBlock, ceilDiv(dim, KV8Group)
		view := KVView{Blocks: []int32{3, 0, 4, 1}, Len: 60, K32: make([]float32, blocks*size), V32: make([]float32, blocks*size)}
		keys, values := KV8{}, KV8{}
		for _, s := range []*KV8{&keys, &values} {
			for range blocks * size {
				s.Codes = append(s.Codes, int8(rng.IntN(255)-127))
			}
			for range blocks * p.KVHeads * groups * KVBlock {
				s.Scales = append(s.Scales, quant.FloatToHalf(rng.Float32()/50))
			}
		}
		for i := range view.K32 {
			block, in := i/(dim*KVBlock), i%(dim*KVBlock)
			d, lane := in/KVBlock, in%KVBlock
			view.K32[i] = float32(keys.Codes[i]) * quant.HalfToFloat(keys.Scales[(block*groups+d/KV8Group)*KVBlock+lane])
			lane, d = in/dim, in%dim
			view.V32[i] = float32(values.Codes[i]) * quant.HalfToFloat(values.Scales[(block*groups+d/KV8Group)*KVBlock+lane])
		}
		q := random(rng, n, p.Heads*dim)
		for _, c := range cpus(t, n, 32) {
			want := NewF32(n, q.Cols)
			c.Attend(want, q, []KVSpan{{N: n, View: view}}, p)
			for _, both := range []bool{false, true} {
				eight := view
				eight.V8 = values
				if both {
					eight.K8, eight.K32, eight.V32 = keys, nil, nil
				}
				got := NewF32(n, q.Cols)
				c.Attend(got, q, []KVSpan{{N: n, View: eight}}, p)
				same(t, want, got, "heads of %d, keys too: %v", dim, both)
			}
		}
		require.NotEqual(t, view.K32, view.V32)
	}
}

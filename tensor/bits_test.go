package tensor

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// uniform fills a new matrix with values that are the same on every processor.
func uniform(rng *rand.Rand, rows, cols int) F32 {
	x := NewF32(rows, cols)
	for i := range x.Data {
		x.Data[i] = 2*rng.Float32() - 1
	}
	return x
}

// TestBits pins the results of the operations, so that another processor, GOAMD64 level or compiler that changes one bit
// is noticed.
func TestBits(t *testing.T) {
	rng := newRand(1)
	c := cpus(t, 8, 256)[1]
	results := map[string]F32{}

	exps := NewF32(1, 1<<16)
	for i := range exps.Data {
		exps.Data[i] = Exp32(float32(i-1<<15) * (1.0 / 370))
	}
	results["Exp32"] = exps

	x, y := uniform(rng, 5, 256), uniform(rng, 5, 256)
	norm := NewF32(5, 256)
	c.RMSNorm(norm, x, y.Row(0), 1e-5)
	results["RMSNorm"] = norm

	silu, gelu, capped := NewF32(5, 256), NewF32(5, 256), clone(y)
	c.SiLUMul(silu, x, y)
	c.GELUTanhMul(gelu, x, y)
	c.Softcap(capped, 0.7)
	results["SiLUMul"], results["GELUTanhMul"], results["Softcap"] = silu, gelu, capped

	rope := &Rope{RotDim: 32, InvFreq: uniform(rng, 1, 16).Data}
	turned := clone(x)
	c.Rope(turned, 64, []int32{0, 1, 77, 4095, 131071}, rope)
	results["Rope"] = turned

	p := AttnParams{HeadDim: 32, Heads: 8, KVHeads: 4, Scale: 0.2, Softcap: 20}
	s := newSequence(rng, p, 50, 0)
	k, v := uniform(rng, 50, 128), uniform(rng, 50, 128)
	for slot := range 50 {
		s.put(slot, k.Row(slot), v.Row(slot))
	}
	attended := NewF32(5, 256)
	c.Attend(attended, x, []KVSpan{{N: 5, View: s.view, Parents: []int32{-1, 0, 0, 1, 3}}}, p)
	results["Attend"] = attended

	for _, typ := range []gguf.Type{gguf.TypeF16, gguf.TypeQ4_0} {
		f, _ := quant.Get(typ)
		e := encoded{format: f, src: make([]byte, 40*f.RowBytes(256)), values: uniform(rng, 40, 256)}
		f.Encode(e.src, e.values.Data)
		product := NewF32(5, 40)
		c.MatMul(product, e.mat(t, nil), x)
		results["MatMul "+f.Name] = product
	}

	got := map[string]uint32{}
	for name, r := range results {
		h := fnv.New32a()
		for _, v := range r.Data {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		got[name] = h.Sum32()
	}
	require.Equal(t, map[string]uint32{
		"Exp32": 4232268727, "RMSNorm": 2456378026, "SiLUMul": 411839320, "GELUTanhMul": 241201973, "Softcap": 65103298,
		"Rope": 1300415748, "Attend": 3883175776, "MatMul F16": 4205359274, "MatMul Q4_0": 163005297,
	}, got)
}

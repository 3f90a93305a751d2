package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

// TestFirstTokenIsFiner compares the first token with the float32 path: its gate and up must not add int8's noise, and a
// model with float weights has nothing to split.
func TestFirstTokenIsFiner(t *testing.T) {
	f := tinyGGUF("llama", gguf.TypeQ8_0)
	exact := loadModel(t, f.write(t), Options{F32: true, MaxBatch: 8})
	m := loadModel(t, f.write(t), Options{MaxBatch: 8})
	ids := []int32{5, 6}
	for name, c := range map[string]struct {
		rows  []int32
		first int
	}{"first": {[]int32{0, 1}, 1}, "none": {[]int32{1}, 0}} {
		seq := newSeq(t, m, 4)
		if c.first == 0 {
			feed(t, m, seq, ids[:1])
		}
		b := &Batch{Tokens: ids[2-len(c.rows):], Spans: []Span{{Seq: seq, N: len(c.rows)}}}
		_, err := m.Forward(b)
		require.NoError(t, err)
		require.Len(t, m.pass.firsts, c.first, name)
	}

	x := m.pass.full.h.Head(1)
	for i := range x.Data {
		x.Data[i] = 0.01
	}
	x.Data[7], x.Data[70] = 1000, 3 // an outlier in one block of 32 and a smaller one in another
	copy(exact.pass.full.h.Data, x.Data)
	want := ffnInput(exact, exact.pass.full.h.Head(1), false)
	coarse, fine := maxDiff(want, ffnInput(m, x, false)), maxDiff(want, ffnInput(m, x, true))
	require.Less(t, fine, coarse/50)
}

// ffnInput is the product of x with a gate matrix, as for a first token or for any other.
func ffnInput(m *Model, x tensor.F32, first bool) []float32 {
	p := &m.pass
	if p.firsts = p.firsts[:0]; first {
		p.firsts = append(p.firsts, 0)
	}
	l := &m.arch.(*llama).layers[0]
	gate, up := p.full.gate.Head(1), p.full.up.Head(1)
	p.gateUp(x, tensor.Proj{Dst: gate, W: l.gate}, tensor.Proj{Dst: up, W: l.up})
	return append([]float32(nil), gate.Row(0)...)
}

package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/tensor"
)

// BenchmarkAppend stores one layer's keys and values of 16 tokens, 2 heads of 128 each.
func BenchmarkAppend(b *testing.B) {
	c, err := New(Config{Layers: 1, KVHeads: 2, HeadDim: 128, Blocks: 8})
	require.NoError(b, err)
	defer c.Close()
	s := c.NewSeq()
	require.NoError(b, s.Reserve(16))
	x := tensor.NewF32(16, 256)
	for i := range x.Data {
		x.Data[i] = float32(i) * 0.01
	}
	for b.Loop() {
		s.Append(0, x, x)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/token")
}

package model

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

func TestMalformedBatch(t *testing.T) {
	m := loadModel(t, tinyGGUF("llama", gguf.TypeQ8_0).write(t), Options{MaxBatch: 8})
	c, err := m.NewCache(2)
	require.NoError(t, err)
	seq, other := c.NewSeq(), c.NewSeq()
	for name, x := range map[string]struct {
		batch Batch
		want  string
	}{
		"empty":           {Batch{}, "batch of 0 tokens: want 1 to 8"},
		"too long":        {Batch{Tokens: make([]int32, 9)}, "batch of 9 tokens"},
		"negative id":     {Batch{Tokens: []int32{-1}, Spans: []Span{{Seq: seq, N: 1}}}, "id -1: want 0 to 322"},
		"id past end":     {Batch{Tokens: []int32{323}, Spans: []Span{{Seq: seq, N: 1}}}, "id 323"},
		"row past end":    {Batch{Tokens: []int32{1}, Spans: []Span{{Seq: seq, N: 1}}, Logits: []int32{1}}, "row 1: the batch has 1"},
		"spans too short": {Batch{Tokens: []int32{1, 2}, Spans: []Span{{Seq: seq, N: 1}}}, "its spans hold 1"},
		"spans too long":  {Batch{Tokens: []int32{1}, Spans: []Span{{Seq: seq, N: 2}}}, "span 0 has 2 tokens"},
		"empty span":      {Batch{Tokens: []int32{1}, Spans: []Span{{Seq: seq, N: 1}, {Seq: other}}}, "span 1 has 0 tokens"},
		"twice":           {Batch{Tokens: []int32{1, 2}, Spans: []Span{{Seq: seq, N: 1}, {Seq: seq, N: 1}}}, "twice"},
		"parents":         {Batch{Tokens: []int32{1, 2}, Spans: []Span{{Seq: seq, N: 2, Parents: []int32{-1}}}}, "1 parents"},
		"later parent":    {Batch{Tokens: []int32{1, 2}, Spans: []Span{{Seq: seq, N: 2, Parents: []int32{1, -1}}}}, "parent 1"},
	} {
		_, err := m.Forward(&x.batch)
		require.ErrorContains(t, err, x.want, name)
	}
	for range 4 {
		feed(t, m, seq, tokensOf(1, 8))
	}
	_, err = m.Forward(&Batch{Tokens: []int32{1}, Spans: []Span{{Seq: seq, N: 1}}, Logits: []int32{0}})
	require.ErrorContains(t, err, "0 of 2 are free")
	seq.Free()
	feed(t, m, seq, []int32{1})
}

// TestNaNNamesTheLayer makes a layer overflow: its down projection is finite but its products are not.
func TestNaNNamesTheLayer(t *testing.T) {
	f := tinyGGUF("llama", gguf.TypeF32)
	huge := make([]float32, tinyDim*tinyFF)
	for i := range huge {
		huge[i] = math.MaxFloat32
	}
	f.tensor("blk.1.ffn_down.weight").data = floats(huge...)
	m := loadModel(t, f.write(t), Options{MaxBatch: 8})
	seq := newSeq(t, m, 8)
	_, err := m.Forward(&Batch{Tokens: []int32{1, 2, 3}, Spans: []Span{{Seq: seq, N: 3}}, Logits: []int32{0, 2}})
	var nan *NaNError
	require.True(t, errors.As(err, &nan))
	require.Equal(t, NaNError{Rows: []int32{0, 2}, Layer: 1}, *nan)
	require.ErrorContains(t, err, "rows 0 2 are NaN or infinite; first seen after layer 1")
	require.Zero(t, seq.Len())
}

func TestWeightBytes(t *testing.T) {
	m := loadModel(t, tinyGGUF("llama", gguf.TypeF32).write(t), Options{MaxBatch: 8})
	const rows = 336 // the vocabulary in whole tiles
	layer := 2*tinyDim*tinyDim + 2*tinyDim*tinyKV*tinyHeadDim + 3*tinyDim*tinyFF
	require.EqualValues(t, 4*(rows*tinyDim+tinyLayers*layer), m.WeightBytes())
	require.Subset(t, Architectures(), []string{"gemma3", "llama", "qwen2", "qwen3"})
}

package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"quickdraft/modelfile/gguf"
)

// WriteTinyModel writes a random llama of 2 layers and 256 tokens to a GGUF file. change, if not nil, edits a tensor's
// values before they are written.
func WriteTinyModel(path string, change func(name string, values []float32)) error {
	return writeRandom(path, 64, 4, 2, 256, 2, change)
}

// writeRandom writes a random llama of a shape.
func writeRandom(path string, dim, heads, kvHeads, vocab, layers int, change func(name string, values []float32)) error {
	w := gguf.NewWriter()
	w.Set("general.architecture", "llama")
	tokens := make([]string, vocab)
	for i := range tokens {
		tokens[i] = fmt.Sprint("t", i)
	}
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.eos_token_id", uint32(2))
	for key, v := range map[string]uint32{
		"block_count": uint32(layers), "context_length": 1 << 14, "embedding_length": uint32(dim), "feed_forward_length": uint32(dim),
		"attention.head_count": uint32(heads), "attention.head_count_kv": uint32(kvHeads),
	} {
		w.Set("llama."+key, v)
	}
	w.Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5))
	rng := rand.New(rand.NewPCG(5, 6))
	add := func(name string, mean, scale float64, dims ...int) {
		n := 1
		for _, d := range dims {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(mean + scale*rng.NormFloat64())
		}
		if change != nil {
			change(name, values)
		}
		data := make([]byte, 0, 4*n)
		for _, x := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		w.AddTensor(name, gguf.TypeF32, dims, data)
	}
	add("token_embd.weight", 0, 1, dim, vocab)
	add("output.weight", 0, 0.3, dim, vocab)
	add("output_norm.weight", 1, 0.1, dim)
	for i := range layers {
		blk := fmt.Sprintf("blk.%d.", i)
		add(blk+"attn_norm.weight", 1, 0.1, dim)
		add(blk+"attn_q.weight", 0, 0.2, dim, dim)
		add(blk+"attn_k.weight", 0, 0.2, dim, dim/heads*kvHeads)
		add(blk+"attn_v.weight", 0, 0.2, dim, dim/heads*kvHeads)
		add(blk+"attn_output.weight", 0, 0.2, dim, dim)
		add(blk+"ffn_norm.weight", 1, 0.1, dim)
		add(blk+"ffn_gate.weight", 0, 0.2, dim, dim)
		add(blk+"ffn_up.weight", 0, 0.2, dim, dim)
		add(blk+"ffn_down.weight", 0, 0.2, dim, dim)
	}
	return w.WriteFile(path)
}

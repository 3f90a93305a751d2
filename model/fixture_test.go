package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// tinyShape is the shape of the random models that tests make: rows of 256 so that every block format fits.
const (
	tinyDim, tinyFF       = 256, 256
	tinyHeads, tinyKV     = 4, 2
	tinyHeadDim           = 64
	tinyLayers, tinyVocab = 2, 323 // not a multiple of 16: the last tile is partial
)

// tinyFile is a GGUF model under construction; tests change it before it is written.
type tinyFile struct {
	arch    string
	meta    map[string]any
	keys    []string
	tensors []tinyTensor
}

type tinyTensor struct {
	name string
	typ  gguf.Type
	dims []int
	data []byte
}

// set changes a key; one without a prefix belongs to the architecture. Nil removes it.
func (f *tinyFile) set(key string, v any) {
	if _, ok := f.meta[key]; !ok {
		f.keys = append(f.keys, key)
	}
	f.meta[key] = v
}

func (f *tinyFile) archKey(key string) string { return f.arch + "." + key }

// tensor finds a tensor to change it.
func (f *tinyFile) tensor(name string) *tinyTensor {
	for i := range f.tensors {
		if f.tensors[i].name == name {
			return &f.tensors[i]
		}
	}
	panic("no tensor " + name)
}

// drop removes a tensor.
func (f *tinyFile) drop(name string) {
	for i := range f.tensors {
		if f.tensors[i].name == name {
			f.tensors = append(f.tensors[:i], f.tensors[i+1:]...)
			return
		}
	}
	panic("no tensor " + name)
}

func (f *tinyFile) write(t testing.TB) string {
	t.Helper()
	w := gguf.NewWriter()
	for _, key := range f.keys {
		if v := f.meta[key]; v != nil {
			w.Set(key, v)
		}
	}
	for _, x := range f.tensors {
		w.AddTensor(x.name, x.typ, x.dims, x.data)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

// tinyGGUF makes a random model. Matrices take the types in turn; no types means every format that quant has.
func tinyGGUF(arch string, types ...gguf.Type) *tinyFile {
	if len(types) == 0 {
		for _, f := range quant.All() {
			types = append(types, f.Type)
		}
	}
	f := &tinyFile{arch: arch, meta: map[string]any{}}
	f.set("general.architecture", arch)
	tokens := make([]string, tinyVocab-2)
	for i := range tokens {
		tokens[i] = fmt.Sprint("t", i)
	}
	f.set("tokenizer.ggml.tokens", tokens)
	f.set("tokenizer.ggml.bos_token_id", uint32(1))
	f.set("tokenizer.ggml.eos_token_id", uint32(2))
	for key, v := range map[string]int{
		"block_count": tinyLayers, "context_length": 512, "embedding_length": tinyDim, "feed_forward_length": tinyFF,
		"attention.head_count": tinyHeads, "attention.head_count_kv": tinyKV, "attention.key_length": tinyHeadDim,
	} {
		f.set(f.archKey(key), uint32(v))
	}
	f.set(f.archKey("attention.layer_norm_rms_epsilon"), float32(1e-5))
	r := rand.New(rand.NewPCG(7, uint64(len(arch))))
	mats := 0
	mat := func(name string, rows, cols int) {
		typ := types[mats%len(types)]
		mats++
		f.tensors = append(f.tensors, tinyTensor{name, typ, []int{cols, rows}, encode(typ, normal(r, rows*cols, 1/math.Sqrt(float64(cols))))})
	}
	vec := func(name string, n int, mean float64) {
		v := normal(r, n, 0.2)
		for i := range v {
			v[i] += float32(mean)
		}
		f.tensors = append(f.tensors, tinyTensor{name, gguf.TypeF32, []int{n}, encode(gguf.TypeF32, v)})
	}
	tinyTensors(arch, mat, vec)
	return f
}

// tinyTensors lists the tensors of each architecture.
func tinyTensors(arch string, mat func(name string, rows, cols int), vec func(name string, n int, mean float64)) {
	heads, kv := tinyHeads*tinyHeadDim, tinyKV*tinyHeadDim
	mat("token_embd.weight", tinyVocab, tinyDim)
	mat("output.weight", tinyVocab, tinyDim)
	vec("output_norm.weight", tinyDim, 1)
	for i := range tinyLayers {
		blk := fmt.Sprintf("blk.%d.", i)
		vec(blk+"attn_norm.weight", tinyDim, 1)
		mat(blk+"attn_q.weight", heads, tinyDim)
		mat(blk+"attn_k.weight", kv, tinyDim)
		mat(blk+"attn_v.weight", kv, tinyDim)
		mat(blk+"attn_output.weight", tinyDim, heads)
		vec(blk+"ffn_norm.weight", tinyDim, 1)
		mat(blk+"ffn_gate.weight", tinyFF, tinyDim)
		mat(blk+"ffn_up.weight", tinyFF, tinyDim)
		mat(blk+"ffn_down.weight", tinyDim, tinyFF)
		switch arch {
		case "qwen2":
			vec(blk+"attn_q.bias", heads, 0)
			vec(blk+"attn_k.bias", kv, 0)
			vec(blk+"attn_v.bias", kv, 0)
		case "qwen3", "gemma3":
			vec(blk+"attn_q_norm.weight", tinyHeadDim, 1)
			vec(blk+"attn_k_norm.weight", tinyHeadDim, 1)
		}
		if arch == "gemma3" {
			vec(blk+"post_attention_norm.weight", tinyDim, 1)
			vec(blk+"post_ffw_norm.weight", tinyDim, 1)
		}
	}
}

func normal(r *rand.Rand, n int, std float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64() * std)
	}
	return v
}

func encode(typ gguf.Type, v []float32) []byte {
	format, ok := quant.Get(typ)
	if !ok {
		panic(typ)
	}
	data := make([]byte, len(v)/format.BlockSize*format.BlockBytes)
	format.Encode(data, v)
	return data
}

func floats(v ...float32) []byte {
	data := make([]byte, 0, 4*len(v))
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
)

// TestMalformedGGUF changes one thing of a good file; the error must name it, its value, and what would be right.
func TestMalformedGGUF(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		edit func(f *tinyFile)
		want []string
	}{
		"unknown architecture":  {func(f *tinyFile) { f.set("general.architecture", "mamba") }, []string{"general.architecture", "mamba", "llama"}},
		"no architecture":       {func(f *tinyFile) { f.set("general.architecture", nil) }, []string{"general.architecture"}},
		"no layers":             {func(f *tinyFile) { f.set("llama.block_count", nil) }, []string{"llama.block_count", "missing"}},
		"zero layers":           {func(f *tinyFile) { f.set("llama.block_count", uint32(0)) }, []string{"llama.block_count = 0", "from 1 to"}},
		"2^63 layers":           {func(f *tinyFile) { f.set("llama.block_count", uint64(1)<<63) }, []string{"llama.block_count"}},
		"layers as text":        {func(f *tinyFile) { f.set("llama.block_count", "two") }, []string{"llama.block_count = two", "whole number"}},
		"zero heads":            {func(f *tinyFile) { f.set("llama.attention.head_count", uint32(0)) }, []string{"attention.head_count = 0"}},
		"heads not divisible":   {func(f *tinyFile) { f.set("llama.attention.head_count_kv", uint32(3)) }, []string{"attention.head_count = 4", "3 key-value heads"}},
		"more kv heads":         {func(f *tinyFile) { f.set("llama.attention.head_count_kv", uint32(8)) }, []string{"head_count_kv = 8", "1 to 4"}},
		"heads vary":            {func(f *tinyFile) { f.set("llama.attention.head_count_kv", []int32{2, 1}) }, []string{"head_count_kv", "varies"}},
		"odd head":              {func(f *tinyFile) { f.set("llama.attention.key_length", uint32(63)) }, []string{"key_length = 63", "even"}},
		"other value length":    {func(f *tinyFile) { f.set("llama.attention.value_length", uint32(32)) }, []string{"value_length", "64"}},
		"huge width":            {func(f *tinyFile) { f.set("llama.embedding_length", uint64(1)<<40) }, []string{"embedding_length = 1099511627776"}},
		"eps of NaN":            {func(f *tinyFile) { f.set("llama.attention.layer_norm_rms_epsilon", nan) }, []string{"rms_epsilon = NaN"}},
		"theta of 0":            {func(f *tinyFile) { f.set("llama.rope.freq_base", float32(0)) }, []string{"rope.freq_base = 0"}},
		"rope factor of 0":      {func(f *tinyFile) { f.set("llama.rope.scaling.factor", float32(0)) }, []string{"rope.scaling.factor = 0"}},
		"yarn without":          {func(f *tinyFile) { f.set("llama.rope.scaling.type", "yarn") }, []string{"rope.scaling.factor", "missing"}},
		"unknown rope":          {func(f *tinyFile) { f.set("llama.rope.scaling.type", "ntk") }, []string{"rope.scaling.type", "ntk", "yarn"}},
		"long rope":             {func(f *tinyFile) { f.set("llama.rope.dimension_count", uint32(128)) }, []string{"rope.dimension_count = 128", "64"}},
		"window as text":        {func(f *tinyFile) { f.set("llama.attention.sliding_window", "all") }, []string{"sliding_window = all"}},
		"eos outside":           {func(f *tinyFile) { f.set("tokenizer.ggml.eos_token_id", uint32(5000)) }, []string{"eos_token_id", "5000"}},
		"bos outside":           {func(f *tinyFile) { f.set("tokenizer.ggml.bos_token_id", uint32(321)) }, []string{"bos_token_id", "321"}},
		"eot outside":           {func(f *tinyFile) { f.set("tokenizer.ggml.eot_token_id", uint32(321)) }, []string{"eot_token_id", "321"}},
		"more tokens than rows": {func(f *tinyFile) { f.set("tokenizer.ggml.tokens", make([]string, 400)) }, []string{"token", "400", "323"}},
		"no embedding":          {func(f *tinyFile) { f.drop("token_embd.weight") }, []string{"token_embd.weight", "missing", "rows of 256, at least 321"}},
		"no norm":               {func(f *tinyFile) { f.drop("blk.1.ffn_norm.weight") }, []string{"blk.1.ffn_norm.weight", "missing"}},
		"no matrix":             {func(f *tinyFile) { f.drop("blk.0.ffn_down.weight") }, []string{"blk.0.ffn_down.weight", "missing", "256"}},
		"one layer too few":     {func(f *tinyFile) { f.set("llama.block_count", uint32(3)) }, []string{"blk.2.attn_norm.weight", "missing"}},
		"unknown tensor": {func(f *tinyFile) {
			f.tensors = append(f.tensors, tinyTensor{"blk.0.attn_sinks.weight", gguf.TypeF32, []int{4}, floats(1, 2, 3, 4)})
		}, []string{"blk.0.attn_sinks.weight", "no such tensor"}},
		"matrix of another shape": {func(f *tinyFile) {
			*f.tensor("blk.0.attn_k.weight") = tinyTensor{"blk.0.attn_k.weight", gguf.TypeF16, []int{256, 64}, make([]byte, 2*256*64)}
		}, []string{"blk.0.attn_k.weight", "[256 64]", "128 rows of 256"}},
		"norm of another shape": {func(f *tinyFile) {
			*f.tensor("output_norm.weight") = tinyTensor{"output_norm.weight", gguf.TypeF32, []int{64}, make([]byte, 4*64)}
		}, []string{"output_norm.weight", "[64]", "1 rows of 256"}},
		"scale of NaN": {func(f *tinyFile) {
			x := f.tensor("blk.1.ffn_up.weight")
			x.typ = gguf.TypeQ4_0
			x.data = encode(gguf.TypeQ4_0, make([]float32, tinyFF*tinyDim))
			copy(x.data[100*tinyDim/32*18:], []byte{0x00, 0x7e})
		}, []string{"blk.1.ffn_up.weight", "row 100", "finite"}},
		"norm of infinity": {func(f *tinyFile) {
			f.tensor("blk.0.attn_norm.weight").data = floats(append(make([]float32, 255), float32(math.Inf(1)))...)
		}, []string{"blk.0.attn_norm.weight", "NaN or infinite"}},
		"rope divisor of 0": {func(f *tinyFile) {
			f.tensors = append(f.tensors, tinyTensor{"rope_freqs.weight", gguf.TypeF32, []int{32}, make([]byte, 128)})
		}, []string{"rope_freqs.weight", "divisor above 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := tinyGGUF("llama", gguf.TypeQ8_0)
			c.edit(f)
			path := f.write(t)
			_, err := Load(path, Options{})
			require.Error(t, err)
			for _, part := range append(c.want, path) {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

// TestPadding loads vocabularies that are shorter than the embedding, and files without optional parts.
func TestPadding(t *testing.T) {
	f := tinyGGUF("llama")
	f.drop("output.weight") // tied
	f.set("llama.rope.scaling.type", "linear")
	f.set("llama.rope.scaling.factor", float32(4))
	f.set("tokenizer.ggml.eot_token_id", uint32(7))
	m := loadModel(t, f.write(t), Options{MaxBatch: 8})
	c := m.Config()
	require.Equal(t, tinyVocab, c.Vocab)
	require.Equal(t, tinyVocab-2, c.Tokens)
	require.Equal(t, []int32{2, 7}, c.EOS)
	require.NoError(t, c.CheckTokens(tinyVocab))
	require.ErrorContains(t, c.CheckTokens(tinyVocab+1), "324 tokens")
	logits := feed(t, m, newSeq(t, m, 4), []int32{tinyVocab - 1})
	require.Len(t, logits[0], tinyVocab)
}

// TestMalformedConfig changes one field of a good config.json.
func TestMalformedConfig(t *testing.T) {
	dir := filepath.Join(golden.Dir(t, "archs"), "llama3-rope")
	for name, c := range map[string]struct {
		key   string
		value any // nil removes it
		want  []string
	}{
		"unknown type":      {"model_type", "bert", []string{"model_type", "bert", "mistral"}},
		"no type":           {"model_type", nil, []string{"model_type", "missing"}},
		"no width":          {"hidden_size", nil, []string{"hidden_size", "missing"}},
		"negative layers":   {"num_hidden_layers", -1, []string{"num_hidden_layers = -1", "1 to"}},
		"half a layer":      {"num_hidden_layers", 1.5, []string{"num_hidden_layers = 1.5"}},
		"heads as list":     {"num_attention_heads", []int{4, 8}, []string{"num_attention_heads", "varies"}},
		"another gate":      {"hidden_act", "relu", []string{"hidden_act", "relu", "silu"}},
		"theta as text":     {"rope_theta", "big", []string{"rope_theta = big"}},
		"rope without kind": {"rope_scaling", map[string]any{"rope_type": "dynamic", "factor": 2}, []string{"rope_type", "dynamic", "llama3"}},
		"llama3 by half": {"rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1},
			[]string{"high_freq_factor = 1", "low_freq_factor, 4"}},
		"llama3 without":    {"rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8}, []string{"low_freq_factor", "missing"}},
		"bias as number":    {"attention_bias", 1, []string{"attention_bias = 1", "true or false"}},
		"bias but no bias":  {"mlp_bias", true, []string{"mlp.gate_proj.bias", "missing"}},
		"untied without":    {"tie_word_embeddings", false, []string{"lm_head.weight", "missing"}},
		"vocabulary larger": {"vocab_size", 600, []string{"vocab_size", "600", "512"}},
		"end outside":       {"eos_token_id", []int{2, 512}, []string{"eos_token_id", "512"}},
		"scaling as text":   {"rope_scaling", "yarn", []string{"rope_scaling = yarn", "object"}},
		"yarn without":      {"rope_scaling", map[string]any{"rope_type": "yarn"}, []string{"rope_scaling.factor", "missing"}},
		"quantised":         {"quantization_config", map[string]any{"quant_method": "gptq"}, []string{"quantization_config", "gptq", "GGUF"}},
		"quantised somehow": {"quantization_config", map[string]any{}, []string{"quantization_config", "not supported"}},
		"quantised as text": {"quantization_config", "awq", []string{"quantization_config = awq", "object"}},
		"yarn around 1":     {"rope_parameters", map[string]any{"rope_type": "yarn", "factor": 2, "rope_theta": 1}, []string{"rope_parameters.rope_theta = 1", "more than 1"}},
		"both ways":         {"use_bidirectional_attention", true, []string{"use_bidirectional_attention = true", "earlier tokens"}},
		"unknown layers":    {"layer_types", []string{"linear_attention", "full_attention"}, []string{"layer_types[0]", "linear_attention"}},
		"layers missing":    {"layer_types", []string{"full_attention"}, []string{"layer_types", "2 strings"}},
		"another shape":     {"intermediate_size", 96, []string{"model.safetensors: tensor", "mlp.gate_proj.weight", "[128 64]", "96 rows of 64"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, dir)
			editConfig(t, dir, func(config map[string]any) {
				if config[c.key] = c.value; c.value == nil {
					delete(config, c.key)
				}
			})
			_, err := Load(dir, Options{})
			require.Error(t, err)
			for _, part := range append(c.want, dir) {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func editConfig(t *testing.T, dir string, edit func(config map[string]any)) {
	t.Helper()
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, json.Unmarshal(data, &config))
	edit(config)
	data, err = json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

func TestNamesOfHuggingFace(t *testing.T) {
	for name, want := range map[string]string{
		"blk.12.attn_q.weight": "model.layers.12.self_attn.q_proj.weight",
		"blk.0.ffn_down.bias":  "model.layers.0.mlp.down_proj.bias",
		"output.weight":        "lm_head.weight",
		"rope_freqs.weight":    "rope_freqs.weight",
	} {
		require.Equal(t, want, decoderNames.hf(name))
	}
	require.True(t, strings.HasPrefix(gemmaNames.hf("blk.3.ffn_norm.weight"), "model.layers.3.pre_feed"))
	layer, ok := layerOf("model.layers.17.mlp.x")
	require.True(t, ok)
	require.Equal(t, 17, layer)
}

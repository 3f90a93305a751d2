package model

import (
	"fmt"
	"slices"

	"quickdraft/tensor"
)

// Config is what a checkpoint says about itself, checked.
type Config struct {
	Arch string // GGUF name of the architecture, "llama"
	Name string // what the file calls the model; may be empty
	File string // for messages

	Layers     int
	Dim        int // width of the residual stream
	Heads      int
	KVHeads    int
	HeadDim    int
	FF         int // width of the feed-forward layers
	Vocab      int // rows of the embedding and of a logits row; may exceed Tokens (padding)
	Tokens     int // tokens in the vocabulary, 0 when the file does not say
	ContextLen int // positions the model was made for

	BOS int32   // -1 when the file names none
	EOS []int32 // ids that end a text or a turn

	NormEps      float32
	Activation   string // of the feed-forward layers, as config.json calls it
	AttnScale    float32
	AttnSoftcap  float32 // 0: none
	LogitSoftcap float32 // 0: none

	Experts, ExpertsUsed int // of a mixture: experts in a layer, and of these the ones that a token uses; 0: dense
	ExpertFF, SharedFF   int // widths of an expert, and of the expert that every token uses

	NormTopK    bool   // the weights of a token's experts are made to add up to 1
	DenseLayers []bool // per layer: no mixture; nil where none or all are

	EncoderLayers int   // of an encoder-decoder; 0: there is only a decoder
	DecoderStart  int32 // token that a decoder's text begins with
	RelBuckets    int   // of T5's position bias
	RelDistance   int   // from which on distances count as one
	ScaledLogits  bool  // T5: logits are multiplied by Dim^-0.5
	Gated         bool  // T5: the feed-forward has a GELU gate instead of a ReLU

	EmbedScale, ResidualScale, LogitScale float32 // Granite's factors
	NoRope                                []bool  // per layer: no rope; nil where all layers have one
	Windows                               []int   // per layer: a token sees itself and the window-1 before it; 0 is everything
	Rope                                  Rope    // of layers that see everything
	LocalRope                             Rope    // of sliding-window layers, where the architecture makes a difference
	TiedOutput                            bool    // config.json says that the output matrix is the embedding
	AttnBias                              bool    // config.json says that q, k, v and o have biases
	MLPBias                               bool    // config.json says that gate, up and down have biases
}

const (
	maxLayers  = 1024
	maxDim     = 1 << 18
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 12
	maxVocab   = 1 << 24
	maxContext = 1 << 28
)

// readConfig reads what architectures have in common, then what is the architecture's own, and checks it.
func readConfig(name string, arch architecture, f *fields) (*Config, error) {
	c := &Config{Arch: name, File: f.file}
	c.Name = f.text(".general.name", "_name_or_path", "")
	c.Layers = f.needInteger("block_count", "num_hidden_layers|num_layers", 1, maxLayers)
	c.Dim = f.needInteger("embedding_length", "hidden_size|d_model", 1, maxDim)
	c.Heads = f.needInteger("attention.head_count", "num_attention_heads|num_heads", 1, maxHeads)
	c.KVHeads = f.integer("attention.head_count_kv", "num_key_value_heads", c.Heads, 1, c.Heads)
	c.HeadDim = f.integer("attention.key_length", "head_dim|d_kv", c.Dim/c.Heads, 2, maxHeadDim)
	c.FF = f.needInteger("feed_forward_length", "intermediate_size|d_ff", 1, maxDim)
	if c.ContextLen = f.integer("context_length", "max_position_embeddings|n_positions", arch.contextLen, 1, maxContext); c.ContextLen == 0 {
		f.needInteger("context_length", "max_position_embeddings", 1, maxContext) // reports it as missing
	}
	c.NormEps = float32(f.needNumber("attention.layer_norm_rms_epsilon", "rms_norm_eps|layer_norm_epsilon", 0, 1))
	c.AttnScale = rsqrt(c.HeadDim)
	c.Windows = make([]int, c.Layers)
	c.TiedOutput = f.flag("", "tie_word_embeddings", false)
	c.Activation = f.text("", "hidden_act|hidden_activation", arch.activation)
	c.Rope = readRope(f, c)
	if f.flag("", "use_bidirectional_attention", false) {
		f.fail("%s = true: only attention to earlier tokens is supported", f.label("", "use_bidirectional_attention"))
	}
	slidingLayers(f, c.Layers) // for its errors: not every architecture asks, and none leaves an unknown kind of layer out
	readVocab(f, c)
	if arch.configure != nil && f.err == nil {
		arch.configure(f, c)
	}
	if name, ok := otherNames[c.Activation]; ok {
		c.Activation = name
	}
	if f.err == nil {
		c.validate(arch, f)
	}
	return c, f.err
}

// otherNames are further names of activations.
var otherNames = map[string]string{"swish": "silu", "gelu_new": "gelu_pytorch_tanh"}

// readVocab reads the size of the vocabulary and the special ids. Ids of -1 in config.json mean none.
func readVocab(f *fields, c *Config) {
	if c.Tokens = f.tokens; !f.isGGUF {
		c.Tokens = f.needInteger("", "vocab_size", 1, maxVocab)
	}
	c.BOS = -1
	if ids := f.integers(".tokenizer.ggml.bos_token_id", "bos_token_id", -1, maxVocab); len(ids) > 0 {
		c.BOS = int32(ids[0])
	}
	for _, key := range []string{".tokenizer.ggml.eos_token_id", ".tokenizer.ggml.eot_token_id", ".tokenizer.ggml.eom_token_id"} {
		hf := ""
		if len(c.EOS) == 0 {
			hf = "eos_token_id"
		}
		for _, id := range f.integers(key, hf, -1, maxVocab) {
			if id >= 0 && !slices.Contains(c.EOS, int32(id)) {
				c.EOS = append(c.EOS, int32(id))
			}
			if c.Tokens > 0 && id >= c.Tokens {
				f.fail("%s = %d: outside the vocabulary of %d tokens", f.label(key, hf), id, c.Tokens)
			}
		}
	}
	for _, id := range f.ends {
		if id >= 0 && id < int64(c.Tokens) && !slices.Contains(c.EOS, int32(id)) {
			c.EOS = append(c.EOS, int32(id))
		}
	}
	if c.Tokens > 0 && int(c.BOS) >= c.Tokens {
		f.fail("%s = %d: outside the vocabulary of %d tokens", f.label(".tokenizer.ggml.bos_token_id", "bos_token_id"), c.BOS, c.Tokens)
	}
}

// validate checks what no single field shows.
func (c *Config) validate(arch architecture, f *fields) {
	heads := f.label("attention.head_count", "num_attention_heads")
	switch {
	case c.Heads%c.KVHeads != 0:
		f.fail("%s = %d: not a multiple of the %d key-value heads (%s)", heads, c.Heads, c.KVHeads,
			f.label("attention.head_count_kv", "num_key_value_heads"))
	case !f.has("attention.key_length", "head_dim|d_kv") && c.Dim%c.Heads != 0:
		f.fail("%s = %d: does not divide the width %d (%s)", heads, c.Heads, c.Dim, f.label("embedding_length", "hidden_size"))
	case c.HeadDim%2 != 0:
		f.fail("%s = %d: want an even number", f.label("attention.key_length", "head_dim"), c.HeadDim)
	case c.Heads*c.HeadDim > maxDim:
		f.fail("%s = %d: %d values with heads of %d, want at most %d", heads, c.Heads, c.Heads*c.HeadDim, c.HeadDim, maxDim)
	case c.Activation != arch.activation:
		f.fail("%s = %q: %s computes %q", f.label("", "hidden_act|hidden_activation"), c.Activation, c.Arch, arch.activation)
	case f.isGGUF && f.integer("attention.value_length", "", c.HeadDim, 1, maxHeadDim) != c.HeadDim:
		f.fail("%s: differs from attention.key_length %d, which is not supported", f.label("attention.value_length", ""), c.HeadDim)
	}
	for _, r := range []*Rope{&c.Rope, &c.LocalRope} {
		if r.Dim > c.HeadDim || r.Dim%2 != 0 {
			f.fail("%s = %d: want an even number up to the head's %d", f.label("rope.dimension_count", "partial_rotary_factor"), r.Dim, c.HeadDim)
		}
	}
}

// CheckTokens says whether a tokenizer of n tokens fits the model: more embedding rows than tokens is padding, fewer is
// an error.
func (c *Config) CheckTokens(n int) error {
	if n > c.Vocab {
		return fmt.Errorf("%s: the tokenizer has %d tokens and the embedding only %d rows", c.File, n, c.Vocab)
	}
	return nil
}

// slidingLayers reads which layers have a sliding window from config.json's layer_types; layers it does not list as
// "sliding_attention" see everything. It returns nil when the field is absent.
func slidingLayers(f *fields, layers int) []bool {
	types := f.texts("", "layer_types", layers)
	if types == nil {
		return nil
	}
	sliding := make([]bool, layers)
	for i, t := range types {
		switch t {
		case "sliding_attention":
			sliding[i] = true
		case "full_attention":
		default:
			f.fail("%s: layer_types[%d] = %q: want \"full_attention\" or \"sliding_attention\"", f.file, i, t)
		}
	}
	return sliding
}

// slidingPattern says which layers have a sliding window: those listed, or all but every n-th, n being the file's own or
// the given one. GGUF has either under one key.
func slidingPattern(f *fields, layers, every int) func(layer int) bool {
	if sliding := slidingLayers(f, layers); sliding != nil {
		return func(layer int) bool { return sliding[layer] }
	}
	list := f.integers("attention.sliding_window_pattern", "sliding_window_pattern|_sliding_window_pattern", 0, maxLayers)
	switch {
	case len(list) > 1 && len(list) == layers:
		return func(layer int) bool { return list[layer] != 0 }
	case len(list) == 1 && list[0] > 0:
		every = list[0]
	case list != nil:
		f.fail("%s = %v: want a number above 0 or one entry for each of the %d layers",
			f.label("attention.sliding_window_pattern", "sliding_window_pattern"), list, layers)
	}
	return func(layer int) bool { return (layer+1)%every != 0 }
}

// setWindows gives the layers for which sliding says so a window.
func (c *Config) setWindows(window int, sliding func(layer int) bool) {
	for i := range c.Windows {
		if sliding(i) {
			c.Windows[i] = window
		}
	}
}

// attention is what Attend needs to know about a layer.
func (c *Config) attention(layer int) tensor.AttnParams {
	return tensor.AttnParams{
		Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Scale: c.AttnScale, Softcap: c.AttnSoftcap, Window: c.Windows[layer],
	}
}

package model

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
	"quickdraft/quant"
)

// TestGGUFEqualsSafetensors converts folders of the golden set to GGUF, as the usual converters do (q and k rows permuted
// for a rope over pairs, Gemma's norms plus one), and compares logits.
func TestGGUFEqualsSafetensors(t *testing.T) {
	root := golden.Dir(t, "archs")
	for _, name := range archNames(t, root, "causal") {
		if name == "smollm3" {
			continue // GGUF cannot say which layers have no rope: always every fourth has none
		}
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, name)
			want := loadModel(t, dir, Options{F32: true, MaxBatch: 64})
			got := loadModel(t, convert(t, dir, gguf.TypeF32), Options{F32: true, MaxBatch: 64})
			ids := make([]int32, 40)
			for i := range ids {
				ids[i] = int32(i * 37 % want.Config().Vocab)
			}
			a, b := feed(t, want, newSeq(t, want, 40), ids), feed(t, got, newSeq(t, got, 40), ids)
			for i := range a {
				require.InDelta(t, 0, maxDiff(a[i], b[i]), 2e-5, "position %d", i)
			}
			require.Equal(t, want.WeightBytes(), got.WeightBytes())
			c, d := want.Config(), got.Config()
			require.Equal(t, c.Windows, d.Windows)
			require.Equal(t, c.EOS, d.EOS)
			require.Equal(t, c.Arch, d.Arch)
		})
	}
}

// convert writes the folder of a small model as GGUF with matrices of a type, routers in float32.
func convert(t *testing.T, dir string, typ gguf.Type) string {
	t.Helper()
	ckpt, err := safetensors.OpenDir(dir)
	require.NoError(t, err)
	defer ckpt.Close()
	f := configFields(ckpt)
	name := f.text("", "model_type", "")
	var archName string
	for key, a := range architectures {
		for _, modelType := range a.modelTypes {
			if modelType == name {
				archName = key
			}
		}
	}
	arch := architectures[archName]
	c, err := readConfig(archName, arch, f)
	require.NoError(t, err)
	w := gguf.NewWriter()
	convertConfig(w, archName, c)
	src := &safetensorsWeights{ckpt: ckpt, hf: arch.names}
	for _, name := range ggufNames(c, src) {
		x, _ := src.find(name)
		v := decoded(x)
		if arch.normPlus1 && strings.Contains(name, "norm") {
			for i := range v {
				v[i]++
			}
		}
		if arch.pairedRope && (strings.Contains(name, "attn_q.") || strings.Contains(name, "attn_k.")) {
			cols := x.cols
			if x.rows == 1 {
				cols = 1 // a bias
			}
			v = permute(v, c.HeadDim, cols)
		}
		if x.rows == 1 {
			w.AddTensor(name, gguf.TypeF32, []int{x.cols}, floats(v...))
		} else if strings.Contains(name, "ffn_gate_inp") {
			w.AddTensor(name, gguf.TypeF32, []int{x.cols, x.rows}, floats(v...))
		} else {
			as := fitting(typ, x.cols)
			w.AddTensor(name, as, []int{x.cols, x.rows}, encode(as, v))
		}
	}
	for i := range c.Layers {
		for _, stem := range []string{"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"} {
			addExperts(w, src, fmt.Sprintf("blk.%d.%s", i, stem), c.Experts, typ)
		}
	}
	for name, v := range map[string][]float32{
		"rope_freqs": llama3Divisors(&c.Rope), "rope_factors_short": c.Rope.Short, "rope_factors_long": c.Rope.Long,
	} {
		if v != nil {
			w.AddTensor(name+".weight", gguf.TypeF32, []int{len(v)}, floats(v...))
		}
	}
	path := filepath.Join(t.TempDir(), "converted.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

// fitting is the type, or float32 where a row does not fill its blocks.
func fitting(typ gguf.Type, cols int) gguf.Type {
	if cols%typ.BlockSize() != 0 {
		return gguf.TypeF32
	}
	return typ
}

func decoded(x rawTensor) []float32 {
	v := make([]float32, x.rows*x.cols)
	format, _ := quant.Get(x.typ)
	format.Decode(v, x.data)
	return v
}

// addExperts joins the matrices of a layer's experts in one tensor.
func addExperts(w *gguf.Writer, src weights, stem string, n int, typ gguf.Type) {
	var all []float32
	var dims []int
	for e := range n {
		x, ok := src.find(fmt.Sprintf("%s.%d.weight", stem, e))
		if !ok {
			return
		}
		all = append(all, decoded(x)...)
		dims = []int{x.cols, x.rows, n}
	}
	if all != nil {
		typ = fitting(typ, dims[0])
		w.AddTensor(stem+".weight", typ, dims, encode(typ, all))
	}
}

// permute puts the halves of each head side by side: row (half, i) of a head goes to (i, half). v is (heads*headDim, cols).
func permute(v []float32, headDim, cols int) []float32 {
	out := make([]float32, len(v))
	for row := range len(v) / cols {
		head, i := row/headDim, row%headDim
		to := head*headDim + 2*(i%(headDim/2)) + i/(headDim/2)
		copy(out[to*cols:(to+1)*cols], v[row*cols:])
	}
	return out
}

func ggufNames(c *Config, src weights) (names []string) {
	all := []string{"token_embd.weight", "output_norm.weight", "output.weight"}
	for i := range c.Layers {
		for _, stem := range []string{"attn_norm", "attn_qkv", "ffn_gate_inp", "ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_up_shexp",
			"ffn_down_shexp", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm",
			"post_attention_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "post_ffw_norm"} {
			all = append(all, fmt.Sprintf("blk.%d.%s.weight", i, stem), fmt.Sprintf("blk.%d.%s.bias", i, stem))
		}
	}
	seen := map[string]bool{}
	for _, name := range all {
		if x, ok := src.find(name); ok && !seen[x.name] {
			seen[x.name] = true // the first name of two for one tensor
			names = append(names, name)
		}
	}
	return names
}

func convertConfig(w *gguf.Writer, key string, c *Config) {
	arch := key
	if name := architectures[key].ggufName; name != "" {
		arch = name
	}
	w.Set("general.architecture", arch)
	w.Set("tokenizer.ggml.tokens", make([]string, c.Tokens))
	if c.BOS >= 0 {
		w.Set("tokenizer.ggml.bos_token_id", uint32(c.BOS))
	}
	w.Set("tokenizer.ggml.eos_token_id", uint32(c.EOS[0]))
	for key, n := range map[string]int{
		"block_count": c.Layers, "context_length": c.ContextLen, "embedding_length": c.Dim, "feed_forward_length": c.FF,
		"attention.head_count": c.Heads, "attention.head_count_kv": c.KVHeads, "attention.key_length": c.HeadDim,
		"attention.value_length": c.HeadDim, "rope.dimension_count": c.Rope.Dim, "expert_count": c.Experts,
		"expert_used_count": c.ExpertsUsed, "expert_feed_forward_length": c.ExpertFF,
		"expert_shared_feed_forward_length": c.SharedFF, "attention.sliding_window": slices.Max(c.Windows),
	} {
		if n > 0 {
			w.Set(arch+"."+key, uint32(n))
		}
	}
	w.Set(arch+".attention.layer_norm_rms_epsilon", c.NormEps)
	w.Set(arch+".rope.freq_base", float32(c.Rope.Theta))
	w.Set(arch+".attention.scale", c.AttnScale)
	switch arch {
	case "gemma3":
		sliding := make([]bool, c.Layers)
		for i, window := range c.Windows {
			sliding[i] = window > 0
		}
		w.Set("gemma3.attention.sliding_window_pattern", sliding)
		w.Set("gemma3.rope.freq_base_swa", float32(c.LocalRope.Theta))
	case "gemma2":
		w.Set("gemma2.attn_logit_softcapping", c.AttnSoftcap)
		w.Set("gemma2.final_logit_softcapping", c.LogitSoftcap)
	case "granite":
		w.Set("granite.embedding_scale", c.EmbedScale)
		w.Set("granite.residual_scale", c.ResidualScale)
		w.Set("granite.logit_scale", 1/c.LogitScale)
	}
	switch c.Rope.Kind {
	case "yarn":
		w.Set(arch+".rope.scaling.original_context_length", uint32(c.Rope.OrigLen))
		w.Set(arch+".rope.scaling.type", "yarn")
		w.Set(arch+".rope.scaling.factor", float32(c.Rope.Factor))
	case "linear":
		w.Set(arch+".rope.scaling.type", "linear")
		w.Set(arch+".rope.scaling.factor", float32(c.Rope.Factor))
	case "longrope":
		w.Set(arch+".rope.scaling.original_context_length", uint32(c.Rope.OrigLen))
		w.Set(arch+".rope.scaling.attn_factor", float32(c.Rope.AttnFactor))
	}
}

// llama3Divisors is what converters write to rope_freqs.weight.
func llama3Divisors(r *Rope) []float32 {
	if r.Kind != "llama3" {
		return nil
	}
	out := make([]float32, r.Dim/2)
	for i := range out {
		wave := 2 * math.Pi * math.Pow(r.Theta, float64(2*i)/float64(r.Dim))
		switch orig := float64(r.OrigLen); {
		case wave < orig/r.HighFreq:
			out[i] = 1
		case wave > orig/r.LowFreq:
			out[i] = float32(r.Factor)
		default:
			smooth := (orig/wave - r.LowFreq) / (r.HighFreq - r.LowFreq)
			out[i] = float32(1 / ((1-smooth)/r.Factor + smooth))
		}
	}
	return out
}

// TestLlama3Rope compares the angles of Llama 3.2's rope at long positions with float64, from metadata and from the tensor.
func TestLlama3Rope(t *testing.T) {
	r := Rope{Kind: "llama3", Dim: 64, Theta: 500000, Factor: 32, OrigLen: 8192, LowFreq: 1, HighFreq: 4}
	meta := r.table()
	fromTensor := r
	fromTensor.Divisors, fromTensor.Kind = llama3Divisors(&r), "linear" // the tensor wins
	tensor := fromTensor.table()
	for i, d := range llama3Divisors(&r) {
		exact := math.Pow(r.Theta, -float64(2*i)/64) / float64(d)
		require.InEpsilon(t, exact, meta.InvFreq[i], 4e-7, "frequency %d", i)
		require.InEpsilon(t, exact, tensor.InvFreq[i], 4e-7, "frequency %d", i)
		for _, pos := range []float64{10, 2000, 6000, 20000} {
			// float32 frequencies and products, as everywhere: an angle of 20,000 is off by 1e-2 at most
			require.InDelta(t, pos*exact, float64(float32(pos)*meta.InvFreq[i]), 1e-6*pos*exact+1e-9)
		}
	}
}

// TestRopeSpellings reads the same rope from all ways in which files write it.
func TestRopeSpellings(t *testing.T) {
	dir := filepath.Join(golden.Dir(t, "archs"), "llama3-rope")
	scaling := map[string]any{"factor": 4, "original_max_position_embeddings": 16, "beta_fast": 24, "attention_factor": 1.5}
	with := func(key, value string, more ...any) map[string]any {
		all := map[string]any{key: value}
		for k, v := range scaling {
			all[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i].(string)] = more[i+1]
		}
		return all
	}
	want := Rope{Kind: "yarn", Dim: 16, Theta: 10000, Factor: 4, OrigLen: 16, BetaFast: 24, BetaSlow: 1, AttnFactor: 1.5}
	for name, edit := range map[string]func(c map[string]any){
		"rope_type": func(c map[string]any) { c["rope_scaling"] = with("rope_type", "yarn") },
		"type":      func(c map[string]any) { c["rope_scaling"] = with("type", "yarn") },
		"rope_parameters": func(c map[string]any) {
			c["rope_parameters"] = with("rope_type", "yarn", "rope_theta", 10000)
			delete(c, "rope_theta")
			delete(c, "rope_scaling")
		},
	} {
		dir := copyDir(t, dir)
		editConfig(t, dir, edit)
		require.Equal(t, want, loadModel(t, dir, Options{MaxBatch: 1}).config.Rope, name)
	}
}

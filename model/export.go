package model

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
	"quickdraft/quant"
)

// Export is a safetensors folder under GGUF's keys and tensor names, with the values that GGUF files hold: rows permuted
// where that file's rope turns neighbours, norms as factors, experts in one tensor. The tokenizer is the caller's to add.
type Export struct {
	Config  Config
	Meta    []ExportKey
	Tensors []ExportTensor
}

// ExportKey is one key with its value.
type ExportKey struct {
	Key   string
	Value any
}

// ExportTensor is one tensor.
type ExportTensor struct {
	Name    string
	Sources []string // what the folder calls it; one name for each expert
	Dims    []int    // innermost first
	Type    gguf.Type
	// Rows returns rows [from, from+n) as Type stores them: a part of the file, or a copy in buf, which grows as needed.
	Rows func(buf *[]byte, from, n int) []byte
	// Release says that the rows are not needed soon.
	Release func()
}

// NewExport translates an open checkpoint, which must stay open as long as tensors are read. It refuses what GGUF or this
// translation cannot say.
func NewExport(c *safetensors.Checkpoint) (*Export, error) {
	f := configFields(c)
	key, arch, err := findModelType(f)
	if err != nil {
		return nil, err
	}
	cfg, err := readConfig(key, arch, f)
	if err != nil {
		return nil, err
	}
	src := &safetensorsWeights{ckpt: c, hf: arch.names}
	if embed, ok := src.find("token_embd.weight"); ok {
		cfg.Vocab = embed.rows
	}
	x := &exporter{arch: arch, cfg: cfg, src: src, used: map[string]bool{}}
	list := x.tensors
	if key == "t5" {
		list = x.t5Tensors
	}
	if err := list(); err != nil {
		return nil, err
	}
	x.metadata(key)
	if err := x.check(key); err != nil {
		return nil, err
	}
	return &Export{Config: *cfg, Meta: x.meta, Tensors: x.out}, nil
}

type exporter struct {
	arch architecture
	cfg  *Config
	src  *safetensorsWeights
	used map[string]bool // the folder's names
	meta []ExportKey
	out  []ExportTensor
}

// tensors lists the tensors: the embedding, layer after layer, the last norm and the output matrix.
func (x *exporter) tensors() error {
	stems := slices.SortedFunc(maps.Keys(x.arch.names), func(a, b string) int {
		// A tensor with two names has the architecture's own.
		if own, other := x.arch.names[a] != decoderNames[a], x.arch.names[b] != decoderNames[b]; own != other {
			return map[bool]int{true: -1, false: 1}[own]
		}
		return strings.Compare(a, b)
	})
	for _, stem := range stems {
		if !strings.HasPrefix(stem, "blk.") && !strings.HasPrefix(stem, "output") {
			x.add(stem)
		}
	}
	for i := range x.cfg.Layers {
		for _, stem := range stems {
			part, ok := strings.CutPrefix(stem, "blk.")
			if !ok {
				continue
			}
			name := fmt.Sprintf("blk.%d.%s", i, part)
			if strings.Count(x.arch.names[stem], "*") == 2 {
				x.addExperts(name)
			} else {
				x.add(name)
			}
		}
	}
	x.add("output_norm")
	if !x.cfg.TiedOutput {
		x.add("output")
	}
	for name, v := range map[string][]float32{
		"rope_freqs": x.cfg.Rope.llama3Divisors(), "rope_factors_short": x.cfg.Rope.Short, "rope_factors_long": x.cfg.Rope.Long,
	} {
		if v != nil {
			x.addVector(name+".weight", nil, v)
		}
	}
	return x.checkUsed()
}

// checkUsed refuses tensors of a layer that have no name in GGUF.
func (x *exporter) checkUsed() error {
next:
	for _, name := range x.src.names() {
		layer, inLayer := layerOf(name)
		if x.used[name] || !inLayer || layer >= x.cfg.Layers {
			continue
		}
		for _, suffix := range ignored {
			if strings.HasSuffix(name, suffix) {
				continue next
			}
		}
		return fmt.Errorf("%s: tensor %q: %s has no such tensor in GGUF", x.cfg.File, name, x.cfg.Arch)
	}
	return nil
}

// add adds a tensor and its bias, where the folder has them and under one of its names only.
func (x *exporter) add(stem string) { x.addAs(stem, stem) }

// addAs is add for a tensor that GGUF calls otherwise than the architecture's names do.
func (x *exporter) addAs(as, stem string) {
	for _, suffix := range []string{".weight", ".bias"} {
		t, ok := x.src.find(stem + suffix)
		if !ok || x.used[t.name] {
			continue
		}
		name := as + suffix
		x.used[t.name] = true
		if t.rows == 1 {
			x.addVector(name, []string{t.name}, x.vector(name, t))
			continue
		}
		x.out = append(x.out, ExportTensor{
			Name: name, Sources: []string{t.name}, Dims: []int{t.cols, t.rows}, Type: t.typ,
			Rows: x.rows(name, t), Release: func() { x.src.release(t) },
		})
	}
}

// paired reports whether a tensor's rows are permuted in GGUF.
func (x *exporter) paired(name string) bool {
	return x.arch.pairedRope && (strings.Contains(name, ".attn_q.") || strings.Contains(name, ".attn_k."))
}

// fileRow is the row of the folder's q or k that is the given one in GGUF: there neighbours turn, here halves do.
func (x *exporter) fileRow(row int) int {
	headDim, half := x.cfg.HeadDim, x.cfg.Rope.Dim/2
	head, i := row/headDim, row%headDim
	if i >= 2*half {
		return row
	}
	return head*headDim + i%2*half + i/2
}

// rows reads a matrix.
func (x *exporter) rows(name string, t rawTensor) func(buf *[]byte, from, n int) []byte {
	rowBytes := len(t.data) / t.rows
	if !x.paired(name) {
		return func(_ *[]byte, from, n int) []byte { return t.data[from*rowBytes : (from+n)*rowBytes] }
	}
	return func(buf *[]byte, from, n int) []byte {
		*buf = (*buf)[:0]
		for row := from; row < from+n; row++ {
			at := x.fileRow(row) * rowBytes
			*buf = append(*buf, t.data[at:at+rowBytes]...)
		}
		return *buf
	}
}

// vector decodes a norm or a bias.
func (x *exporter) vector(name string, t rawTensor) []float32 {
	v := make([]float32, t.cols)
	format, _ := quant.Get(t.typ)
	format.Decode(v, t.data)
	if x.arch.normPlus1 && strings.Contains(name, "norm") {
		for i := range v {
			v[i]++
		}
	}
	if !x.paired(name) {
		return v
	}
	out := make([]float32, len(v))
	for i := range out {
		out[i] = v[x.fileRow(i)]
	}
	return out
}

func (x *exporter) addVector(name string, sources []string, v []float32) {
	data := make([]byte, 4*len(v))
	format, _ := quant.Get(gguf.TypeF32)
	format.Encode(data, v)
	x.out = append(x.out, ExportTensor{
		Name: name, Sources: sources, Dims: []int{len(v)}, Type: gguf.TypeF32,
		Rows: func(*[]byte, int, int) []byte { return data }, Release: func() {},
	})
}

// addExperts joins the matrices of a layer's experts in one tensor, (cols, rows, experts), if the layer has some.
func (x *exporter) addExperts(stem string) {
	var parts []rawTensor
	var sources []string
	for e := range x.cfg.Experts {
		t, ok := x.src.find(fmt.Sprintf("%s.%d.weight", stem, e))
		if !ok || len(parts) > 0 && (t.rows != parts[0].rows || t.cols != parts[0].cols || t.typ != parts[0].typ) {
			return // checkUsed names it
		}
		parts, sources = append(parts, t), append(sources, t.name)
	}
	if len(parts) == 0 {
		return
	}
	for _, name := range sources {
		x.used[name] = true
	}
	rows, rowBytes := parts[0].rows, len(parts[0].data)/parts[0].rows
	x.out = append(x.out, ExportTensor{
		Name: stem + ".weight", Sources: sources, Dims: []int{parts[0].cols, rows, len(parts)}, Type: parts[0].typ,
		Rows: func(buf *[]byte, from, n int) []byte {
			*buf = (*buf)[:0]
			for row := from; row < from+n; row++ {
				at := row % rows * rowBytes
				*buf = append(*buf, parts[row/rows].data[at:at+rowBytes]...)
			}
			return *buf
		},
		Release: func() {
			for _, t := range parts {
				x.src.release(t)
			}
		},
	})
}

// set adds a key of the architecture, or with a dot in front a whole one.
func (x *exporter) set(name, key string, value any) {
	if whole, ok := strings.CutPrefix(key, "."); ok {
		key = whole
	} else {
		key = name + "." + key
	}
	x.meta = append(x.meta, ExportKey{key, value})
}

// metadata says what the configuration says, as far as GGUF has keys for it; check compares.
func (x *exporter) metadata(key string) {
	c, arch := x.cfg, key
	if name := x.arch.ggufName; name != "" {
		arch = name
	}
	set := func(key string, value any) { x.set(arch, key, value) }
	set(".general.architecture", arch)
	set(".general.type", "model")
	if c.Name != "" {
		set(".general.name", c.Name)
	}
	for _, f := range []struct {
		key   string
		value int
	}{
		{"block_count", c.Layers}, {"context_length", c.ContextLen}, {"embedding_length", c.Dim}, {"feed_forward_length", c.FF},
		{"attention.head_count", c.Heads}, {"attention.head_count_kv", c.KVHeads}, {"attention.key_length", c.HeadDim},
		{"attention.value_length", c.HeadDim}, {"rope.dimension_count", c.Rope.Dim}, {"vocab_size", c.Vocab},
		{"expert_count", c.Experts}, {"expert_used_count", c.ExpertsUsed}, {"expert_feed_forward_length", c.ExpertFF},
		{"expert_shared_feed_forward_length", c.SharedFF}, {"attention.sliding_window", slices.Max(c.Windows)},
	} {
		if f.value > 0 {
			set(f.key, uint32(f.value))
		}
	}
	set("attention.layer_norm_rms_epsilon", c.NormEps)
	x.ropeKeys(arch)
	x.ownKeys(arch)
	if c.BOS >= 0 {
		set(".tokenizer.ggml.bos_token_id", uint32(c.BOS))
	}
	for i, name := range []string{"eos", "eot", "eom"} {
		if i < len(c.EOS) {
			set(".tokenizer.ggml."+name+"_token_id", uint32(c.EOS[i]))
		}
	}
}

// ropeKeys adds the keys of ropes.
func (x *exporter) ropeKeys(arch string) {
	r := &x.cfg.Rope
	set := func(key string, value any) { x.set(arch, key, value) }
	set("rope.freq_base", float32(r.Theta))
	if local := x.cfg.LocalRope; local.Theta != 0 {
		set("rope.freq_base_swa", float32(local.Theta))
	}
	switch r.Kind {
	case "yarn":
		set("rope.scaling.type", "yarn")
		set("rope.scaling.factor", float32(r.Factor))
		set("rope.scaling.original_context_length", uint32(r.OrigLen))
		set("rope.scaling.yarn_beta_fast", float32(r.BetaFast))
		set("rope.scaling.yarn_beta_slow", float32(r.BetaSlow))
		if r.AttnFactor != 0 { // there it multiplies the rule's
			set("rope.scaling.attn_factor", float32(r.AttnFactor/yarnScale(r.Factor, 1)))
		}
	case "linear":
		set("rope.scaling.type", "linear")
		set("rope.scaling.factor", float32(r.Factor))
	case "longrope":
		set("rope.scaling.original_context_length", uint32(r.OrigLen))
		set("rope.scaling.attn_factor", float32(r.AttnFactor))
	}
}

// ownKeys adds what single architectures have.
func (x *exporter) ownKeys(arch string) {
	c := x.cfg
	set := func(key string, value any) { x.set(arch, key, value) }
	switch arch {
	case "gemma2", "gemma3":
		set("attention.scale", c.AttnScale)
		if c.AttnSoftcap > 0 {
			set("attn_logit_softcapping", c.AttnSoftcap)
		}
		if c.LogitSoftcap > 0 {
			set("final_logit_softcapping", c.LogitSoftcap)
		}
	case "granite":
		set("attention.scale", c.AttnScale)
		set("embedding_scale", c.EmbedScale)
		set("residual_scale", c.ResidualScale)
		set("logit_scale", 1/c.LogitScale)
	case "t5":
		x.t5Keys(arch)
	case "smollm3":
		if layers, usual := c.ropeLayers(); !usual {
			set("rope.layers", layers)
		}
	case "qwen2moe", "qwen3moe":
		set("expert_weights_norm", c.NormTopK)
	}
	if arch == "gemma3" {
		sliding := make([]bool, c.Layers)
		for i, window := range c.Windows {
			sliding[i] = window > 0
		}
		set("attention.sliding_window_pattern", sliding)
	}
}

// ropeLayers has a 1 for each layer with a rope; usual says that every fourth has none.
func (c *Config) ropeLayers() (layers []int32, usual bool) {
	usual = true
	for i, none := range c.NoRope {
		usual = usual && none == ((i+1)%4 == 0)
		layers = append(layers, map[bool]int32{false: 1}[none])
	}
	return layers, usual
}

// llama3Divisors is what GGUF files have instead of the parameters of Llama 3's rope; nil for other kinds.
func (r *Rope) llama3Divisors() []float32 {
	if r.Kind != "llama3" {
		return nil
	}
	plain, scaled := make([]float32, r.Dim/2), make([]float32, r.Dim/2)
	for i := range plain {
		plain[i] = 1 / r.power(i)
		scaled[i] = plain[i]
	}
	r.llama3(scaled)
	for i := range plain {
		plain[i] /= scaled[i]
	}
	return plain
}

// check reads the keys as a GGUF file's and compares what comes out with what the folder says.
func (x *exporter) check(key string) error {
	w := gguf.NewWriter()
	for _, m := range x.meta {
		w.Set(m.Key, m.Value)
	}
	w.Set("tokenizer.ggml.tokens", make([]string, x.cfg.Tokens))
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		return err
	}
	f, err := gguf.Parse(x.cfg.File, file.Bytes())
	if err != nil {
		return err
	}
	arch := x.arch.ggufName
	if arch == "" {
		arch = key
	}
	got, err := readConfig(key, x.arch, ggufFields(f, arch))
	if err != nil {
		return err
	}
	want := *x.cfg
	want.keepComparable()
	got.keepComparable()
	a, b := reflect.ValueOf(want), reflect.ValueOf(*got)
	for i := range a.NumField() {
		if p, q := a.Field(i).Interface(), b.Field(i).Interface(); !reflect.DeepEqual(p, q) {
			return fmt.Errorf("%s: %s with %s %v: GGUF cannot say so, it has %v", want.File, want.Arch, a.Type().Field(i).Name, p, q)
		}
	}
	return nil
}

// keepComparable drops or rounds what the two kinds of files say differently and mean alike.
func (c *Config) keepComparable() {
	c.Vocab, c.Name, c.TiedOutput, c.AttnBias, c.MLPBias, c.DenseLayers = 0, "", false, false, false, nil // tensors tell
	c.Gated, c.ScaledLogits = false, false                                                                // these too
	c.EOS = c.EOS[:min(len(c.EOS), 3)]
	c.AttnScale, c.LogitScale = roundTo(c.AttnScale), roundTo(c.LogitScale)
	for _, r := range []*Rope{&c.Rope, &c.LocalRope} {
		if r.Kind == "llama3" || r.Kind == "longrope" || r.Kind == "default" { // rope_freqs and rope_factors tell
			*r = Rope{Kind: "default", Dim: r.Dim, Theta: r.Theta}
		}
		for _, v := range []*float64{&r.Theta, &r.Factor, &r.BetaFast, &r.BetaSlow, &r.AttnFactor} {
			*v = float64(roundTo(float32(*v)))
		}
		if r.Kind == "linear" {
			r.OrigLen = 0
		}
	}
}

// roundTo keeps 18 of 24 bits.
func roundTo(x float32) float32 {
	return math.Float32frombits((math.Float32bits(x) + 1<<5) &^ (1<<6 - 1))
}

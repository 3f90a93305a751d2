package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("qwen2moe", architecture{
		modelTypes: []string{"qwen2_moe"},
		names:      qwenMoENames,
		activation: "silu",
		configure:  configureQwen2MoE,
		build:      newQwen2MoE,
	})
}

// qwenMoENames are the names of Qwen's mixtures.
var qwenMoENames = decoderNames.with(hfNames{
	"blk.ffn_gate_inp":       "model.layers.*.mlp.gate",
	"blk.ffn_gate_exps":      "model.layers.*.mlp.experts.*.gate_proj",
	"blk.ffn_up_exps":        "model.layers.*.mlp.experts.*.up_proj",
	"blk.ffn_down_exps":      "model.layers.*.mlp.experts.*.down_proj",
	"blk.ffn_gate_inp_shexp": "model.layers.*.mlp.shared_expert_gate",
	"blk.ffn_gate_shexp":     "model.layers.*.mlp.shared_expert.gate_proj",
	"blk.ffn_up_shexp":       "model.layers.*.mlp.shared_expert.up_proj",
	"blk.ffn_down_shexp":     "model.layers.*.mlp.shared_expert.down_proj",
})

// qwen2MoE is Qwen 2 and 1.5 with a mixture of experts in all layers but those that the file calls dense, and one more
// expert for every token behind a gate of its own.
type qwen2MoE struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []qwen2MoELayer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type qwen2MoELayer struct {
	attnNorm            []float32   // (dim)
	q                   *tensor.Mat // (heads*headDim, dim)
	k, v                *tensor.Mat // (kvHeads*headDim, dim)
	o                   *tensor.Mat // (dim, heads*headDim)
	qBias, kBias, vBias []float32   // of the rows above
	attn                tensor.AttnParams

	ffnNorm  []float32     // (dim)
	experts  *moe          // nil in a dense layer
	shared   *sharedExpert // nil in a dense layer
	gate, up *tensor.Mat   // (ff, dim), of a dense layer
	down     *tensor.Mat   // (dim, ff), of a dense layer
}

// configureQwen2MoE: a window is on the layers that layer_types lists, or else on all, whatever max_window_layers says.
func configureQwen2MoE(f *fields, c *Config) {
	sliding := slidingLayers(f, c.Layers)
	c.setWindows(optionalWindow(f), func(layer int) bool { return sliding == nil || sliding[layer] })
	configureQwenMoE(f, c)
	c.NormTopK = f.flag("expert_weights_norm", "norm_topk_prob", false)
	c.SharedFF = f.integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size", c.FF, 1, maxDim)
	if !f.flag("", "qkv_bias", true) {
		f.fail("%s = false: not supported", f.label("", "qkv_bias"))
	}
}

// configureQwenMoE reads which layers are dense: those listed, and all but every decoder_sparse_step-th.
func configureQwenMoE(f *fields, c *Config) {
	configureExperts(f, c, "moe_intermediate_size")
	c.DenseLayers = make([]bool, c.Layers)
	step := f.integer("", "decoder_sparse_step", 1, 1, maxLayers)
	for i := range c.DenseLayers {
		c.DenseLayers[i] = (i+1)%step != 0
	}
	for _, i := range f.integers("", "mlp_only_layers", 0, c.Layers-1) {
		c.DenseLayers[i] = true
	}
}

func newQwen2MoE(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &qwen2MoE{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	scratch := new(moeScratch)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		layer := qwen2MoELayer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.mat(blk+"attn_q.weight", heads, c.Dim),
			k:        l.mat(blk+"attn_k.weight", kvHeads, c.Dim),
			v:        l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			qBias:    l.vec(blk+"attn_q.bias", heads),
			kBias:    l.vec(blk+"attn_k.bias", kvHeads),
			vBias:    l.vec(blk+"attn_v.bias", kvHeads),
			attn:     c.attention(i),
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
		}
		if l.dense(i) {
			layer.gate = l.mat(blk+"ffn_gate.weight", c.FF, c.Dim)
			layer.up = l.mat(blk+"ffn_up.weight", c.FF, c.Dim)
			layer.down = l.mat(blk+"ffn_down.weight", c.Dim, c.FF)
		} else {
			layer.experts = l.experts(blk, scratch, c.NormTopK)
			layer.shared = l.sharedExpert(blk, scratch)
		}
		m.layers = append(m.layers, layer)
	}
	l.makeScratch(scratch)
	return m
}

func (m *qwen2MoE) forward(p *pass) {
	c := p.cpu
	c.Embed(p.x, m.embed, p.tokens, 1)
	p.mark(-1, p.x)
	for i := range m.layers {
		if p.skips(i) {
			continue
		}
		l := &m.layers[i]
		c.RMSNorm(p.h, p.x, l.attnNorm, m.eps)
		c.MatMuls(p.h,
			tensor.Proj{Dst: p.q, W: l.q, Bias: l.qBias},
			tensor.Proj{Dst: p.k, W: l.k, Bias: l.kBias},
			tensor.Proj{Dst: p.v, W: l.v, Bias: l.vBias})
		c.Rope(p.q, l.attn.HeadDim, p.pos, &m.rope)
		c.Rope(p.k, l.attn.HeadDim, p.pos, &m.rope)
		p.append(i, p.k, p.v)
		c.Attend(p.att, p.q, p.view(i), l.attn)
		c.MatMul(p.h, l.o, p.att)
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		if l.experts != nil {
			l.experts.forward(c, p.ffn, p.h)
			l.shared.add(c, p.ffn, p.h)
		} else {
			c.MatMuls(p.h, tensor.Proj{Dst: p.gate, W: l.gate}, tensor.Proj{Dst: p.up, W: l.up})
			c.MatMulSiLU(p.gate, p.up, tensor.Proj{Dst: p.ffn, W: l.down})
		}
		c.Add(p.x, p.ffn)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
}

// sharedExpert is a feed-forward that every token uses, times a sigmoid of its own.
type sharedExpert struct {
	router   *tensor.Mat // (1, dim), F32
	gate, up *tensor.Mat // (sharedFF, dim)
	down     *tensor.Mat // (dim, sharedFF)
	scratch  *moeScratch
}

func (l *loader) sharedExpert(blk string, scratch *moeScratch) *sharedExpert {
	c := l.cfg
	scratch.wide = max(scratch.wide, c.SharedFF)
	return &sharedExpert{
		router:  l.matF32(blk+"ffn_gate_inp_shexp.weight", 1, c.Dim),
		gate:    l.mat(blk+"ffn_gate_shexp.weight", c.SharedFF, c.Dim),
		up:      l.mat(blk+"ffn_up_shexp.weight", c.SharedFF, c.Dim),
		down:    l.mat(blk+"ffn_down_shexp.weight", c.Dim, c.SharedFF),
		scratch: scratch,
	}
}

// add is dst += sigmoid(router x) * feed-forward(x).
func (e *sharedExpert) add(c *tensor.CPU, dst, x tensor.F32) {
	s := e.scratch
	gate, up, y := cut(s.gate, x.Rows, e.gate.Rows), cut(s.up, x.Rows, e.gate.Rows), s.y.Head(x.Rows)
	c.MatMuls(x, tensor.Proj{Dst: gate, W: e.gate}, tensor.Proj{Dst: up, W: e.up})
	c.MatMulSiLU(gate, up, tensor.Proj{Dst: y, W: e.down})
	weight := cut(s.scores, x.Rows, 1)
	c.MatMul(weight, e.router, x)
	for i := range x.Rows {
		addScaled(dst.Row(i), y.Row(i), 1/(1+tensor.Exp32(-weight.Data[i])))
	}
}

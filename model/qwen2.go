package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("qwen2", architecture{
		modelTypes: []string{"qwen2"},
		names:      decoderNames,
		activation: "silu",
		configure:  configureQwen2,
		build:      newQwen2,
	})
}

// qwen2 is Qwen 2 and 2.5: as Llama, with biases on q, k and v.
type qwen2 struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []qwen2Layer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type qwen2Layer struct {
	attnNorm            []float32   // (dim)
	q                   *tensor.Mat // (heads*headDim, dim)
	k, v                *tensor.Mat // (kvHeads*headDim, dim)
	o                   *tensor.Mat // (dim, heads*headDim)
	qBias, kBias, vBias []float32   // of the rows above
	attn                tensor.AttnParams

	ffnNorm  []float32   // (dim)
	gate, up *tensor.Mat // (ff, dim)
	down     *tensor.Mat // (dim, ff)
}

// configureQwen2 reads the windows of config.json: layer_types says which layers have one, or else those from
// max_window_layers on, and use_sliding_window must agree.
func configureQwen2(f *fields, c *Config) {
	window := optionalWindow(f)
	if window == 0 {
		return
	}
	first := f.integer("", "max_window_layers", 28, 0, maxLayers)
	sliding := slidingLayers(f, c.Layers)
	c.setWindows(window, func(layer int) bool {
		if sliding != nil {
			return sliding[layer]
		}
		return layer >= first
	})
}

// optionalWindow is the window of a config.json in which use_sliding_window has to agree; 0: none.
func optionalWindow(f *fields) int {
	if f.isGGUF || !f.flag("", "use_sliding_window", false) {
		return 0
	}
	return f.integer("", "sliding_window", 0, 0, maxContext)
}

func newQwen2(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &qwen2{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, qwen2Layer{
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
			gate:     l.mat(blk+"ffn_gate.weight", c.FF, c.Dim),
			up:       l.mat(blk+"ffn_up.weight", c.FF, c.Dim),
			down:     l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
		})
	}
	return m
}

func (m *qwen2) forward(p *pass) {
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
		p.gateUp(p.h, tensor.Proj{Dst: p.gate, W: l.gate}, tensor.Proj{Dst: p.up, W: l.up})
		c.MatMulSiLU(p.gate, p.up, tensor.Proj{Dst: p.h, W: l.down})
		c.Add(p.x, p.h)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
}

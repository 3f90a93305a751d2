package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("olmo2", architecture{
		modelTypes: []string{"olmo2"},
		names: decoderNames.with(hfNames{
			"blk.post_attention_norm": "model.layers.*.post_attention_layernorm",
			"blk.post_ffw_norm":       "model.layers.*.post_feedforward_layernorm",
		}),
		activation: "silu",
		configure:  configureOLMo2,
		build:      newOLMo2,
	})
}

// olmo2 is OLMo 2: no norms before attention and feed-forward but after them, and one norm over all heads of q and of k.
type olmo2 struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []olmo2Layer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type olmo2Layer struct {
	q            *tensor.Mat // (heads*headDim, dim)
	k, v         *tensor.Mat // (kvHeads*headDim, dim)
	o            *tensor.Mat // (dim, heads*headDim)
	qNorm        []float32   // (heads*headDim)
	kNorm        []float32   // (kvHeads*headDim)
	attn         tensor.AttnParams
	postAttnNorm []float32 // (dim)

	gate, up    *tensor.Mat // (ff, dim)
	down        *tensor.Mat // (dim, ff)
	postFFNNorm []float32   // (dim)
}

func configureOLMo2(f *fields, c *Config) {
	if f.flag("", "attention_bias", false) {
		f.fail("%s = true: OLMo 2 with biases is not supported", f.label("", "attention_bias"))
	}
}

func newOLMo2(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &olmo2{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, olmo2Layer{
			q:            l.mat(blk+"attn_q.weight", heads, c.Dim),
			k:            l.mat(blk+"attn_k.weight", kvHeads, c.Dim),
			v:            l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:            l.mat(blk+"attn_output.weight", c.Dim, heads),
			qNorm:        l.norm(blk+"attn_q_norm.weight", heads),
			kNorm:        l.norm(blk+"attn_k_norm.weight", kvHeads),
			attn:         c.attention(i),
			postAttnNorm: l.norm(blk+"post_attention_norm.weight", c.Dim),
			gate:         l.mat(blk+"ffn_gate.weight", c.FF, c.Dim),
			up:           l.mat(blk+"ffn_up.weight", c.FF, c.Dim),
			down:         l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
			postFFNNorm:  l.norm(blk+"post_ffw_norm.weight", c.Dim),
		})
	}
	return m
}

func (m *olmo2) forward(p *pass) {
	c := p.cpu
	c.Embed(p.x, m.embed, p.tokens, 1)
	p.mark(-1, p.x)
	for i := range m.layers {
		if p.skips(i) {
			continue
		}
		l := &m.layers[i]
		c.MatMuls(p.x, tensor.Proj{Dst: p.q, W: l.q}, tensor.Proj{Dst: p.k, W: l.k}, tensor.Proj{Dst: p.v, W: l.v})
		c.RMSNorm(p.q, p.q, l.qNorm, m.eps)
		c.RMSNorm(p.k, p.k, l.kNorm, m.eps)
		c.Rope(p.q, l.attn.HeadDim, p.pos, &m.rope)
		c.Rope(p.k, l.attn.HeadDim, p.pos, &m.rope)
		p.append(i, p.k, p.v)
		c.Attend(p.att, p.q, p.view(i), l.attn)
		c.MatMul(p.h, l.o, p.att)
		c.RMSNorm(p.h, p.h, l.postAttnNorm, m.eps)
		c.Add(p.x, p.h)

		p.gateUp(p.x, tensor.Proj{Dst: p.gate, W: l.gate}, tensor.Proj{Dst: p.up, W: l.up})
		c.MatMulSiLU(p.gate, p.up, tensor.Proj{Dst: p.h, W: l.down})
		c.RMSNorm(p.h, p.h, l.postFFNNorm, m.eps)
		c.Add(p.x, p.h)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
}

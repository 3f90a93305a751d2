package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("qwen3moe", architecture{
		modelTypes: []string{"qwen3_moe"},
		names:      qwenMoENames,
		activation: "silu",
		configure:  configureQwen3MoE,
		build:      newQwen3MoE,
	})
}

// qwen3MoE is Qwen 3 with a mixture of experts in all layers but those that the file calls dense.
type qwen3MoE struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []qwen3MoELayer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type qwen3MoELayer struct {
	attnNorm                   []float32   // (dim)
	q                          *tensor.Mat // (heads*headDim, dim)
	k, v                       *tensor.Mat // (kvHeads*headDim, dim)
	o                          *tensor.Mat // (dim, heads*headDim)
	qBias, kBias, vBias, oBias []float32   // of the rows above; nil: none
	qNorm, kNorm               []float32   // (headDim)
	attn                       tensor.AttnParams

	ffnNorm  []float32   // (dim)
	experts  *moe        // nil in a dense layer
	gate, up *tensor.Mat // (ff, dim), of a dense layer
	down     *tensor.Mat // (dim, ff), of a dense layer
}

// configureQwen3MoE: a window is on all layers, whatever max_window_layers says.
func configureQwen3MoE(f *fields, c *Config) {
	c.AttnBias = f.flag("", "attention_bias", false)
	c.setWindows(optionalWindow(f), func(int) bool { return true })
	configureQwenMoE(f, c)
	c.NormTopK = f.flag("expert_weights_norm", "norm_topk_prob", f.isGGUF)
}

func newQwen3MoE(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &qwen3MoE{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	scratch := new(moeScratch)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		layer := qwen3MoELayer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.mat(blk+"attn_q.weight", heads, c.Dim),
			k:        l.mat(blk+"attn_k.weight", kvHeads, c.Dim),
			v:        l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			qBias:    l.bias(blk+"attn_q.bias", heads, c.AttnBias),
			kBias:    l.bias(blk+"attn_k.bias", kvHeads, c.AttnBias),
			vBias:    l.bias(blk+"attn_v.bias", kvHeads, c.AttnBias),
			oBias:    l.bias(blk+"attn_output.bias", c.Dim, c.AttnBias),
			qNorm:    l.norm(blk+"attn_q_norm.weight", c.HeadDim),
			kNorm:    l.norm(blk+"attn_k_norm.weight", c.HeadDim),
			attn:     c.attention(i),
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
		}
		if l.dense(i) {
			layer.gate = l.mat(blk+"ffn_gate.weight", c.FF, c.Dim)
			layer.up = l.mat(blk+"ffn_up.weight", c.FF, c.Dim)
			layer.down = l.mat(blk+"ffn_down.weight", c.Dim, c.FF)
		} else {
			layer.experts = l.experts(blk, scratch, c.NormTopK)
		}
		m.layers = append(m.layers, layer)
	}
	l.makeScratch(scratch)
	return m
}

func (m *qwen3MoE) forward(p *pass) {
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
		c.RMSNormHeads(p.q, l.attn.HeadDim, l.qNorm, m.eps)
		c.RMSNormHeads(p.k, l.attn.HeadDim, l.kNorm, m.eps)
		c.Rope(p.q, l.attn.HeadDim, p.pos, &m.rope)
		c.Rope(p.k, l.attn.HeadDim, p.pos, &m.rope)
		p.append(i, p.k, p.v)
		c.Attend(p.att, p.q, p.view(i), l.attn)
		c.MatMuls(p.att, tensor.Proj{Dst: p.h, W: l.o, Bias: l.oBias})
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		if l.experts != nil {
			l.experts.forward(c, p.ffn, p.h)
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

package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("granite", architecture{
		modelTypes: []string{"granite"},
		names:      decoderNames,
		pairedRope: true,
		activation: "silu",
		configure:  configureGranite,
		build:      newGranite,
	})
}

// granite is IBM's Granite: as Llama, with factors on embeddings, scores, what a layer adds, and logits.
type granite struct {
	eps                                   float32
	embedScale, residualScale, logitScale float32
	embed                                 *tensor.Mat // (vocab, dim)
	layers                                []graniteLayer
	norm                                  []float32   // (dim)
	output                                *tensor.Mat // (vocab, dim)
	rope                                  tensor.Rope
}

type graniteLayer struct {
	attnNorm []float32   // (dim)
	q        *tensor.Mat // (heads*headDim, dim)
	k, v     *tensor.Mat // (kvHeads*headDim, dim)
	o        *tensor.Mat // (dim, heads*headDim)
	attn     tensor.AttnParams

	ffnNorm  []float32   // (dim)
	gate, up *tensor.Mat // (ff, dim)
	down     *tensor.Mat // (dim, ff)
}

func configureGranite(f *fields, c *Config) {
	c.AttnBias = f.flag("", "attention_bias", false)
	c.MLPBias = f.flag("", "mlp_bias", false)
	if c.AttnBias || c.MLPBias {
		f.fail("%s: attention_bias = %v, mlp_bias = %v: Granite with biases is not supported", f.file, c.AttnBias, c.MLPBias)
	}
	c.AttnScale = float32(f.number("attention.scale", "attention_multiplier", float64(c.AttnScale), 1e-9, 1e6))
	c.EmbedScale = float32(f.number("embedding_scale", "embedding_multiplier", 1, 1e-9, 1e6))
	c.ResidualScale = float32(f.number("residual_scale", "residual_multiplier", 1, 1e-9, 1e6))
	c.LogitScale = float32(1 / f.number("logit_scale", "logits_scaling", 1, 1e-9, 1e6))
}

func newGranite(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &granite{
		eps: c.NormEps, embedScale: c.EmbedScale, residualScale: c.ResidualScale, logitScale: c.LogitScale, embed: l.embedding(),
	}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, graniteLayer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.ropeMat(blk+"attn_q.weight", c.Heads, c.Dim),
			k:        l.ropeMat(blk+"attn_k.weight", c.KVHeads, c.Dim),
			v:        l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			attn:     c.attention(i),
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
			gate:     l.mat(blk+"ffn_gate.weight", c.FF, c.Dim),
			up:       l.mat(blk+"ffn_up.weight", c.FF, c.Dim),
			down:     l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
		})
	}
	return m
}

func (m *granite) forward(p *pass) {
	c := p.cpu
	c.Embed(p.x, m.embed, p.tokens, m.embedScale)
	p.mark(-1, p.x)
	for i := range m.layers {
		if p.skips(i) {
			continue
		}
		l := &m.layers[i]
		c.RMSNorm(p.h, p.x, l.attnNorm, m.eps)
		c.MatMuls(p.h, tensor.Proj{Dst: p.q, W: l.q}, tensor.Proj{Dst: p.k, W: l.k}, tensor.Proj{Dst: p.v, W: l.v})
		c.Rope(p.q, l.attn.HeadDim, p.pos, &m.rope)
		c.Rope(p.k, l.attn.HeadDim, p.pos, &m.rope)
		p.append(i, p.k, p.v)
		c.Attend(p.att, p.q, p.view(i), l.attn)
		c.MatMul(p.h, l.o, p.att)
		c.Scale(p.h, m.residualScale)
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		p.gateUp(p.h, tensor.Proj{Dst: p.gate, W: l.gate}, tensor.Proj{Dst: p.up, W: l.up})
		c.MatMulSiLU(p.gate, p.up, tensor.Proj{Dst: p.h, W: l.down})
		c.Scale(p.h, m.residualScale)
		c.Add(p.x, p.h)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
	c.Scale(p.logits, m.logitScale)
}

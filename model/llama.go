package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("llama", architecture{
		modelTypes: []string{"llama", "mistral"},
		names:      decoderNames,
		pairedRope: true,
		activation: "silu",
		configure:  configureLlama,
		build:      newLlama,
	})
}

// llama is Llama 2 and 3, SmolLM2 and Mistral: RMS norms before attention and feed-forward, rope, SiLU gate; biases and a
// sliding window on all layers where the file says so.
type llama struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []llamaLayer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type llamaLayer struct {
	attnNorm                   []float32   // (dim)
	q                          *tensor.Mat // (heads*headDim, dim)
	k, v                       *tensor.Mat // (kvHeads*headDim, dim)
	o                          *tensor.Mat // (dim, heads*headDim)
	qBias, kBias, vBias, oBias []float32   // of the rows above; nil: none
	attn                       tensor.AttnParams

	ffnNorm                    []float32   // (dim)
	gate, up                   *tensor.Mat // (ff, dim)
	down                       *tensor.Mat // (dim, ff)
	gateBias, upBias, downBias []float32   // of the rows above; nil: none
}

func configureLlama(f *fields, c *Config) {
	c.AttnBias = f.flag("", "attention_bias", false)
	c.MLPBias = f.flag("", "mlp_bias", false)
	window := f.integer("attention.sliding_window", "sliding_window", 0, 0, maxContext)
	sliding := slidingLayers(f, c.Layers)
	c.setWindows(window, func(layer int) bool { return sliding == nil || sliding[layer] })
}

func newLlama(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &llama{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, llamaLayer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.ropeMat(blk+"attn_q.weight", c.Heads, c.Dim),
			k:        l.ropeMat(blk+"attn_k.weight", c.KVHeads, c.Dim),
			v:        l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			qBias:    l.ropeBias(blk+"attn_q.bias", c.Heads, c.AttnBias),
			kBias:    l.ropeBias(blk+"attn_k.bias", c.KVHeads, c.AttnBias),
			vBias:    l.bias(blk+"attn_v.bias", kvHeads, c.AttnBias),
			oBias:    l.bias(blk+"attn_output.bias", c.Dim, c.AttnBias),
			attn:     c.attention(i),
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
			gate:     l.mat(blk+"ffn_gate.weight", c.FF, c.Dim),
			up:       l.mat(blk+"ffn_up.weight", c.FF, c.Dim),
			down:     l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
			gateBias: l.bias(blk+"ffn_gate.bias", c.FF, c.MLPBias),
			upBias:   l.bias(blk+"ffn_up.bias", c.FF, c.MLPBias),
			downBias: l.bias(blk+"ffn_down.bias", c.Dim, c.MLPBias),
		})
	}
	return m
}

func (m *llama) forward(p *pass) {
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
		c.MatMuls(p.att, tensor.Proj{Dst: p.h, W: l.o, Bias: l.oBias})
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		p.gateUp(p.h,
			tensor.Proj{Dst: p.gate, W: l.gate, Bias: l.gateBias},
			tensor.Proj{Dst: p.up, W: l.up, Bias: l.upBias})
		c.MatMulSiLU(p.gate, p.up, tensor.Proj{Dst: p.h, W: l.down, Bias: l.downBias})
		c.Add(p.x, p.h)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
}

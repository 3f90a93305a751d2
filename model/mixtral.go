package model

import (
	"fmt"

	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

func init() {
	register("mixtral", architecture{
		modelTypes: []string{"mixtral"},
		ggufName:   "llama",
		claims:     func(f *gguf.File) bool { n, _ := f.Uint("llama.expert_count"); return n > 0 },
		names: decoderNames.with(hfNames{
			"blk.ffn_gate_inp":  "model.layers.*.block_sparse_moe.gate",
			"blk.ffn_gate_exps": "model.layers.*.block_sparse_moe.experts.*.w1",
			"blk.ffn_up_exps":   "model.layers.*.block_sparse_moe.experts.*.w3",
			"blk.ffn_down_exps": "model.layers.*.block_sparse_moe.experts.*.w2",
		}),
		pairedRope: true,
		activation: "silu",
		configure:  configureMixtral,
		build:      newMixtral,
	})
}

// mixtral is Mixtral: as Mistral, with a mixture of experts for the feed-forward. In GGUF it is a llama with experts.
type mixtral struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []mixtralLayer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type mixtralLayer struct {
	attnNorm []float32   // (dim)
	q        *tensor.Mat // (heads*headDim, dim)
	k, v     *tensor.Mat // (kvHeads*headDim, dim)
	o        *tensor.Mat // (dim, heads*headDim)
	attn     tensor.AttnParams

	ffnNorm []float32 // (dim)
	experts *moe
}

func configureMixtral(f *fields, c *Config) {
	configureExperts(f, c, "intermediate_size")
	window := f.integer("attention.sliding_window", "sliding_window", 0, 0, maxContext)
	c.setWindows(window, func(int) bool { return true })
}

func newMixtral(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &mixtral{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	scratch := new(moeScratch)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, mixtralLayer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.ropeMat(blk+"attn_q.weight", c.Heads, c.Dim),
			k:        l.ropeMat(blk+"attn_k.weight", c.KVHeads, c.Dim),
			v:        l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			attn:     c.attention(i),
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
			experts:  l.experts(blk, scratch, true),
		})
	}
	l.makeScratch(scratch)
	return m
}

func (m *mixtral) forward(p *pass) {
	c := p.cpu
	c.Embed(p.x, m.embed, p.tokens, 1)
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
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		l.experts.forward(c, p.ffn, p.h)
		c.Add(p.x, p.ffn)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
}

package model

import (
	"fmt"
	"math"

	"quickdraft/tensor"
)

func init() {
	register("gemma2", architecture{
		modelTypes: []string{"gemma2"},
		names:      gemmaNames,
		normPlus1:  true,
		activation: "gelu_pytorch_tanh",
		configure:  configureGemma2,
		build:      newGemma2,
	})
}

// gemma2 is Gemma 2: embeddings times sqrt(dim), norms before and after both halves of a layer, a tanh GELU gate, soft
// caps on scores and logits, and a sliding window on every other layer, beginning with the first.
type gemma2 struct {
	eps        float32
	embedScale float32
	embed      *tensor.Mat // (vocab, dim)
	layers     []gemma2Layer
	norm       []float32   // (dim)
	output     *tensor.Mat // (vocab, dim)
	softcap    float32     // of logits; 0: none
	rope       tensor.Rope
}

type gemma2Layer struct {
	attnNorm     []float32   // (dim)
	q            *tensor.Mat // (heads*headDim, dim)
	k, v         *tensor.Mat // (kvHeads*headDim, dim)
	o            *tensor.Mat // (dim, heads*headDim)
	postAttnNorm []float32   // (dim)
	attn         tensor.AttnParams

	ffnNorm     []float32   // (dim)
	gate, up    *tensor.Mat // (ff, dim)
	down        *tensor.Mat // (dim, ff)
	postFFNNorm []float32   // (dim)
}

func configureGemma2(f *fields, c *Config) {
	c.HeadDim = f.integer("attention.key_length", "head_dim", 256, 2, maxHeadDim)
	c.Rope.Dim, c.AttnScale = c.HeadDim, rsqrt(c.HeadDim)
	if f.isGGUF && c.Layers == 46 {
		c.AttnScale = rsqrt(c.Dim / c.Heads) // the 27B model; the others scale by their head
	}
	c.AttnScale = float32(f.number("attention.scale", "", float64(c.AttnScale), 1e-6, 1e6))
	if s := f.number("", "query_pre_attn_scalar", 0, 1e-3, 1e6); s > 0 {
		c.AttnScale = float32(1 / math.Sqrt(s))
	}
	attnCap, logitCap := 0.0, 0.0 // null in config.json is none
	if f.isGGUF {
		attnCap, logitCap = 50, 30
	}
	c.AttnSoftcap = float32(f.number("attn_logit_softcapping", "attn_logit_softcapping", attnCap, 0, 1e6))
	c.LogitSoftcap = float32(f.number("final_logit_softcapping", "final_logit_softcapping", logitCap, 0, 1e6))
	c.TiedOutput = f.flag("", "tie_word_embeddings", true)
	c.Activation = f.text("", "hidden_activation|hidden_act", c.Activation)
	c.setWindows(f.integer("attention.sliding_window", "sliding_window", 4096, 1, maxContext), slidingPattern(f, c.Layers, 2))
}

func newGemma2(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &gemma2{eps: c.NormEps, embedScale: float32(math.Sqrt(float64(c.Dim))), softcap: c.LogitSoftcap, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, gemma2Layer{
			attnNorm:     l.norm(blk+"attn_norm.weight", c.Dim),
			q:            l.mat(blk+"attn_q.weight", heads, c.Dim),
			k:            l.mat(blk+"attn_k.weight", kvHeads, c.Dim),
			v:            l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:            l.mat(blk+"attn_output.weight", c.Dim, heads),
			postAttnNorm: l.norm(blk+"post_attention_norm.weight", c.Dim),
			attn:         c.attention(i),
			ffnNorm:      l.norm(blk+"ffn_norm.weight", c.Dim),
			gate:         l.mat(blk+"ffn_gate.weight", c.FF, c.Dim),
			up:           l.mat(blk+"ffn_up.weight", c.FF, c.Dim),
			down:         l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
			postFFNNorm:  l.norm(blk+"post_ffw_norm.weight", c.Dim),
		})
	}
	return m
}

func (m *gemma2) forward(p *pass) {
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
		c.RMSNorm(p.h, p.h, l.postAttnNorm, m.eps)
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		p.gateUp(p.h, tensor.Proj{Dst: p.gate, W: l.gate}, tensor.Proj{Dst: p.up, W: l.up})
		c.MatMulGELUTanh(p.gate, p.up, tensor.Proj{Dst: p.h, W: l.down})
		c.RMSNorm(p.h, p.h, l.postFFNNorm, m.eps)
		c.Add(p.x, p.h)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
	if m.softcap > 0 {
		c.Softcap(p.logits, m.softcap)
	}
}

package model

import (
	"fmt"
	"math"

	"quickdraft/tensor"
)

func init() {
	register("gemma3", architecture{
		modelTypes: []string{"gemma3_text"},
		names:      gemmaNames,
		normPlus1:  true,
		activation: "gelu_pytorch_tanh",
		configure:  configureGemma3,
		build:      newGemma3,
	})
}

// gemmaNames are the names of Gemma 2 and 3, which have a norm before and after attention and feed-forward.
var gemmaNames = decoderNames.with(hfNames{
	"blk.post_attention_norm": "model.layers.*.post_attention_layernorm",
	"blk.ffn_norm":            "model.layers.*.pre_feedforward_layernorm",
	"blk.post_ffw_norm":       "model.layers.*.post_feedforward_layernorm",
})

// gemma3 is Gemma 3: embeddings times sqrt(dim), norms before and after both halves of a layer, a norm on each head of q
// and k, a tanh GELU gate. Local layers have a sliding window and their own rope without stretching; the others see
// everything.
type gemma3 struct {
	eps        float32
	embedScale float32
	embed      *tensor.Mat // (vocab, dim)
	layers     []gemma3Layer
	norm       []float32   // (dim)
	output     *tensor.Mat // (vocab, dim)
	softcap    float32     // of logits; 0: none
	rope       tensor.Rope // of layers that see everything
	localRope  tensor.Rope
}

type gemma3Layer struct {
	attnNorm     []float32   // (dim)
	q            *tensor.Mat // (heads*headDim, dim)
	k, v         *tensor.Mat // (kvHeads*headDim, dim)
	o            *tensor.Mat // (dim, heads*headDim)
	qNorm, kNorm []float32   // (headDim)
	postAttnNorm []float32   // (dim)
	attn         tensor.AttnParams

	ffnNorm     []float32   // (dim)
	gate, up    *tensor.Mat // (ff, dim)
	down        *tensor.Mat // (dim, ff)
	postFFNNorm []float32   // (dim)
}

func configureGemma3(f *fields, c *Config) {
	c.HeadDim = f.integer("attention.key_length", "head_dim", 256, 2, maxHeadDim)
	if c.Rope.Dim = c.HeadDim; c.Arch == "gemma3" && f.isGGUF && c.Layers == 62 {
		c.AttnScale = rsqrt(c.Dim / c.Heads) // the 27B model; the others scale by their head
	} else {
		c.AttnScale = rsqrt(c.HeadDim)
	}
	if s := f.number("", "query_pre_attn_scalar", 0, 1e-3, 1e6); s > 0 {
		c.AttnScale = float32(1 / math.Sqrt(s))
	}
	c.AttnScale = float32(f.number("attention.scale", "", float64(c.AttnScale), 1e-6, 1e6))
	c.LogitSoftcap = float32(f.number("final_logit_softcapping", "final_logit_softcapping", 0, 0, 1e6))
	c.TiedOutput = f.flag("", "tie_word_embeddings", true)

	window := f.needInteger("attention.sliding_window", "sliding_window", 1, maxContext)
	c.setWindows(window, slidingPattern(f, c.Layers, 6))

	if f.has("", "rope_parameters.full_attention.rope_theta") {
		c.Rope = readRopeAt(f, c, "rope_parameters.full_attention.", "rope_parameters.full_attention.")
		c.LocalRope = readRopeAt(f, c, "rope_parameters.sliding_attention.", "rope_parameters.sliding_attention.")
		return
	}
	if !f.has("rope.freq_base", "rope_theta") {
		c.Rope.Theta = 1e6
	}
	c.LocalRope = Rope{Kind: "default", Dim: c.HeadDim}
	c.LocalRope.Theta = f.number("rope.freq_base_swa", "rope_local_base_freq", 10000, 1e-3, 1e12)
}

func newGemma3(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &gemma3{eps: c.NormEps, embedScale: float32(math.Sqrt(float64(c.Dim))), softcap: c.LogitSoftcap, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope, m.localRope = l.ropeTable(c.Rope), c.LocalRope.table()
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, gemma3Layer{
			attnNorm:     l.norm(blk+"attn_norm.weight", c.Dim),
			q:            l.mat(blk+"attn_q.weight", heads, c.Dim),
			k:            l.mat(blk+"attn_k.weight", kvHeads, c.Dim),
			v:            l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:            l.mat(blk+"attn_output.weight", c.Dim, heads),
			qNorm:        l.norm(blk+"attn_q_norm.weight", c.HeadDim),
			kNorm:        l.norm(blk+"attn_k_norm.weight", c.HeadDim),
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

func (m *gemma3) forward(p *pass) {
	c := p.cpu
	c.Embed(p.x, m.embed, p.tokens, m.embedScale)
	p.mark(-1, p.x)
	for i := range m.layers {
		if p.skips(i) {
			continue
		}
		l := &m.layers[i]
		rope := &m.rope
		if l.attn.Window > 0 {
			rope = &m.localRope
		}
		c.RMSNorm(p.h, p.x, l.attnNorm, m.eps)
		c.MatMuls(p.h, tensor.Proj{Dst: p.q, W: l.q}, tensor.Proj{Dst: p.k, W: l.k}, tensor.Proj{Dst: p.v, W: l.v})
		c.RMSNormHeads(p.q, l.attn.HeadDim, l.qNorm, m.eps)
		c.RMSNormHeads(p.k, l.attn.HeadDim, l.kNorm, m.eps)
		c.Rope(p.q, l.attn.HeadDim, p.pos, rope)
		c.Rope(p.k, l.attn.HeadDim, p.pos, rope)
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

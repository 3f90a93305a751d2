package model

import (
	"fmt"
	"math"

	"quickdraft/tensor"
)

func init() {
	register("gemma", architecture{
		modelTypes: []string{"gemma"},
		names:      decoderNames,
		normPlus1:  true,
		activation: "gelu_pytorch_tanh",
		configure:  configureGemma,
		build:      newGemma,
	})
}

// gemma is the first Gemma: as Llama, with embeddings times sqrt(dim) and a tanh GELU gate.
type gemma struct {
	eps        float32
	embedScale float32
	embed      *tensor.Mat // (vocab, dim)
	layers     []gemmaLayer
	norm       []float32   // (dim)
	output     *tensor.Mat // (vocab, dim)
	rope       tensor.Rope
}

type gemmaLayer struct {
	attnNorm []float32   // (dim)
	q        *tensor.Mat // (heads*headDim, dim)
	k, v     *tensor.Mat // (kvHeads*headDim, dim)
	o        *tensor.Mat // (dim, heads*headDim)
	attn     tensor.AttnParams

	ffnNorm  []float32   // (dim)
	gate, up *tensor.Mat // (ff, dim)
	down     *tensor.Mat // (dim, ff)
}

// configureGemma: "gelu" in the first config.json files meant the tanh form. hidden_activation is the newer name of hidden_act; readers
// differ in which they obey, so neither may name another function.
func configureGemma(f *fields, c *Config) {
	c.HeadDim = f.integer("attention.key_length", "head_dim", 256, 2, maxHeadDim)
	c.Rope.Dim, c.AttnScale = c.HeadDim, rsqrt(c.HeadDim)
	c.TiedOutput = f.flag("", "tie_word_embeddings", true)
	c.Activation = "gelu_pytorch_tanh"
	for _, key := range []string{"hidden_act", "hidden_activation"} {
		switch act := f.text("", key, "gelu"); act {
		case "gelu", "gelu_new", "gelu_pytorch_tanh":
		default:
			c.Activation = act
		}
	}
}

func newGemma(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &gemma{eps: c.NormEps, embedScale: float32(math.Sqrt(float64(c.Dim))), embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, gemmaLayer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.mat(blk+"attn_q.weight", heads, c.Dim),
			k:        l.mat(blk+"attn_k.weight", kvHeads, c.Dim),
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

func (m *gemma) forward(p *pass) {
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
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.ffnNorm, m.eps)
		p.gateUp(p.h, tensor.Proj{Dst: p.gate, W: l.gate}, tensor.Proj{Dst: p.up, W: l.up})
		c.MatMulGELUTanh(p.gate, p.up, tensor.Proj{Dst: p.h, W: l.down})
		c.Add(p.x, p.h)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.norm, m.eps)
	p.project(m.output)
}

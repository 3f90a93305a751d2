package model

import (
	"fmt"
	"math"

	"quickdraft/internal/detmath"
	"quickdraft/tensor"
)

func init() {
	register("phi3", architecture{
		modelTypes: []string{"phi3"},
		names: decoderNames.with(hfNames{
			"blk.attn_qkv": "model.layers.*.self_attn.qkv_proj",
			"blk.ffn_up":   "model.layers.*.mlp.gate_up_proj",
		}),
		activation: "silu",
		configure:  configurePhi3,
		build:      newPhi3,
	})
}

// phi3 is Phi-3 and 3.5: as Llama, with q, k, v in one matrix of the file and gate, up in another, a rope on the first part
// of each head, and for long contexts two ropes: rows of sequences that fit the old context use the short one.
type phi3 struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []phi3Layer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	short  tensor.Rope
	long   tensor.Rope
	border int // longest sequence of the short rope; 0: there is only one
}

type phi3Layer struct {
	attnNorm []float32   // (dim)
	q        *tensor.Mat // (heads*headDim, dim)
	k, v     *tensor.Mat // (kvHeads*headDim, dim)
	o        *tensor.Mat // (dim, heads*headDim)
	attn     tensor.AttnParams

	ffnNorm  []float32   // (dim)
	gate, up *tensor.Mat // (ff, dim)
	down     *tensor.Mat // (dim, ff)
}

func configurePhi3(f *fields, c *Config) {
	if f.flag("", "attention_bias", false) {
		f.fail("%s = true: Phi-3 with biases is not supported", f.label("", "attention_bias"))
	}
	window := f.integer("attention.sliding_window", "sliding_window", 0, 0, maxContext)
	sliding := slidingLayers(f, c.Layers)
	c.setWindows(window, func(layer int) bool { return sliding == nil || sliding[layer] })
	r := &c.Rope
	if r.Kind != "longrope" {
		return
	}
	const keys = "rope_parameters.%[1]s|rope_scaling.%[1]s"
	r.Short = f.numbers("", fmt.Sprintf(keys, "short_factor"), r.Dim/2, 1e-6, 1e6)
	r.Long = f.numbers("", fmt.Sprintf(keys, "long_factor"), r.Dim/2, 1e-6, 1e6)
	if !f.isGGUF && (r.Short == nil || r.Long == nil) {
		f.fail("%s: rope of type longrope without short_factor or long_factor", f.file)
	}
	if stretch := float64(c.ContextLen) / float64(r.OrigLen); r.AttnFactor == 0 && stretch > 1 {
		r.AttnFactor = math.Sqrt(1 + detmath.Log(stretch)/detmath.Log(float64(r.OrigLen)))
	}
}

func newPhi3(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &phi3{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.short, m.long = l.ropeTable(c.Rope.divided(c.Rope.Short)), l.ropeTable(c.Rope.divided(c.Rope.Long))
	if l.has("rope_factors_long.weight") {
		m.short = l.ropeTable(c.Rope.divided(l.divisors("rope_factors_short.weight", c.Rope.Dim/2)))
		m.long = l.ropeTable(c.Rope.divided(l.divisors("rope_factors_long.weight", c.Rope.Dim/2)))
	}
	if c.Rope.Long != nil || l.has("rope_factors_long.weight") {
		m.border = c.Rope.OrigLen
	}
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		qkv, gateUp := blk+"attn_qkv.weight", blk+"ffn_up.weight"
		m.layers = append(m.layers, phi3Layer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.rows(qkv, 0, heads, heads+2*kvHeads, c.Dim),
			k:        l.rows(qkv, heads, kvHeads, heads+2*kvHeads, c.Dim),
			v:        l.rows(qkv, heads+kvHeads, kvHeads, heads+2*kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			attn:     c.attention(i),
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
			gate:     l.rows(gateUp, 0, c.FF, 2*c.FF, c.Dim),
			up:       l.rows(gateUp, c.FF, c.FF, 2*c.FF, c.Dim),
			down:     l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
		})
	}
	return m
}

func (m *phi3) forward(p *pass) {
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
		m.rope(p, p.q, l.attn.HeadDim)
		m.rope(p, p.k, l.attn.HeadDim)
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

// rope turns each row by the long rope where its sequence's prompt, or its own position, lies past the border, and by the
// short one elsewhere: runs of rows of one kind go together.
func (m *phi3) rope(p *pass, x tensor.F32, headDim int) {
	if m.border == 0 {
		p.cpu.Rope(x, headDim, p.pos, &m.short)
		return
	}
	for row := 0; row < x.Rows; {
		end, long := row+1, p.reach(row) > m.border
		for end < x.Rows && p.reach(end) > m.border == long {
			end++
		}
		r := &m.short
		if long {
			r = &m.long
		}
		p.cpu.Rope(rowsOf(x, row, end-row), headDim, p.pos[row:end], r)
		row = end
	}
}

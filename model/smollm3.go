package model

import (
	"fmt"

	"quickdraft/tensor"
)

func init() {
	register("smollm3", architecture{
		modelTypes: []string{"smollm3"},
		names:      decoderNames,
		pairedRope: true,
		activation: "silu",
		configure:  configureSmolLM3,
		build:      newSmolLM3,
	})
}

// smollm3 is SmolLM3: as Llama, with layers that have no rope.
type smollm3 struct {
	eps    float32
	embed  *tensor.Mat // (vocab, dim)
	layers []smollm3Layer
	norm   []float32   // (dim)
	output *tensor.Mat // (vocab, dim)
	rope   tensor.Rope
}

type smollm3Layer struct {
	attnNorm []float32   // (dim)
	q        *tensor.Mat // (heads*headDim, dim)
	k, v     *tensor.Mat // (kvHeads*headDim, dim)
	o        *tensor.Mat // (dim, heads*headDim)
	attn     tensor.AttnParams
	noRope   bool

	ffnNorm  []float32   // (dim)
	gate, up *tensor.Mat // (ff, dim)
	down     *tensor.Mat // (dim, ff)
}

// configureSmolLM3 reads which layers have no rope: those with a 0 in no_rope_layers, or else every fourth. GGUF files know only the
// latter; rope.layers is a key of this project for models that do otherwise. A window is on the layers that layer_types lists, or else
// on those without a rope.
func configureSmolLM3(f *fields, c *Config) {
	if f.flag("", "attention_bias", false) || f.flag("", "mlp_bias", false) {
		f.fail("%s: SmolLM3 with attention_bias or mlp_bias is not supported", f.file)
	}
	c.TiedOutput = f.flag("", "tie_word_embeddings", true)
	list := f.integers("rope.layers", "no_rope_layers", 0, 1)
	if list != nil && len(list) != c.Layers {
		f.fail("%s = %v: want one entry for each of the %d layers", f.label("rope.layers", "no_rope_layers"), list, c.Layers)
		return
	}
	every := f.integer("", "no_rope_layer_interval", 4, 1, maxLayers)
	for i := range c.Layers {
		c.NoRope = append(c.NoRope, list != nil && list[i] == 0 || list == nil && (i+1)%every == 0)
	}
	sliding := slidingLayers(f, c.Layers)
	if sliding == nil {
		sliding = c.NoRope
	}
	c.setWindows(optionalWindow(f), func(layer int) bool { return sliding[layer] })
}

func newSmolLM3(l *loader) forwarder {
	c := l.cfg
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	m := &smollm3{eps: c.NormEps, embed: l.embedding()}
	m.output = l.output(m.embed)
	m.norm = l.norm("output_norm.weight", c.Dim)
	m.rope = l.ropeTable(c.Rope)
	for i := range c.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, smollm3Layer{
			attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
			q:        l.ropeMat(blk+"attn_q.weight", c.Heads, c.Dim),
			k:        l.ropeMat(blk+"attn_k.weight", c.KVHeads, c.Dim),
			v:        l.mat(blk+"attn_v.weight", kvHeads, c.Dim),
			o:        l.mat(blk+"attn_output.weight", c.Dim, heads),
			attn:     c.attention(i),
			noRope:   c.NoRope[i],
			ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
			gate:     l.mat(blk+"ffn_gate.weight", c.FF, c.Dim),
			up:       l.mat(blk+"ffn_up.weight", c.FF, c.Dim),
			down:     l.mat(blk+"ffn_down.weight", c.Dim, c.FF),
		})
	}
	return m
}

func (m *smollm3) forward(p *pass) {
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
		if !l.noRope {
			c.Rope(p.q, l.attn.HeadDim, p.pos, &m.rope)
			c.Rope(p.k, l.attn.HeadDim, p.pos, &m.rope)
		}
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

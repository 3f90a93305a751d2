package model

import (
	"fmt"

	"quickdraft/kvcache"
	"quickdraft/tensor"
)

func init() {
	register("t5", architecture{
		modelTypes: []string{"t5"},
		names:      t5Names,
		activation: "relu",
		contextLen: 512,
		configure:  configureT5,
		build:      newT5,
	})
}

var t5Names = hfNames{
	"token_embd":      "shared",
	"output":          "lm_head",
	"enc.output_norm": "encoder.final_layer_norm",
	"dec.output_norm": "decoder.final_layer_norm",

	"enc.blk.attn_norm":  "encoder.block.*.layer.0.layer_norm",
	"enc.blk.attn_q":     "encoder.block.*.layer.0.SelfAttention.q",
	"enc.blk.attn_k":     "encoder.block.*.layer.0.SelfAttention.k",
	"enc.blk.attn_v":     "encoder.block.*.layer.0.SelfAttention.v",
	"enc.blk.attn_o":     "encoder.block.*.layer.0.SelfAttention.o",
	"enc.blk.attn_rel_b": "encoder.block.*.layer.0.SelfAttention.relative_attention_bias",
	"enc.blk.ffn_norm":   "encoder.block.*.layer.1.layer_norm",
	"enc.blk.ffn_gate":   "encoder.block.*.layer.1.DenseReluDense.wi_0",
	"enc.blk.ffn_up":     "encoder.block.*.layer.1.DenseReluDense.wi_1",
	"enc.blk.ffn_only":   "encoder.block.*.layer.1.DenseReluDense.wi",
	"enc.blk.ffn_down":   "encoder.block.*.layer.1.DenseReluDense.wo",

	"dec.blk.attn_norm":       "decoder.block.*.layer.0.layer_norm",
	"dec.blk.attn_q":          "decoder.block.*.layer.0.SelfAttention.q",
	"dec.blk.attn_k":          "decoder.block.*.layer.0.SelfAttention.k",
	"dec.blk.attn_v":          "decoder.block.*.layer.0.SelfAttention.v",
	"dec.blk.attn_o":          "decoder.block.*.layer.0.SelfAttention.o",
	"dec.blk.attn_rel_b":      "decoder.block.*.layer.0.SelfAttention.relative_attention_bias",
	"dec.blk.cross_attn_norm": "decoder.block.*.layer.1.layer_norm",
	"dec.blk.cross_attn_q":    "decoder.block.*.layer.1.EncDecAttention.q",
	"dec.blk.cross_attn_k":    "decoder.block.*.layer.1.EncDecAttention.k",
	"dec.blk.cross_attn_v":    "decoder.block.*.layer.1.EncDecAttention.v",
	"dec.blk.cross_attn_o":    "decoder.block.*.layer.1.EncDecAttention.o",
	"dec.blk.ffn_norm":        "decoder.block.*.layer.2.layer_norm",
	"dec.blk.ffn_gate":        "decoder.block.*.layer.2.DenseReluDense.wi_0",
	"dec.blk.ffn_up":          "decoder.block.*.layer.2.DenseReluDense.wi_1",
	"dec.blk.ffn_only":        "decoder.block.*.layer.2.DenseReluDense.wi",
	"dec.blk.ffn_down":        "decoder.block.*.layer.2.DenseReluDense.wo",
}

// t5 is T5, first and 1.1: an encoder that sees its whole input, and a decoder that also attends to what the encoder made.
// Positions enter only as a bias on scores, one table for all layers of each half. Scores are not scaled.
type t5 struct {
	eps        float32
	embed      *tensor.Mat // (vocab, dim)
	encoder    []t5Layer
	encNorm    []float32 // (dim)
	decoder    []t5Layer
	decNorm    []float32   // (dim)
	output     *tensor.Mat // (vocab, dim)
	logitScale float32     // dim^-0.5 where the output is the embedding, else 1
	encBias    t5Bias
	decBias    t5Bias
	attention  t5Attention
	inputs     map[*kvcache.Seq]*t5Input
}

// t5Layer is a layer of the encoder, or of the decoder with its second attention.
type t5Layer struct {
	attnNorm []float32 // (dim)
	self     t5Projections

	crossNorm []float32     // (dim), of the decoder
	cross     t5Projections // of the decoder

	ffnNorm  []float32   // (dim)
	gate, up *tensor.Mat // (ff, dim); gate is nil in the first T5, which has a ReLU instead
	down     *tensor.Mat // (dim, ff)
}

type t5Projections struct {
	q, k, v *tensor.Mat // (heads*headDim, dim)
	o       *tensor.Mat // (dim, heads*headDim)
}

// t5Input is what the decoder needs of one encoded input of n tokens.
type t5Input struct {
	hidden tensor.F32   // (n, dim), after the encoder's norm
	k, v   []tensor.F32 // per decoder layer, (n, heads*headDim)
}

// maxBiases bounds heads times distances, which a small file can claim and t5Bias spreads out.
const maxBiases = 1 << 21

func configureT5(f *fields, c *Config) {
	c.KVHeads = c.Heads
	c.EncoderLayers = c.Layers
	c.Layers = f.integer("decoder_block_count", "num_decoder_layers", c.Layers, 1, maxLayers)
	c.Windows = make([]int, c.Layers)
	c.AttnScale = 1
	c.DecoderStart = int32(f.integer("decoder_start_token_id", "decoder_start_token_id", 0, 0, maxVocab))
	c.RelBuckets = f.needInteger("attention.relative_buckets_count", "relative_attention_num_buckets", 4, 1<<12)
	c.RelDistance = f.integer("attention.relative_max_distance", "relative_attention_max_distance", 128, 1, 1<<16)
	if c.RelBuckets%2 != 0 || c.RelDistance <= c.RelBuckets/2 {
		f.fail("%s = %d with a maximal distance of %d: want an even number below twice the distance",
			f.label("attention.relative_buckets_count", "relative_attention_num_buckets"), c.RelBuckets, c.RelDistance)
	}
	if c.Heads*c.RelDistance > maxBiases {
		f.fail("%s = %d: want at most %d with %d heads", f.label("attention.relative_max_distance", "relative_attention_max_distance"),
			c.RelDistance, maxBiases/c.Heads, c.Heads)
	}
	c.TiedOutput = f.flag("", "tie_word_embeddings", true)
	c.ScaledLogits = f.flag("", "scale_decoder_outputs", c.TiedOutput)
	switch proj := f.text("", "feed_forward_proj", "relu"); proj {
	case "relu":
	case "gated-gelu":
		c.Gated = true
	default:
		f.fail("%s = %q: want \"relu\" or \"gated-gelu\"", f.label("", "feed_forward_proj"), proj)
	}
	if c.Tokens > 0 && int(c.DecoderStart) >= c.Tokens {
		f.fail("%s = %d: outside the vocabulary of %d tokens", f.label("decoder_start_token_id", "decoder_start_token_id"), c.DecoderStart, c.Tokens)
	}
}

func newT5(l *loader) forwarder {
	c := l.cfg
	m := &t5{eps: c.NormEps, embed: l.embedding(), logitScale: 1, inputs: map[*kvcache.Seq]*t5Input{}}
	// Version 5 of transformers writes tie_word_embeddings for all T5; a matrix in the file is the one to use.
	c.TiedOutput = !l.has("output.weight")
	m.output = l.output(m.embed)
	if c.ScaledLogits && !l.fields.isGGUF || c.TiedOutput && l.fields.isGGUF {
		m.logitScale = rsqrt(c.Dim)
	}
	if l.fields.isGGUF {
		c.Gated = l.has("enc.blk.0.ffn_gate.weight")
	}
	m.encNorm, m.decNorm = l.norm("enc.output_norm.weight", c.Dim), l.norm("dec.output_norm.weight", c.Dim)
	m.encBias = newT5Bias(l.values("enc.blk.0.attn_rel_b.weight", c.RelBuckets, c.Heads), c, true)
	m.decBias = newT5Bias(l.values("dec.blk.0.attn_rel_b.weight", c.RelBuckets, c.Heads), c, false)
	for i := range c.EncoderLayers {
		m.encoder = append(m.encoder, l.t5Layer(fmt.Sprintf("enc.blk.%d.", i), false))
	}
	for i := range c.Layers {
		m.decoder = append(m.decoder, l.t5Layer(fmt.Sprintf("dec.blk.%d.", i), true))
	}
	m.attention.init(l.pool, c)
	return m
}

func (l *loader) t5Layer(blk string, decoder bool) t5Layer {
	c := l.cfg
	layer := t5Layer{
		attnNorm: l.norm(blk+"attn_norm.weight", c.Dim),
		self:     l.t5Projections(blk + "attn_"),
		ffnNorm:  l.norm(blk+"ffn_norm.weight", c.Dim),
	}
	if decoder {
		layer.crossNorm = l.norm(blk+"cross_attn_norm.weight", c.Dim)
		layer.cross = l.t5Projections(blk + "cross_attn_")
	}
	up := "ffn_up.weight"
	if c.Gated {
		layer.gate = l.mat(blk+"ffn_gate.weight", c.FF, c.Dim)
	} else if !l.fields.isGGUF {
		up = "ffn_only.weight"
	}
	layer.up = l.mat(blk+up, c.FF, c.Dim)
	layer.down = l.mat(blk+"ffn_down.weight", c.Dim, c.FF)
	return layer
}

func (l *loader) t5Projections(prefix string) t5Projections {
	dim, inner := l.cfg.Dim, l.cfg.Heads*l.cfg.HeadDim
	return t5Projections{
		q: l.mat(prefix+"q.weight", inner, dim), k: l.mat(prefix+"k.weight", inner, dim), v: l.mat(prefix+"v.weight", inner, dim),
		o: l.mat(prefix+"o.weight", dim, inner),
	}
}

// forward is a pass of the decoder.
func (m *t5) forward(p *pass) {
	c := p.cpu
	c.Embed(p.x, m.embed, p.tokens, 1)
	p.mark(-1, p.x)
	for i := range m.decoder {
		if p.skips(i) {
			continue
		}
		l := &m.decoder[i]
		c.RMSNorm(p.h, p.x, l.attnNorm, m.eps)
		c.MatMuls(p.h, tensor.Proj{Dst: p.q, W: l.self.q}, tensor.Proj{Dst: p.k, W: l.self.k}, tensor.Proj{Dst: p.v, W: l.self.v})
		p.append(i, p.k, p.v)
		m.attention.causal(p.att, p.q, p.view(i), &m.decBias)
		c.MatMul(p.h, l.self.o, p.att)
		c.Add(p.x, p.h)

		c.RMSNorm(p.h, p.x, l.crossNorm, m.eps)
		c.MatMul(p.q, l.cross.q, p.h)
		for j := range p.spans {
			in, s := m.inputs[p.seqs[j]], &p.spans[j]
			m.attention.full(rowsOf(p.att, s.Row0, s.N), rowsOf(p.q, s.Row0, s.N), in.k[i], in.v[i], nil)
		}
		c.MatMul(p.h, l.cross.o, p.att)
		c.Add(p.x, p.h)

		m.feedForward(c, l, p.x, p.h, p.gate, p.up)
		p.mark(i, p.x)
	}
	p.keepWanted(p.x)
	c.RMSNorm(p.hidden, p.hidden, m.decNorm, m.eps)
	p.project(m.output)
	c.Scale(p.logits, m.logitScale)
}

// feedForward adds a layer's second half to x; h, gate and up are scratch.
func (m *t5) feedForward(c *tensor.CPU, l *t5Layer, x, h, gate, up tensor.F32) {
	c.RMSNorm(h, x, l.ffnNorm, m.eps)
	if l.gate != nil {
		c.MatMuls(h, tensor.Proj{Dst: gate, W: l.gate}, tensor.Proj{Dst: up, W: l.up})
		c.GELUTanhMul(up, gate, up)
	} else {
		c.MatMul(up, l.up, h)
		for i, v := range up.Data {
			if v < 0 {
				up.Data[i] = 0
			}
		}
	}
	c.MatMul(h, l.down, up)
	c.Add(x, h)
}

// encode runs the encoder over an input and keeps what the decoder needs of it for a sequence. Rows go through the
// matrices in runs of the pass's size; attention sees them all.
func (m *t5) encode(p *pass, seq *kvcache.Seq, tokens []int32) {
	c, n := p.cpu, len(tokens)
	wide := m.encoder[0].self.q.Rows
	x := tensor.NewF32(n, m.embed.Cols)
	q, k, v, att := tensor.NewF32(n, wide), tensor.NewF32(n, wide), tensor.NewF32(n, wide), tensor.NewF32(n, wide)
	each := func(f func(from, n int)) {
		for from := 0; from < n; from += p.max {
			f(from, min(p.max, n-from))
		}
	}
	each(func(from, n int) { c.Embed(rowsOf(x, from, n), m.embed, tokens[from:from+n], 1) })
	for i := range m.encoder {
		l := &m.encoder[i]
		each(func(from, n int) {
			h := p.full.h.Head(n)
			c.RMSNorm(h, rowsOf(x, from, n), l.attnNorm, m.eps)
			c.MatMuls(h, tensor.Proj{Dst: rowsOf(q, from, n), W: l.self.q}, tensor.Proj{Dst: rowsOf(k, from, n), W: l.self.k},
				tensor.Proj{Dst: rowsOf(v, from, n), W: l.self.v})
		})
		m.attention.full(att, q, k, v, &m.encBias)
		each(func(from, n int) {
			h, run := p.full.h.Head(n), rowsOf(x, from, n)
			c.MatMul(h, l.self.o, rowsOf(att, from, n))
			c.Add(run, h)
			m.feedForward(c, l, run, h, p.full.gate.Head(n), p.full.up.Head(n))
		})
	}
	c.RMSNorm(x, x, m.encNorm, m.eps)
	in := &t5Input{hidden: x}
	for i := range m.decoder {
		k, v := tensor.NewF32(n, wide), tensor.NewF32(n, wide)
		each(func(from, n int) {
			c.MatMuls(rowsOf(x, from, n), tensor.Proj{Dst: rowsOf(k, from, n), W: m.decoder[i].cross.k},
				tensor.Proj{Dst: rowsOf(v, from, n), W: m.decoder[i].cross.v})
		})
		in.k, in.v = append(in.k, k), append(in.v, v)
	}
	m.inputs[seq] = in
}

func (m *t5) encoded(seq *kvcache.Seq) bool { return m.inputs[seq] != nil }

func (m *t5) forget(seq *kvcache.Seq) { delete(m.inputs, seq) }

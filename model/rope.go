package model

import (
	"math"

	"quickdraft/internal/detmath"
	"quickdraft/tensor"
)

// Rope says how positions turn heads: the base frequencies and how they are stretched for long contexts.
type Rope struct {
	Kind       string  // "default", "linear", "llama3", "yarn", "longrope"
	Dim        int     // values of a head that turn: the first Dim
	Theta      float64 // base
	Factor     float64 // stretch of linear, llama3 and yarn
	OrigLen    int     // context before stretching (llama3, yarn, longrope)
	LowFreq    float64 // llama3
	HighFreq   float64 // llama3
	BetaFast   float64 // yarn
	BetaSlow   float64 // yarn
	Fractions  bool    // yarn: the borders of the blend are not rounded to whole dimensions
	AttnFactor float64 // multiplies cosine and sine; 0: the kind's own rule

	// Divisors of the frequencies for short and long sequences, (Dim/2): longrope.
	Short, Long []float32
	// Divisors of the frequencies, (Dim/2): llama3's rope_freqs.weight, which replaces Kind's own rule.
	Divisors []float32
}

// readRope reads the rope of layers that see everything: GGUF's rope.* keys, transformers 4's rope_theta with rope_scaling,
// or transformers 5's rope_parameters.
func readRope(f *fields, c *Config) Rope {
	partial := f.number("", "partial_rotary_factor|rope_parameters.partial_rotary_factor", 1, 0, 1)
	r := readRopeAt(f, c, "rope_parameters.", "rope_scaling.")
	r.Dim = f.integer("rope.dimension_count", "", int(float64(c.HeadDim)*partial), 2, c.HeadDim)
	return r
}

// readRopeAt is readRope with config.json's objects given: "rope_parameters.full_attention." for one kind of layer.
func readRopeAt(f *fields, c *Config, v5, v4 string) Rope {
	key := func(name string) string { return v5 + name + "|" + v4 + name }
	r := Rope{Dim: c.HeadDim}
	r.Theta = f.number("rope.freq_base", v5+"rope_theta|rope_theta", 10000, 1e-3, 1e12)
	r.Kind = f.text("rope.scaling.type", v5+"rope_type|"+v5+"type|"+v4+"rope_type|"+v4+"type", "default")
	factor := f.number
	if r.Kind == "linear" || r.Kind == "llama3" || r.Kind == "yarn" {
		factor = func(ggufKey, hfKey string, _, lo, hi float64) float64 { return f.needNumber(ggufKey, hfKey, lo, hi) }
	}
	r.Factor = factor("rope.scaling.factor", key("factor"), 1, 1e-6, 1e6)
	r.OrigLen = f.integer("rope.scaling.original_context_length",
		key("original_max_position_embeddings")+"|original_max_position_embeddings", c.ContextLen, 1, maxContext)
	r.AttnFactor = f.number("rope.scaling.attn_factor", key("attention_factor"), 0, 0, 1e3)
	switch r.Kind {
	case "none", "default", "mrope", "":
		r.Kind = "default"
	case "linear", "longrope":
	case "su": // longrope's first name
		r.Kind = "longrope"
	case "llama3":
		r.LowFreq = f.needNumber("rope.scaling.low_freq_factor", key("low_freq_factor"), 1e-6, 1e6)
		r.HighFreq = f.needNumber("rope.scaling.high_freq_factor", key("high_freq_factor"), 1e-6, 1e6)
		if r.HighFreq <= r.LowFreq {
			f.fail("%s = %g: want more than low_freq_factor, %g", f.label("rope.scaling.high_freq_factor", key("high_freq_factor")), r.HighFreq, r.LowFreq)
		}
	case "yarn":
		r.BetaFast = f.number("rope.scaling.yarn_beta_fast", key("beta_fast"), 32, 1e-6, 1e6)
		r.BetaSlow = f.number("rope.scaling.yarn_beta_slow", key("beta_slow"), 1, 1e-6, 1e6)
		r.Fractions = !f.flag("", key("truncate"), true)
		r.readYarnFactor(f, key)
		if r.Theta <= 1 {
			f.fail("%s = %g: want more than 1 for yarn", f.label("rope.freq_base", v5+"rope_theta|rope_theta"), r.Theta)
		}
	default:
		f.fail("%s = %q: want default, linear, llama3, yarn or longrope", f.label("rope.scaling.type", key("rope_type")), r.Kind)
	}
	return r
}

// readYarnFactor settles yarn's attention factor where the file departs from the rule: GGUF multiplies the rule's by its
// own, config.json replaces it, or names two slopes whose scales are divided.
func (r *Rope) readYarnFactor(f *fields, key func(string) string) {
	slope := f.number("", key("mscale"), 0, 0, 1e3)
	slopeAll := f.number("", key("mscale_all_dim"), 0, 0, 1e3)
	switch {
	case f.isGGUF && r.AttnFactor != 0:
		r.AttnFactor *= yarnScale(r.Factor, 1)
	case r.AttnFactor == 0 && slope != 0 && slopeAll != 0:
		r.AttnFactor = yarnScale(r.Factor, slope) / yarnScale(r.Factor, slopeAll)
	}
}

func yarnScale(factor, slope float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(0.1*slope*detmath.Log(factor)) + 1
}

// table makes the frequencies as Hugging Face does, in float32: theta^(-2i/Dim), stretched.
func (r *Rope) table() tensor.Rope {
	n := r.Dim / 2
	inv := make([]float32, n)
	for i := range inv {
		inv[i] = 1 / r.power(i)
	}
	t := tensor.Rope{InvFreq: inv, RotDim: r.Dim, Scale: 1}
	switch {
	case r.Divisors != nil:
		for i := range inv {
			inv[i] /= r.Divisors[i]
		}
	case r.Kind == "linear":
		for i := range inv {
			inv[i] /= float32(r.Factor)
		}
	case r.Kind == "llama3":
		r.llama3(inv)
	case r.Kind == "yarn":
		r.yarn(inv)
		t.Scale = float32(yarnScale(r.Factor, 1))
	}
	if r.AttnFactor != 0 {
		t.Scale = float32(r.AttnFactor)
	}
	return t
}

// divided is the rope with its frequencies divided, (Dim/2); nil leaves them as they are.
func (r Rope) divided(by []float32) Rope {
	r.Divisors = by
	return r
}

// power is theta^(2i/Dim), rounded to float32.
func (r *Rope) power(i int) float32 {
	return float32(detmath.Pow(r.Theta, float64(float32(2*i)/float32(r.Dim))))
}

// llama3 divides frequencies whose waves are longer than the old context allows by Factor, keeps short waves, and blends
// between the two.
func (r *Rope) llama3(inv []float32) {
	orig, low, high := float64(r.OrigLen), r.LowFreq, r.HighFreq
	for i, f := range inv {
		wave := float32(2*math.Pi) / f
		switch {
		case wave > float32(orig/low):
			inv[i] = f / float32(r.Factor)
		case wave >= float32(orig/high):
			smooth := (float32(orig)/wave - float32(low)) / float32(high-low)
			inv[i] = float32(float32((1-smooth)*f)/float32(r.Factor)) + float32(smooth*f)
		}
	}
}

// yarn blends interpolated and original frequencies between the dimensions that turn BetaSlow and BetaFast times within
// the old context.
func (r *Rope) yarn(inv []float32) {
	low, high := r.correctionDim(r.BetaFast), r.correctionDim(r.BetaSlow)
	if !r.Fractions {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dim-1))
	if low == high {
		high += 0.001
	}
	for i := range inv {
		ramp := (float32(i) - float32(low)) / float32(high-low)
		keep := 1 - min(max(ramp, 0), 1)
		stretched := 1 / float32(float32(r.Factor)*r.power(i))
		inv[i] = float32(stretched*(1-keep)) + float32(inv[i]*keep)
	}
}

// correctionDim is the dimension whose wave turns the given number of times within OrigLen.
func (r *Rope) correctionDim(turns float64) float64 {
	return float64(r.Dim) * detmath.Log(float64(r.OrigLen)/(turns*2*math.Pi)) / (2 * detmath.Log(r.Theta))
}

// rsqrt is 1/sqrt(n), rounded to float32.
func rsqrt(n int) float32 { return float32(1 / math.Sqrt(float64(n))) }

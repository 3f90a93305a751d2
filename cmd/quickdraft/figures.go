package main

import (
	"fmt"
	"time"

	"quickdraft/asm/cpu"
	"quickdraft/engine"
)

// figures are the numbers of one answer.
type figures struct {
	PromptTokens    int     `json:"prompt_tokens"`
	PromptPerSecond float64 `json:"prompt_tokens_per_second"`
	DecodeTokens    int     `json:"decode_tokens"`
	DecodePerSecond float64 `json:"decode_tokens_per_second"`
	WeightGBps      float64 `json:"weight_gbps"` // GB of weights read a second while decoding
}

// newFigures derives rates; the first token belongs to the prompt's pass.
func newFigures(m *loaded, s engine.Stats) figures {
	f := figures{PromptTokens: s.PromptTokens, DecodeTokens: s.DecodedTokens}
	f.PromptPerSecond = rate(s.PromptTokens-s.CachedTokens, s.Prefill)
	f.DecodePerSecond = rate(s.DecodedTokens-1, s.Decode)
	f.WeightGBps = f.DecodePerSecond * float64(m.Model().WeightBytes()) / 1e9
	return f
}

// rate returns n a second, 0 where nothing was measured.
func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func (f figures) String() string {
	return fmt.Sprintf("prompt %d tokens, %.1f tokens/s; answer %d tokens, %.1f tokens/s, %.1f GB/s of weights",
		f.PromptTokens, f.PromptPerSecond, f.DecodeTokens, f.DecodePerSecond, f.WeightGBps)
}

// banner is the start-up line: model, instruction set, threads, context and whether anything speculates.
func (m *loaded) banner() string {
	c := m.Model().Config()
	return fmt.Sprintf("%s: %s, %s kernels, %d threads, context %d; speculation: off", m.path, c.Arch, cpu.Best(), m.Threads(), m.ContextLen())
}

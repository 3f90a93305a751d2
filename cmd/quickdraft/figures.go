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
	DraftN          int     `json:"draft_n"`
	DraftAccepted   int     `json:"draft_n_accepted"`
	DraftRate       float64 `json:"draft_acceptance_rate"` // of the guesses that were verified
	OfferedAt       []int   `json:"draft_n_per_position,omitempty"`
	AcceptedAt      []int   `json:"draft_n_accepted_per_position,omitempty"`
	DraftFailed     int     `json:"draft_failed,omitempty"` // rounds without a guess because of an error
	Lossy           bool    `json:"lossy,omitempty"`        // lenience was in force
	Drafters        []part  `json:"drafters,omitempty"`     // where there are several
}

// part is what one of several drafters did.
type part struct {
	Name          string `json:"name"`
	DraftN        int    `json:"draft_n"`
	DraftAccepted int    `json:"draft_n_accepted"`
}

// newFigures derives rates; the first token belongs to the prompt's pass.
func newFigures(m *loaded, s engine.Stats) figures {
	f := figures{PromptTokens: s.PromptTokens, DecodeTokens: s.DecodedTokens}
	f.PromptPerSecond = rate(s.PromptTokens-s.CachedTokens, s.Prefill)
	f.DecodePerSecond = rate(s.DecodedTokens-1, s.Decode)
	f.WeightGBps = rate(s.Passes, s.Decode) * float64(m.Model().WeightBytes()) / 1e9
	f.DraftN, f.DraftAccepted, f.DraftFailed, f.Lossy = s.Spec.Drafted, s.Spec.Accepted, s.Spec.Failed, s.Spec.Lossy
	f.OfferedAt, f.AcceptedAt = s.Spec.Offered, s.Spec.PerDepth
	f.DraftRate = float64(f.DraftAccepted) / float64(max(1, f.DraftN))
	if len(s.Spec.Parts) > 1 {
		for _, p := range s.Spec.Parts {
			f.Drafters = append(f.Drafters, part{p.Name, p.Drafted, p.Accepted})
		}
	}
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
	line := fmt.Sprintf("prompt %d tokens, %.1f tokens/s; answer %d tokens, %.1f tokens/s, %.1f GB/s of weights",
		f.PromptTokens, f.PromptPerSecond, f.DecodeTokens, f.DecodePerSecond, f.WeightGBps)
	if f.DraftN > 0 {
		line += fmt.Sprintf("; %d of %d guesses accepted", f.DraftAccepted, f.DraftN)
		for i, p := range f.Drafters {
			line += fmt.Sprintf("%s %s %d of %d", []string{":", ","}[min(i, 1)], p.Name, p.DraftAccepted, p.DraftN)
		}
	}
	if f.Lossy {
		line += ", lossy"
	}
	return line
}

// banner is the start-up line: model, instruction set, threads, context and whether anything speculates.
func (m *loaded) banner() string {
	c := m.Model().Config()
	threads := "threads"
	if m.Threads() == 1 {
		threads = "thread"
	}
	return fmt.Sprintf("%s: %s, %s kernels, %d %s, context %d; speculation: %s",
		m.path, c.Arch, cpu.Best(), m.Threads(), threads, m.ContextLen(), m.spec.describe(m.Spec()))
}

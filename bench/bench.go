// Package bench measures passes over a model beside the limits of the machine they run on: memory read bandwidth and the
// peak of int8 products. Limits and passes are interleaved, because both drift within minutes on shared machines.
package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quickdraft/asm/cpu"
	"quickdraft/kvcache"
	"quickdraft/machine"
	"quickdraft/model"
)

// Head is what every result says about its run, so that others can repeat it.
type Head struct {
	Command string `json:"command"`
	Machine string `json:"machine"`
	ISA     string `json:"isa"` // level of the kernels
	Threads int    `json:"threads"`
}

// NewHead describes this process.
func NewHead(threads int) Head {
	args := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	return Head{Command: strings.Join(args, " "), Machine: machine.Describe(), ISA: cpu.Best().String(), Threads: threads}
}

// String is the machine line and the command.
func (h Head) String() string {
	return fmt.Sprintf("machine  %s\ncommand  %s\nkernels  %s, %d threads", h.Machine, h.Command, h.ISA, h.Threads)
}

// Work is what a model asks of the machine.
type Work struct {
	Model       string `json:"model"`
	WeightBytes int64  `json:"weight_bytes"` // that a pass reads, whatever the number of its tokens
	TokenMACs   int64  `json:"token_macs"`   // multiply-adds of a token with weights, logits left out
	LogitMACs   int64  `json:"logit_macs"`   // of each row of logits
}

// String is one line.
func (w Work) String() string {
	return fmt.Sprintf("model    %s, %.1f MB of weights a pass, %.2f G multiply-adds a token", w.Model,
		float64(w.WeightBytes)/1e6, float64(w.TokenMACs+w.LogitMACs)/1e9)
}

// Roofline is the least time, in seconds, of a pass over nTokens tokens with nLogits rows of logits: the larger of
// reading all weights and of multiplying. Attention and the operations between matrices are not counted.
func (w Work) Roofline(nTokens, nLogits int, at Limit) float64 {
	read := float64(w.WeightBytes) / 1e9 / at.DRAM
	if at.Peak == 0 {
		return read
	}
	return max(read, (float64(w.TokenMACs)*float64(nTokens)+float64(w.LogitMACs)*float64(nLogits))/1e9/at.Peak)
}

// Runner feeds random tokens to a model.
type Runner struct {
	Work   Work
	Limits *Limits

	model *model.Model
	cache *kvcache.Cache
	seq   *kvcache.Seq
	rng   *rand.Rand
	ids   []int32
	rows  []int32
}

// NewRunner prepares runs of sequences of up to maxTokens tokens. The model stays the caller's.
func NewRunner(name string, m *model.Model, maxTokens int) (*Runner, error) {
	if trained := m.Config().ContextLen; maxTokens < 1 || maxTokens > trained {
		return nil, fmt.Errorf("a sequence of %d tokens: want 1 to %d, what the model was made for", maxTokens, trained)
	}
	limits, err := NewLimits(m.Pool())
	if err != nil {
		return nil, err
	}
	cache, err := m.NewCache((maxTokens+kvcache.BlockTokens-1)/kvcache.BlockTokens + 1)
	if err != nil {
		limits.Close()
		return nil, err
	}
	r := &Runner{
		Work:   Work{Model: name, WeightBytes: m.WeightBytes()},
		Limits: limits, model: m, cache: cache, seq: cache.NewSeq(), rng: rand.New(rand.NewPCG(1, 1)),
	}
	r.Work.TokenMACs, r.Work.LogitMACs = m.MACs()
	return r, nil
}

// Close frees the cache and what limits are measured with.
func (r *Runner) Close() {
	r.cache.Close()
	r.Limits.Close()
}

// forward runs n tokens and wants the logits of the last nLogits; it commits nothing.
func (r *Runner) forward(ids []int32, nLogits int) ([]float32, error) {
	r.rows = r.rows[:0]
	for i := len(ids) - nLogits; i < len(ids); i++ {
		r.rows = append(r.rows, int32(i))
	}
	out, err := r.model.Forward(&model.Batch{Tokens: ids, Spans: []model.Span{{Seq: r.seq, N: len(ids)}}, Logits: r.rows})
	return out.Data, err
}

// fill makes the sequence n random tokens long.
func (r *Runner) fill(n int) error {
	r.seq.Truncate(0)
	for n > 0 {
		k := min(n, r.model.MaxBatch())
		if _, err := r.forward(r.random(k), 1); err != nil {
			return err
		}
		r.seq.Commit(k)
		n -= k
	}
	return nil
}

// random returns n token ids, valid until the next call.
func (r *Runner) random(n int) []int32 {
	r.ids = r.ids[:0]
	for range n {
		r.ids = append(r.ids, int32(r.rng.IntN(r.model.Config().Vocab)))
	}
	return r.ids
}

// Median returns the middle of the values, 0 for none.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Spread returns how far the middle of the values reaches, (90th percentile - 10th percentile) / median; with fewer than
// ten values that is the whole range.
func Spread(x []float64) float64 {
	m := Median(x)
	if m == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	skip := len(s) / 10
	return (s[len(s)-1-skip] - s[skip]) / m
}

// Package bench measures passes over a model beside the limits of the machine they run on: memory read bandwidth and the
// peak of int8 products. Limits and passes are interleaved, because both drift within minutes on shared machines.
package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	return Head{Command: commandLine(os.Args, os.Getenv), Machine: machine.Describe(), ISA: cpu.Best().String(), Threads: threads}
}

// figureVariables are the environment variables that change how fast this process runs.
var figureVariables = []string{cpu.EnvISA, "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT"}

// commandLine is what a shell runs as this process was run, the folder of the executable left out.
func commandLine(args []string, env func(name string) string) string {
	var words []string
	for _, name := range figureVariables {
		if value := env(name); value != "" {
			words = append(words, name+"="+shellWord(value))
		}
	}
	words = append(words, shellWord(filepath.Base(args[0])))
	for _, arg := range args[1:] {
		words = append(words, shellWord(arg))
	}
	return strings.Join(words, " ")
}

// shellWord quotes s where a shell would see more in it than one word.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,=@%+", r)
	}
	if s != "" && strings.TrimLeftFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
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

	now  func() time.Time
	pass func(ids []int32, nLogits int) ([]float32, error) // forward
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
	r.now, r.pass = time.Now, r.forward
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
		if _, err := r.pass(r.random(k), 1); err != nil {
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

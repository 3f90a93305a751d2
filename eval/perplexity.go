// Package eval measures what a model makes of a text: how well it predicts it, and which of its activations are large.
package eval

import (
	"context"
	"fmt"
	"math"

	"quickdraft/internal/detmath"
	"quickdraft/kvcache"
	"quickdraft/model"
)

// Options say how a text is read.
type Options struct {
	// Context is the length of the windows that the text is cut into, in tokens; what is left at its end is not read.
	Context int
	// Windows is the number of windows to read at most; 0 reads all.
	Windows int
	// BOS, if not negative, replaces the first token of every window: models that were trained with one expect it there.
	BOS int32
	// K8 and V8 keep keys and values of the KV cache in 8 bits instead of float16.
	K8, V8 bool
	// Progress, if set, is called after each window.
	Progress func(done, total int)
}

// MinContext is the shortest window: it has one token to predict from and one to predict.
const MinContext = 4

// Perplexity is how well a model predicts a text.
type Perplexity struct {
	Perplexity float64 `json:"perplexity"`     // e to the mean negative log-likelihood
	Error      float64 `json:"standard_error"` // of Perplexity
	NLL        float64 `json:"mean_nll"`       // in nats a token
	Tokens     int     `json:"tokens"`         // predicted
	Windows    int     `json:"windows"`
	Context    int     `json:"context"`
}

// String is the result for people.
func (p *Perplexity) String() string {
	return fmt.Sprintf("perplexity %.4f +/- %.5f over %d tokens in %d windows of %d (%.5f nats a token)",
		p.Perplexity, p.Error, p.Tokens, p.Windows, p.Context, p.NLL)
}

// reader feeds windows to a model.
type reader struct {
	model  *model.Model
	cache  *kvcache.Cache
	seq    *kvcache.Seq
	opts   Options
	batch  model.Batch
	wanted []int32
	exps   []float64 // (Vocab)
	sum    sums
}

// sums are those of the negative log-likelihoods.
type sums struct {
	n           int
	nll, square float64
}

// maxRows is the number of tokens of one pass at most. A row of logits takes a megabyte where the vocabulary is large.
const maxRows = 64

// newReader checks the options and makes room for a window.
func newReader(m *model.Model, ids []int32, o Options) (*reader, error) {
	trained := m.Config().ContextLen
	switch {
	case o.Context < MinContext || o.Context > trained:
		return nil, fmt.Errorf("context of %d tokens: want %d to %d, what the model was made for", o.Context, MinContext, trained)
	case len(ids) < o.Context:
		return nil, fmt.Errorf("a text of %d tokens: want at least %d, one window", len(ids), o.Context)
	case o.Windows < 0:
		return nil, fmt.Errorf("%d windows: want 1 or more, or 0 for all", o.Windows)
	}
	cfg := m.CacheConfig((o.Context+kvcache.BlockTokens-1)/kvcache.BlockTokens + 1)
	cfg.K8, cfg.V8 = o.K8, o.V8
	cache, err := kvcache.New(cfg)
	if err != nil {
		return nil, err
	}
	return &reader{model: m, cache: cache, seq: cache.NewSeq(), opts: o, exps: make([]float64, m.Config().Vocab)}, nil
}

// Measure reads the text in windows and predicts the second half of each: every token but the first of a window has its
// place, and the tokens of the first half serve as context only. That is how perplexities are usually stated, and so are
// the standard errors.
func Measure(ctx context.Context, m *model.Model, ids []int32, o Options) (*Perplexity, error) {
	r, err := newReader(m, ids, o)
	if err != nil {
		return nil, err
	}
	defer r.cache.Close()
	windows, err := r.read(ctx, ids)
	if err != nil {
		return nil, err
	}
	p := &Perplexity{Tokens: r.sum.n, Windows: windows, Context: o.Context}
	n := float64(p.Tokens)
	p.NLL = r.sum.nll / n
	p.Perplexity = detmath.Exp(p.NLL)
	if variance := r.sum.square/n - float64(p.NLL*p.NLL); variance > 0 && p.Tokens > 1 {
		p.Error = float64(p.Perplexity * math.Sqrt(variance/(n-1)))
	}
	return p, nil
}

// read goes through the windows.
func (r *reader) read(ctx context.Context, ids []int32) (windows int, err error) {
	total := len(ids) / r.opts.Context
	if r.opts.Windows > 0 {
		total = min(total, r.opts.Windows)
	}
	window := make([]int32, r.opts.Context)
	for i := range total {
		copy(window, ids[i*r.opts.Context:])
		if r.opts.BOS >= 0 {
			window[0] = r.opts.BOS
		}
		if err := r.window(ctx, window); err != nil {
			return i, fmt.Errorf("window %d of %d: %w", i, total, err)
		}
		if r.opts.Progress != nil {
			r.opts.Progress(i+1, total)
		}
	}
	return total, nil
}

// window adds the negative log-likelihoods of the window's second half.
func (r *reader) window(ctx context.Context, ids []int32) error {
	first := len(ids) / 2 // the position whose successor is the first to count
	rows := min(maxRows, r.model.MaxBatch())
	r.seq.Truncate(0)
	for at := 0; at < len(ids)-1; {
		n := min(rows, len(ids)-1-at)
		r.wanted = r.wanted[:0]
		for i := max(first-at, 0); i < n; i++ {
			r.wanted = append(r.wanted, int32(i))
		}
		r.batch = model.Batch{Tokens: ids[at : at+n], Spans: []model.Span{{Seq: r.seq, N: n, Prompt: len(ids)}}, Logits: r.wanted}
		logits, err := r.model.Forward(&r.batch)
		if err != nil {
			return err
		}
		for i, row := range r.wanted {
			r.add(logits.Row(i), ids[at+int(row)+1])
		}
		r.seq.Commit(n)
		at += n
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// add counts what a row of logits says about the token that comes next.
func (r *reader) add(logits []float32, next int32) {
	top := logits[0]
	for _, x := range logits {
		top = max(top, x)
	}
	for i, x := range logits {
		r.exps[i] = float64(x)
	}
	sum := detmath.ExpSum(r.exps, r.exps, float64(top), 1)
	nll := float64(top) + detmath.Log(sum) - float64(logits[next])
	r.sum.n++
	r.sum.nll += nll
	r.sum.square += float64(nll * nll)
}

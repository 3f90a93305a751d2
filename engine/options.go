package engine

import (
	"cmp"
	"fmt"
	"time"

	"quickdraft/machine"
	"quickdraft/model"
)

// Options configure an engine. Zero values mean the defaults named here.
type Options struct {
	Context    int // tokens a request may hold, prompt and answer; default the model's, at most 4096 and KVTokens unless set
	Threads    int // default machine.Threads(), at most MaxThreads()
	KVTokens   int // tokens the KV cache holds over all requests, at least Context; default Context
	MaxRunning int // requests in flight; default 16, at most MaxRunning
	QueueLimit int // requests waiting beside them; default 1024
	Chunk      int // most tokens in one pass; default 512, at most MaxChunk
	// StallTarget is how long a pass and the drafting for it may take that carries tokens of prompts beside running answers, which
	// wait for it; half of it is the most that draft models read prompts for between two passes. Prompts get as many tokens of it as recent passes say. Default DefaultStallTarget. Without running answers passes are full.
	StallTarget time.Duration
	Spec        SpecOptions // guessing ahead
	CacheTypeK  string      // format of the keys in the KV cache: "f16", the default, or "q8_0"
	CacheTypeV  string      // format of the values
	// Contiguous keeps the KV cache in the order of positions, for one request at a time: MaxRunning is 1, choices follow one
	// another, and Beams is refused. The prefix cache knows what the last requests left in place.
	Contiguous bool
	NoPrefix   bool                    // forget the KV of finished requests instead of looking for their prefixes in new ones
	SelfCheck  bool                    // verify the KV caches, a draft's too, after every pass and when idle, and panic: for tests
	F32        bool                    // float32 weights and activations throughout, for comparison
	Progress   func(done, total int64) // loading progress, bytes; may be nil
	Stop       func() error            // asked while loading; its error ends it; may be nil
	// Check is asked before any weight is read, with a configuration whose Vocab is not known yet and the context that requests
	// will have; its error ends Open; may be nil.
	Check    func(c model.Config, context int) error
	TilesDir string            // folder that keeps repacked weights for the next start; "" keeps none
	Note     func(line string) // told in one line when TilesDir cannot be used or a drafter panics; may be nil
}

// MaxChunk and MaxRunning are the largest values of Options.Chunk and Options.MaxRunning.
const (
	MaxChunk   = 1 << 16
	MaxRunning = 1 << 16
)

// DefaultStallTarget is Options.StallTarget where none is set. With it the slowest of a few hundred passes stays below 250 ms,
// since the machine, a longer context and the rounding of a chunk make single passes up to half as long again: of 3,848 gaps
// between the tokens of 8 streams of a 1.5B model beside a prompt of 4,000 tokens the longest was 201 ms on two cores.
const DefaultStallTarget = 150 * time.Millisecond

// maxLength bounds what is counted in tokens or waiting requests, so that sizes made of it do not overflow.
const maxLength = 1 << 31

// MaxThreads is how many workers an engine has at most: four for each CPU that this process may use, and always 64. Each one
// beyond the CPUs makes all wait for the scheduler.
func MaxThreads() int { return max(4*machine.CPUs(), 64) }

// fill puts the defaults in and checks what the caller set.
func (o *Options) fill() error {
	if o.Contiguous {
		if o.MaxRunning > 1 {
			return fmt.Errorf("running requests: %d with a contiguous KV cache, which holds 1", o.MaxRunning)
		}
		o.MaxRunning = 1
	}
	if o.StallTarget < 0 {
		return fmt.Errorf("stall target: %v is negative", o.StallTarget)
	}
	if o.StallTarget == 0 {
		o.StallTarget = DefaultStallTarget
	}
	for _, f := range []struct {
		name  string
		value *int
		def   int
		most  int
	}{
		{"threads", &o.Threads, machine.Threads(), MaxThreads()}, {"running requests", &o.MaxRunning, 16, MaxRunning},
		{"queue limit", &o.QueueLimit, 1024, maxLength}, {"chunk", &o.Chunk, 512, MaxChunk}, {"context", &o.Context, 0, maxLength},
		{"kv tokens", &o.KVTokens, 0, maxLength},
	} {
		if *f.value < 0 {
			return fmt.Errorf("%s: %d is negative", f.name, *f.value)
		}
		if *f.value > f.most {
			return fmt.Errorf("%s: %d, want at most %d (0: the default)", f.name, *f.value, f.most)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	return o.Spec.fill()
}

// ContextError is the error of Open for a context that the model was not trained for.
type ContextError struct{ Asked, Trained int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("context: %d tokens asked for, the model was trained for %d", e.Asked, e.Trained)
}

// contextFor is how many tokens a request may hold with a model that was trained for some.
func (o *Options) contextFor(trained int) (int, error) {
	n := o.Context
	if n == 0 {
		n = min(trained, 4096, cmp.Or(o.KVTokens, maxLength))
	}
	if trained > 0 && n > trained {
		return 0, &ContextError{n, trained}
	}
	if tokens := cmp.Or(o.KVTokens, n); tokens < n {
		return 0, fmt.Errorf("kv tokens: %d are less than a context of %d", tokens, n)
	}
	return n, nil
}

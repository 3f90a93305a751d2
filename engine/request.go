package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/sample"
)

// Finish says why an answer ended.
type Finish string

// The reasons a request can end for. FinishError comes with an error, FinishCancelled with the context's.
const (
	FinishStop      Finish = "stop"      // end-of-generation token or Stopper
	FinishLength    Finish = "length"    // MaxTokens or the context is used up
	FinishCancelled Finish = "cancelled" // the caller's context ended
	FinishError     Finish = "error"
)

// ErrQueueFull is returned by Submit when Options.QueueLimit requests already wait.
var ErrQueueFull = errors.New("queue full")

// ErrClosed is returned for requests that arrive at, or are still running in, a closed engine.
var ErrClosed = errors.New("engine closed")

// Stopper decides from the accepted tokens, in order, whether the answer is over. The engine knows no text: whoever
// does (the server, the command line) wraps its stop strings in one. Accept is called once a token, by one goroutine at a time, which is not always the same one;
// Stoppers of other requests are called at the same time. One that panics ends its request with an error.
type Stopper interface {
	Accept(id int32) (stop bool)
}

// Request is one generation.
type Request struct {
	Prompt    []int32       // at least one token
	MaxTokens int           // tokens to emit at most; 0 prefills only, negative means as many as the context holds
	Sampling  sample.Params // how logits become a token
	EOG       []int32       // ids that end the answer; nil means the model's own
	IgnoreEOS bool          // go on past EOG
	Stop      Stopper       // nil: none
	Priority  int           // higher goes first; equal priorities in order of arrival
	NoSpec    bool          // no guesses for this request
	SpecMax   int           // guesses a round at most, below what the engine allows; 0: as the engine does
	SpecMin   int           // fewer guesses are not verified; 0: as the engine does
	SpecPMin  float64       // stop drafting where the drafter believes less than this; 0: as the engine does
	SpecFixed int           // guesses in every round, up to what the engine allows, whether they pay or not; 0: as the engine does

	// SpecMethod is the one of the engine's drafters that guesses; "": whichever is best, or all.
	SpecMethod string

	// Matcher restricts the answer's tokens; nil allows all. It moves along with the answer, so no two requests share one. It and
	// its forks are called by one goroutine at a time, which is not always the same one, while those of other requests are called
	// too. One that panics ends its request with an error.
	Matcher drafter.Matcher

	// Reproducible asks for the very tokens that plain decoding gives for Sampling.Seed, whatever is guessed. Without it a
	// sampled answer has the target's distribution, and guesses decide which of its draws comes out. Lenience, which changes
	// answers, goes before it.
	Reproducible bool

	// Logprobs asks for the logarithm of each token's probability, TopLogprobs for those of the most probable tokens beside
	// it. They are those of the raw logits, or with Sampling.LogprobsAfter those that the token was drawn with.
	Logprobs    bool
	TopLogprobs int // 0 to MaxTopLogprobs; more than 0 needs Logprobs

	// released, when not nil, is called in the loop once the answer has ended well, before any other request can take the blocks
	// that it leaves to the prefix cache.
	released func()
}

// MaxTopLogprobs is how many probable tokens a request may ask for.
const MaxTopLogprobs = 64

// MaxChoices is how many answers to one prompt a request may ask for.
const MaxChoices = 128

// Token is one step of an answer.
type Token struct {
	ID      int32
	HasID   bool
	Finish  Finish           // set on the last one, which carries no ID
	Err     error            // with FinishError and FinishCancelled
	Logprob float64          // natural logarithm, when Request.Logprobs asks for it
	Top     []sample.Logprob // (TopLogprobs) in descending order
}

// Stats are the figures of one finished or running request.
type Stats struct {
	PromptTokens  int           // tokens of the prompt
	CachedTokens  int           // of these, found in the prefix cache
	DecodedTokens int           // tokens emitted, of a search in all its answers
	Passes        int           // of the target that gave tokens after the first; guesses make them fewer than the tokens
	Queued        time.Duration // from Submit to the first pass
	Prefill       time.Duration // from the first pass to the first token
	Decode        time.Duration // from the first token to the last
	Spec          SpecStats
}

// Ticket is the handle of a submitted request.
type Ticket struct {
	e   *Engine
	r   *run
	out chan Token
}

// Tokens delivers the answer; the channel is closed after the token that carries Finish.
func (t *Ticket) Tokens() <-chan Token { return t.out }

// Stats returns the request's figures; final once the channel of Tokens is closed.
func (t *Ticket) Stats() Stats {
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	s := t.r.stats
	s.Spec = s.Spec.clone()
	return s
}

// run is a request inside the engine. Only the engine's loop touches it after Submit, except where noted.
type run struct {
	Request
	ctx     context.Context
	input   []int32 // what the encoder reads; nil without one
	ids     []int32 // prompt and every emitted token
	others  []*run  // the other choices, until this one has the prompt's last logits
	seq     *kvcache.Seq
	sampler *sample.Sampler
	learned float64 // the sampler's state before the current choice
	picked  []Token // what the current pass chose
	dist    sample.Dist
	spec    speculation
	harm    harm            // that drafters did to Matcher
	lent    drafter.Matcher // Matcher as they get it
	out     chan Token
	order   uint64 // arrival number
	turn    uint64 // Engine.turns when the last pass carried its next token
	limit   int    // len(ids) at which the answer is full
	stats   Stats  // guarded by Engine.mu
	arrived time.Time
	started time.Time
	first   time.Time
}

// pending returns the tokens that the target has not seen yet: a prompt's rest, or the one token sampled last.
func (r *run) pending() []int32 { return r.ids[r.seq.Len():] }

// answers reports whether r or a choice that waits for its prompt needs logits.
func (r *run) answers() bool {
	return r.MaxTokens > 0 || slices.ContainsFunc(r.others, (*run).answers)
}

// emitted returns how many tokens of the answer exist.
func (r *run) emitted() int { return len(r.ids) - len(r.Prompt) }

// endsPrompt reports whether the token that is pending is the last one of a prompt that earlier passes computed in pieces. It gets
// no guesses, as it would not at the end of a longer piece: neighbours and pace cut prompts, and must not decide from which token
// on an answer has guesses.
func (r *run) endsPrompt() bool { return r.emitted() == 0 && r.stats.CachedTokens < len(r.Prompt)-1 }

// outBuffer is how many tokens of an answer may lie undelivered; the request pauses until its reader has caught up. It
// holds more than one pass can emit.
const outBuffer = 4 * maxGuesses

// paused reports whether the reader is so far behind that another pass might not find room for its tokens and the end.
func (r *run) paused() bool {
	return cap(r.out)-len(r.out) < min(r.limit-len(r.ids), maxGuesses+1)+1
}

// validate checks a request against the model before any work is done.
func (e *Engine) validate(req *Request) error {
	if len(req.Prompt) == 0 {
		return errors.New("prompt: 0 tokens, need at least 1")
	}
	if n, limit := len(req.Prompt), e.contextLen; n >= limit && req.MaxTokens != 0 || n > limit {
		return fmt.Errorf("prompt: %d tokens do not fit a context of %d that must also hold the answer", n, limit)
	}
	if err := e.checkSpec(req); err != nil {
		return err
	}
	vocab := e.model.Config().Vocab
	for i, id := range req.Prompt {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("prompt[%d]: token %d is not in the vocabulary, ids go from 0 to %d", i, id, vocab-1)
		}
	}
	if n := req.TopLogprobs; n < 0 || n > MaxTopLogprobs || n > 0 && !req.Logprobs {
		return fmt.Errorf("top_logprobs: %d with logprobs %v, want 0 to %d and logprobs true", n, req.Logprobs, MaxTopLogprobs)
	}
	return nil
}

package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"quickdraft/internal/detmath"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
)

// MaxBeams is the most hypotheses that a beam search may keep.
const MaxBeams = 32

// BeamOptions configure Beams.
type BeamOptions struct {
	Beams         int     // hypotheses kept from token to token, 1 to MaxBeams
	LengthPenalty float64 // a hypothesis of n tokens has the score: sum of log probabilities / n^LengthPenalty; -8 to 8
}

// Beam is one answer of a beam search.
type Beam struct {
	IDs    []int32 // with the token that ended it
	Score  float64
	Finish Finish // FinishStop or FinishLength
}

// hypothesis is a beam that grows.
type hypothesis struct {
	ids []int32 // with the prompt
	sum float64 // of log probabilities
	seq *kvcache.Seq
	top []sample.Logprob // candidates for the next token
}

// search is a running beam search. Its fields belong to the engine's loop while a step runs.
type search struct {
	e    *Engine
	r    *run
	o    BeamOptions
	live []*hypothesis
	done []Beam // at most o.Beams, best first
}

// Beams returns the best answers that a beam search finds, best first, at most o.Beams. It maximises the probability that
// the penalties and biases of req.Sampling leave; temperature, truncation and guesses play no part. A token of req.EOG
// ends a hypothesis, and the search ends when no growing one can become better than the ended ones. Other requests run in
// between its passes.
func (e *Engine) Beams(ctx context.Context, req Request, o BeamOptions) ([]Beam, error) {
	switch {
	case o.Beams < 1 || o.Beams > min(MaxBeams, e.opts.Chunk):
		return nil, fmt.Errorf("num_beams: %d, want 1 to %d", o.Beams, min(MaxBeams, e.opts.Chunk))
	case !(math.Abs(o.LengthPenalty) <= 8):
		return nil, fmt.Errorf("length_penalty: %v, want -8 to 8", o.LengthPenalty)
	case e.encodes():
		return nil, fmt.Errorf("num_beams: %d: %w", o.Beams, errEncoder)
	case e.opts.Contiguous:
		return nil, fmt.Errorf("num_beams: %d: not with a contiguous KV cache, which holds one sequence", o.Beams)
	case req.MaxTokens == 0:
		return nil, fmt.Errorf("max_tokens: 0 tokens leave nothing to search")
	}
	req.Sampling.Temperature, req.Sampling.LogprobsAfter, req.Sampling.Mirostat = 0, true, 0
	if err := e.validate(&req); err != nil {
		return nil, err
	}
	r, err := e.newRun(ctx, req)
	if err != nil {
		return nil, err
	}
	s := &search{e: e, r: r, o: o}
	if err := e.do(s.begin); err != nil {
		return nil, err
	}
	for more := true; more && err == nil; {
		if err = context.Cause(ctx); err == nil {
			err = e.do(func() (err error) { more, err = s.step(); return err })
		}
	}
	if closed := e.do(s.end); err == nil {
		err = closed
	}
	return s.done, err
}

// begin makes the first hypothesis, the prompt.
func (s *search) begin() error {
	s.e.nSearches++
	h := &hypothesis{ids: s.r.ids, seq: s.e.cache.NewSeq()}
	if !s.e.opts.NoPrefix {
		h.seq.Adopt(h.ids[:len(h.ids)-1])
	}
	s.live = []*hypothesis{h}
	return nil
}

// end frees what is left.
func (s *search) end() error {
	s.e.nSearches--
	for _, h := range s.live {
		h.seq.Free()
	}
	s.live = nil
	return nil
}

// step runs one pass: a chunk of the prompt, or a token of every hypothesis. It reports whether the search goes on.
func (s *search) step() (more bool, err error) {
	var b model.Batch
	last := true
	for _, h := range s.live {
		pending := h.ids[h.seq.Len():]
		n := min(len(pending), s.e.passes.chunkBeside(), s.e.opts.Chunk)
		last = n == len(pending)
		b.Tokens = append(b.Tokens, pending[:n]...)
		b.Spans = append(b.Spans, model.Span{Seq: h.seq, N: n})
		if last {
			b.Logits = append(b.Logits, int32(len(b.Tokens)-1))
		}
		if err := s.e.takeRoom(h.seq, n); err != nil {
			return false, err
		}
	}
	logits, err := s.e.forward(&b)
	if err != nil {
		return false, err
	}
	for i, h := range s.live {
		h.seq.Commit(b.Spans[i].N)
		if last {
			if h.top, err = s.r.sampler.Logprobs(nil, logits.Row(i), h.ids, h.ids[0], 2*s.o.Beams); err != nil {
				return false, err
			}
		}
	}
	return !last || s.grow(), nil
}

// candidate is a hypothesis and a token after it.
type candidate struct {
	parent int
	id     int32
	sum    float64
}

// grow replaces the hypotheses by the best of their continuations and reports whether the search goes on. Of the best
// 2*Beams continuations those that end count only among the first Beams; so there are always enough that do not.
func (s *search) grow() bool {
	var all []candidate
	for i, h := range s.live {
		for _, c := range h.top[1:] {
			all = append(all, candidate{i, c.ID, h.sum + c.Logprob})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.sum, a.sum) })
	full := len(s.live[0].ids)+1 >= s.r.limit
	var next []*hypothesis
	for rank, c := range all[:min(len(all), 2*s.o.Beams)] {
		h := s.live[c.parent]
		ids := append(h.ids[:len(h.ids):len(h.ids)], c.id)
		stops := !s.r.IgnoreEOS && slices.Contains(s.r.EOG, c.id)
		switch {
		case stops && rank < s.o.Beams:
			s.finish(ids, c.sum, FinishStop)
		case !stops && full:
			s.finish(ids, c.sum, FinishLength)
			next = append(next, h)
		case !stops:
			next = append(next, &hypothesis{ids: ids, sum: c.sum, seq: h.seq.Fork()})
		}
		if len(next) == s.o.Beams {
			break
		}
	}
	if full {
		return false
	}
	for _, h := range s.live {
		h.seq.Free()
	}
	s.live = next
	return len(next) > 0 && !s.settled()
}

// settled reports whether no hypothesis can become better than the ended ones, as far as the present length tells.
func (s *search) settled() bool {
	return len(s.done) == s.o.Beams && s.done[len(s.done)-1].Score >= s.score(s.live[0].sum, len(s.live[0].ids))
}

// score is that of a hypothesis of n tokens with its prompt.
func (s *search) score(sum float64, n int) float64 {
	return sum / detmath.Pow(float64(n-len(s.r.Prompt)), s.o.LengthPenalty)
}

// finish puts an answer among the best.
func (s *search) finish(ids []int32, sum float64, why Finish) {
	b := Beam{IDs: ids[len(s.r.Prompt):], Score: s.score(sum, len(ids)), Finish: why}
	at, _ := slices.BinarySearchFunc(s.done, b, func(x, y Beam) int {
		if x.Score >= y.Score {
			return -1
		}
		return 1
	})
	s.done = slices.Insert(s.done, at, b)
	s.done = s.done[:min(len(s.done), s.o.Beams)]
}

// takeRoom reserves for a search, which sends running requests back to the queue when blocks run out.
func (e *Engine) takeRoom(seq *kvcache.Seq, n int) error {
	for {
		err := seq.Reserve(n)
		if err == nil || len(e.active) == 0 {
			return err
		}
		e.preempt(slices.MaxFunc(e.active, func(a, b *run) int {
			if a.before(b) {
				return -1
			}
			return 1
		}))
	}
}

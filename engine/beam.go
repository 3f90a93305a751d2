package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"quickdraft/drafter"
	"quickdraft/internal/detmath"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// MaxBeams is the most hypotheses that a beam search may keep.
const MaxBeams = 32

// BeamOptions configure Beams.
type BeamOptions struct {
	Beams         int     // hypotheses kept from token to token, 1 to MaxBeams
	LengthPenalty float64 // a hypothesis of n tokens has the score: sum of log probabilities / n^LengthPenalty; -8 to 8
	Stats         *Stats  // filled in at the end when not nil; each hypothesis counts as a request there
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

	match drafter.Matcher // behind ids; nil: every token is allowed
	place                 // in the forest of guesses, once verified
}

// search is a running beam search. Its fields belong to the engine's loop while a step runs.
type search struct {
	e    *Engine
	r    *run
	o    BeamOptions
	live []*hypothesis
	done []Beam // at most o.Beams, best first
	// searched is how many tokens the longest hypotheses have got.
	searched int
	beamSpec
}

// Beams returns the best answers that a beam search finds, best first, at most o.Beams. It maximises the probability that
// the penalties, biases and matcher of req leave; temperature and truncation play no part. A token of req.EOG ends a
// hypothesis, and the search ends when no growing one can become better than the ended ones. Other requests run in between
// its passes. A search waits in the queue until the KV blocks are free that it may come to need; one that needs more than the
// cache has is refused. With a drafter the search is guessed ahead, which changes neither answers nor scores (see beamSpec).
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
	case req.Stop != nil:
		return nil, fmt.Errorf("num_beams: %d: a Stopper follows one answer, give the ids that end one as EOG", o.Beams)
	case req.SpecMethod != "" || req.SpecMin > 0 || req.SpecPMin > 0:
		return nil, fmt.Errorf("num_beams: %d: a search guesses as the engine does, and takes no method, least number or least probability of its own", o.Beams)
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
	if err := s.queue(); err != nil {
		return nil, err
	}
	if err := e.patiently(ctx, s.enterPool); err != nil {
		e.leaveLine(s.r)
		return nil, err
	}
	for more := true; more && err == nil; {
		err = e.patiently(ctx, func() (err error) { more, err = s.step(); return err })
	}
	if closed := e.do(s.end); err == nil {
		err = closed
	}
	if o.Stats != nil {
		*o.Stats = r.stats
	}
	return s.done, err
}

// begin makes the first hypothesis, the prompt.
func (s *search) begin() error {
	s.e.nSearches++
	s.r.started = s.e.now()
	h := &hypothesis{ids: s.r.ids, seq: s.e.cache.NewSeq(), match: s.r.Matcher}
	if !s.e.opts.NoPrefix {
		s.r.stats.CachedTokens = h.seq.Adopt(h.ids[:len(h.ids)-1])
	}
	s.live = []*hypothesis{h}
	return nil
}

// end frees what is left.
func (s *search) end() error {
	s.e.nSearches--
	s.e.searches.claimed -= s.worst()
	freeAll(s.live)
	s.live = nil
	s.endGuesses()
	if s.stream != nil {
		s.e.beamController(s.o.Beams).Ended(s.searched)
	}
	for _, b := range s.done {
		s.r.stats.DecodedTokens += len(b.IDs)
	}
	if !s.r.first.IsZero() {
		s.r.stats.Prefill, s.r.stats.Decode = s.r.first.Sub(s.r.started), s.e.now().Sub(s.r.first)
	}
	return nil
}

func freeAll(all []*hypothesis) {
	for _, h := range all {
		h.seq.Free()
	}
}

// step runs one pass: a chunk of the prompt, or a token of every hypothesis and what is guessed after it. It reports whether
// the search goes on.
func (s *search) step() (more bool, err error) {
	chunk := min(s.e.passes.chunkBeside(), s.e.opts.Chunk)
	for _, h := range s.live {
		if err := s.takeRoom(h.seq, min(len(h.pending()), chunk)); err != nil {
			return false, err
		}
	}
	s.guess()
	if err := s.r.harm.err; err != nil {
		return false, err
	}
	var b model.Batch
	last := s.pack(&b, chunk)
	began := s.e.now()
	logits, err := s.e.forward(&b)
	if err != nil {
		s.e.notice(err)
		return s.forgive(err)
	}
	s.pass = s.e.now().Sub(began)
	if !s.r.first.IsZero() {
		s.r.stats.Passes++
	}
	if s.nodes() > 0 {
		return s.replay(logits)
	}
	for i, h := range s.live {
		h.seq.Commit(b.Spans[i].N)
		if last {
			if err := s.rate(h, logits, i); err != nil {
				return false, err
			}
		}
	}
	if !last {
		return true, nil
	}
	s.judged(false)
	return s.grow()
}

// pack fills the batch with up to chunk pending tokens of every hypothesis and its guesses. It reports whether these end with
// the last tokens; then rows of logits are wanted for the last token and all guesses of each hypothesis.
func (s *search) pack(b *model.Batch, chunk int) (last bool) {
	for i, h := range s.live {
		pending := h.pending()
		n := min(len(pending), chunk)
		last = n == len(pending)
		span := model.Span{Seq: h.seq, N: n, Prompt: len(s.r.Prompt)}
		b.Tokens = append(b.Tokens, pending[:n]...)
		row := len(b.Tokens) - 1
		if i < len(s.trees) {
			if t := &s.trees[i]; t.Len() > 0 {
				span.N, span.Parents = 1+t.Len(), rooted(nil, t)
				b.Tokens = append(b.Tokens, t.IDs...)
			}
		}
		b.Spans = append(b.Spans, span)
		for ; last && row < len(b.Tokens); row++ {
			b.Logits = append(b.Logits, int32(row))
		}
	}
	return last
}

// pending returns the tokens that the target has not seen.
func (h *hypothesis) pending() []int32 { return h.ids[h.seq.Len():] }

// rate notes what may follow a hypothesis, by a row of logits.
func (s *search) rate(h *hypothesis, logits tensor.F32, row int) (err error) {
	var mask []uint64
	if h.match != nil {
		mask, err = maskBy(h.match)
	}
	if err == nil {
		err = s.r.sampler.SetMask(mask)
	}
	if err == nil {
		h.top, err = s.r.sampler.Logprobs(nil, logits.Row(row), h.ids, h.ids[0], 2*s.o.Beams)
	}
	return err
}

// candidate is a hypothesis and a token after it.
type candidate struct {
	parent int
	id     int32
	sum    float64
}

// grow replaces the hypotheses by the best of their continuations and reports whether the search goes on. Of the best
// 2*Beams continuations those that end count only among the first Beams; so there are always enough that do not.
func (s *search) grow() (more bool, err error) {
	if s.r.first.IsZero() {
		s.r.first = s.e.now()
	}
	var all []candidate
	for i, h := range s.live {
		for _, c := range h.top[1:] {
			if !math.IsInf(c.Logprob, -1) {
				all = append(all, candidate{i, c.ID, h.sum + c.Logprob})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.sum, a.sum) })
	s.searched = len(s.live[0].ids) + 1 - len(s.r.Prompt)
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
			longer, err := h.follow(ids, c.sum)
			if err != nil {
				freeAll(next)
				return false, err
			}
			next = append(next, longer)
		}
		if len(next) == s.o.Beams {
			break
		}
	}
	if full {
		return false, nil
	}
	freeAll(s.live)
	s.live = next
	return len(next) > 0 && !s.settled(), nil
}

// follow makes the hypothesis of ids, which are one token longer.
func (h *hypothesis) follow(ids []int32, sum float64) (next *hypothesis, err error) {
	next = &hypothesis{ids: ids, sum: sum, place: h.place}
	if h.match != nil {
		if next.match, err = forkBy(h.match); err == nil {
			err = acceptBy(next.match, ids[len(ids)-1])
		}
	}
	if err == nil {
		next.seq = h.seq.Fork()
	}
	return next, err
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

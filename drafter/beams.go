package drafter

import (
	"fmt"

	"quickdraft/kvcache"
	"quickdraft/sample"
)

// Stem is a hypothesis of a beam search that is to be guessed on from.
type Stem struct {
	IDs     []int32      // (nTokens) with the prompt; the last one is not in Seq
	Score   float64      // sum of the log probabilities that the target gave its tokens
	Seq     *kvcache.Seq // the target's keys and values, to be read only
	Matcher Matcher      // at the end of IDs, to be forked; nil: every token is allowed
	Tree    *Tree        // the answer: what may follow; empty when Propose is called
}

// BeamRound is one turn of drafting for all hypotheses of a beam search together.
type BeamRound struct {
	Stems   []Stem          // best first
	Beams   int             // hypotheses that the search keeps
	Width   int             // continuations to guess at every level, over all stems: at least Beams
	Ends    []int32         // tokens that end a hypothesis, after which there is nothing to guess
	Budget  Budget          // of all trees together; MinP counts against the best continuation of a level
	Sampler *sample.Sampler // the request's pipeline, at temperature 0
	Seed    uint64          // the request's seed
	Read    int             // the answer, as Round's
	Behind  int             // the answer, as Round's
}

// among is the budget for each of n hypotheses that share what may be read, but for what the levels of a round leave in each.
func (b Budget) among(n int) Budget {
	if b.Feed > 0 {
		b.Feed = max(b.Feed/n, b.Depth+1)
	}
	return b
}

// BeamSession is a drafter's memory of one beam search.
type BeamSession interface {
	// Committed reports tokens that all hypotheses have in common, like Session.Committed; there may be none for long.
	Committed(ids []int32)
	// Propose fills the trees of the stems. Only the shape counts: guests and distributions play no part in a search. An
	// error means no guesses in this round.
	Propose(r *BeamRound) error
	// Observed shows what the target made of stem i's tree, like Observer.
	Observed(i int, t *Tree, argmax func(node int32) int32)
	// Close frees what the session holds.
	Close()
}

// beamer is implemented by drafters that can search themselves; nil where an instance cannot.
type beamer interface{ newBeams() BeamSession }

// NewBeamSession starts a beam search. Drafters with a model run a beam search of their own; the others guess for each
// hypothesis as they do for a request. In a union the first part with a model guesses alone.
func NewBeamSession(d Drafter) (BeamSession, error) {
	if b, ok := d.(beamer); ok {
		if s := b.newBeams(); s != nil {
			return s, nil
		}
	}
	first, err := newSession(d)
	if err != nil {
		return nil, err
	}
	return &stemSessions{d: d, sessions: []Session{first}}, nil
}

// newSession starts a request; none without an error is one.
func newSession(d Drafter) (Session, error) {
	s, err := d.NewSession()
	if err == nil && s == nil {
		err = fmt.Errorf("drafter: %s has no session", d.Name())
	}
	return s, err
}

func (d *Union) newBeams() BeamSession {
	for _, part := range d.drafters {
		if b, ok := part.(beamer); ok {
			if s := b.newBeams(); s != nil {
				return s
			}
		}
	}
	return nil
}

// stemSessions has one session of the drafter for each stem. Hypotheses come and go, so sessions are told what all have in
// common, and find the rest in the rounds.
type stemSessions struct {
	d        Drafter
	sessions []Session
	common   []int32
	rounds   []Round
}

// Committed tells every session.
func (s *stemSessions) Committed(ids []int32) {
	s.common = append(s.common, ids...)
	for _, each := range s.sessions {
		each.Committed(ids)
	}
}

// Propose gives every stem its share of the nodes.
func (s *stemSessions) Propose(r *BeamRound) error {
	for len(s.sessions) < len(r.Stems) {
		another, err := newSession(s.d)
		if err != nil {
			return err
		}
		another.Committed(s.common)
		s.sessions = append(s.sessions, another)
	}
	s.rounds = s.rounds[:0]
	for i := range r.Stems {
		stem := &r.Stems[i]
		b := r.Budget.among(len(r.Stems))
		if b.Nodes /= len(r.Stems); b.Nodes < 1 {
			return nil
		}
		s.rounds = append(s.rounds, Round{
			Session: s.sessions[i], IDs: stem.IDs, Seq: stem.Seq, Budget: b, Sampler: r.Sampler, Seed: r.Seed, Matcher: stem.Matcher, Tree: stem.Tree,
		})
	}
	err := s.d.Propose(s.rounds)
	for i := range s.rounds {
		r.Read, r.Behind = r.Read+s.rounds[i].Read, max(r.Behind, s.rounds[i].Behind)
	}
	return err
}

// Observed passes on to sessions that look.
func (s *stemSessions) Observed(i int, t *Tree, argmax func(node int32) int32) {
	if o, ok := s.sessions[i].(Observer); ok {
		o.Observed(t, argmax)
	}
}

// Close closes all sessions, also when one panics.
func (s *stemSessions) Close() {
	for _, each := range s.sessions {
		defer each.Close()
	}
}

package engine

import (
	"errors"
	"slices"
	"time"

	"quickdraft/drafter"
	"quickdraft/engine/verify"
	"quickdraft/model"
	"quickdraft/tensor"
)

// beamSpec guesses a beam search ahead (Leviathan et al. 2023, appendix A.4). The drafter says what may follow the search's
// hypotheses, for a draft model by a wider beam search of its own, and one pass of the target computes all of it, a tree
// below each hypothesis. Then the search goes on as it would without guesses, on the rows of that pass, for as long as all
// hypotheses that it chooses are among the guesses. As the rows have the bits of plain passes, so have the scores.
type beamSpec struct {
	session drafter.BeamSession
	off     bool           // no session could be made, or the guesses were at fault for a pass that failed
	told    int            // tokens that all hypotheses share and the session knows
	read    reading        // what the session's models have read of a hypothesis
	nRead   int            // tokens of it for the present pass
	unread  bool           // before that they had not read the prompt to its end
	trees   []drafter.Tree // (live) what is guessed after each hypothesis in the present pass
	stems   []drafter.Stem
	stream  *drafter.Stream // the controller's view of the search
	planned bool            // the controller has decided on the present pass
	levels  int             // of the deepest tree
	// accepted counts, level by level, the hypotheses that the search chose among the guesses of the present pass.
	accepted []int
	drafted  time.Duration // for the present pass
	late     time.Duration // of it, catching up with the prompt
	pass     time.Duration // the present one
}

// place is where a hypothesis is in the forest of guesses.
type place struct {
	stem int   // the tree
	node int32 // in it; -1: what it grows from
}

// maxForest bounds the guesses of one pass of a search, each of which has a row of logits.
const maxForest = 2 * maxGuesses

// beamWidth is how many hypotheses a draft keeps for a search that keeps n.
func beamWidth(n int) int { return n + n/2 }

// guess fills the trees, or leaves them empty.
func (s *search) guess() {
	s.levels, s.accepted, s.drafted, s.late = 0, s.accepted[:0], 0, 0
	for i := range s.trees {
		s.trees[i].Reset()
	}
	for i, h := range s.live {
		h.place = place{i, -1}
	}
	s.tell()
	n := s.planLevels()
	if n == 0 || !s.open() {
		return
	}
	if s.tell(); s.off {
		return
	}
	o := &s.e.opts.Spec
	width := beamWidth(s.o.Beams)
	for len(s.trees) < len(s.live) {
		s.trees = append(s.trees, drafter.Tree{})
	}
	s.stems = s.stems[:0]
	for i, h := range s.live {
		s.stems = append(s.stems, drafter.Stem{IDs: slices.Clone(h.ids), Score: h.sum, Seq: h.seq, Matcher: s.r.lend(h.match), Tree: &s.trees[i]})
	}
	r := drafter.BeamRound{
		Stems: s.stems, Beams: s.o.Beams, Width: width, Budget: drafter.Budget{Nodes: n * width, Depth: n, MinP: o.PMin, Feed: feedTokens},
		Sampler: s.r.sampler, Seed: s.r.Sampling.Seed,
	}
	if !s.r.IgnoreEOS {
		r.Ends = s.r.EOG
	}
	began := s.e.now()
	s.unread, s.nRead = !s.read.caughtUp, 0
	for more := true; more; more = s.read.on && s.e.undisturbed() && s.r.ctx.Err() == nil {
		for i := range s.trees {
			s.trees[i].Reset()
		}
		r.Read, r.Behind = 0, 0
		err, panicked := s.e.guarded(func() error { return s.session.Propose(&r) })
		if err != nil {
			s.fail()
			r.Read, r.Behind = 0, 0
		}
		if panicked {
			s.quit()
		}
		s.read.note(len(s.live[0].ids), r.Behind, feedTokens/len(s.live), false)
		s.nRead += max(0, r.Read)
	}
	s.drafted = s.e.now().Sub(began)
	s.trim(n)
}

// open makes the session; it reports whether there is one.
func (s *search) open() bool {
	if s.session == nil {
		err, _ := s.e.guarded(func() (err error) {
			s.session, err = drafter.NewBeamSession(s.e.opts.Spec.Drafter)
			return err
		})
		if err != nil {
			s.session, s.off = nil, true
			return false
		}
	}
	return true
}

// quit has the search go on without guesses, because the drafter did not survive it.
func (s *search) quit() {
	s.off = true
	s.endGuesses()
}

// tell reports what all hypotheses have in common and the session does not know.
func (s *search) tell() {
	if s.session == nil {
		return
	}
	first, n := s.live[0].ids, len(s.live[0].ids)
	for _, h := range s.live[1:] {
		same := s.told
		for same < n && h.ids[same] == first[same] {
			same++
		}
		n = same
	}
	if n > s.told {
		if _, panicked := s.e.guarded(func() error { s.session.Committed(slices.Clone(first[s.told:n])); return nil }); panicked {
			s.fail()
			s.quit()
		}
		s.told = n
	}
}

// fail drops all guesses of a round and counts it.
func (s *search) fail() {
	for i := range s.trees {
		s.trees[i].Reset()
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.r.stats.Spec.Failed++
	s.e.specTotals.Failed++
}

// trim drops what is too deep, outside the vocabulary, or without room in the pass or the cache, and guesses of too few levels.
func (s *search) trim(depth int) {
	room := min(maxForest, s.e.opts.Chunk-len(s.live))
	vocab := int32(s.e.model.Config().Vocab)
	for i, h := range s.live {
		t := &s.trees[i]
		t.Repair(room)
		for n := range t.IDs {
			if t.IDs[n] < 0 || t.IDs[n] >= vocab || t.Depth(int32(n)) > depth {
				t.Cut(n)
				break
			}
		}
		for t.Len() > 0 && h.seq.Reserve(1+t.Len()) != nil {
			t.Cut(t.Len() - 1)
		}
		room -= t.Len()
		s.levels = max(s.levels, t.Levels())
	}
	if s.levels < s.e.opts.Spec.NMin {
		for i := range s.trees {
			s.trees[i].Reset()
		}
		s.levels = 0
	}
}

// nodes is how many guesses the present pass has.
func (s *search) nodes() (n int) {
	for i := range s.trees {
		n += s.trees[i].Len()
	}
	return n
}

// forgive has the search go on without guesses when these may be at fault for logits that are not numbers.
func (s *search) forgive(err error) (more bool, _ error) {
	var nan *model.NaNError
	switch {
	case !errors.As(err, &nan):
		return false, err
	case s.nodes() > 0:
		s.off = true
		return true, nil
	}
	return false, s.e.notNumbers(nan)
}

// replay takes the search through as many levels as were guessed, one more than plain passes would have been needed for. It
// reports whether the search goes on.
func (s *search) replay(logits tensor.F32) (more bool, err error) {
	stems, rows, row := s.live, make([]int, len(s.live)), 0
	defer freeAll(stems)
	s.live = make([]*hypothesis, len(stems))
	for i, h := range stems {
		h.seq.Commit(1)
		s.live[i] = &hypothesis{ids: h.ids, sum: h.sum, seq: h.seq.Fork(), match: h.match, place: h.place}
		rows[i] = row
		t := &s.trees[i]
		s.observe(i, logits, rows[i])
		row += 1 + t.Len()
	}
	for {
		for _, h := range s.live {
			if err := s.rate(h, logits, rows[h.stem]+1+int(h.node)); err != nil {
				return false, err
			}
		}
		if more, err = s.grow(); err != nil {
			return false, err
		}
		if !more || !s.enter(stems) {
			s.judged(!more)
			return more, nil
		}
		s.accepted = append(s.accepted, len(s.live))
	}
}

// observe shows the session what the target made of stem i's tree, whose rows of logits begin at row.
func (s *search) observe(i int, logits tensor.F32, row int) {
	if s.session == nil {
		return
	}
	t := &s.trees[i]
	n := int32(t.Len())
	s.e.shown.Copy(t)
	_, panicked := s.e.guarded(func() error {
		s.session.Observed(i, &s.e.shown, func(node int32) int32 {
			if node < -1 || node >= n {
				return -1
			}
			return s.e.samples.Argmax(logits.Row(row + 1 + int(node)))
		})
		return nil
	})
	if panicked {
		s.quit()
	}
}

// enter finds the guess that each hypothesis ends with and gives it that guess's keys and values. It reports false, and leaves
// all as they are, when one was not guessed or has no room.
func (s *search) enter(stems []*hypothesis) bool {
	for _, h := range s.live {
		node := verify.Match(&s.trees[h.stem], h.node, h.ids[len(h.ids)-1])
		if node < 0 || h.seq.Reserve(1) != nil {
			return false
		}
		h.node = node
	}
	for _, h := range s.live {
		h.seq.Take(stems[h.stem].seq, int(h.node))
		h.seq.Commit(1)
	}
	return true
}

// endGuesses closes what the drafter keeps for the search.
func (s *search) endGuesses() {
	if s.session != nil {
		_, _ = s.e.guarded(func() error { s.session.Close(); return nil })
		s.session = nil
	}
}

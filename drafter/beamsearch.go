package drafter

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"quickdraft/internal/detmath"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
)

// modelBeams is a beam search by a draft model, from all stems at once (Leviathan et al. 2023, appendix A.4).
type modelBeams struct {
	r      *runner
	cache  *kvcache.Cache                // of the draft; nil: lanes go on from the target's own sequences
	target func(row []float32) []float32 // a row of the draft's logits as the target numbers tokens
	own    func(id int32) int32          // and a token the other way
	listed *model.Listing                // the search's part of a shortlist; nil: all tokens have logits
	tr     *Translation                  // nil: both number tokens alike

	common    []int32    // the committed tokens as the draft numbers them; empty without a translation
	nCommon   int        // committed tokens of the target
	kept      []*lane    // of the last round, which the next one starts from
	live      []*branch  // of the current level
	lanes     []*lane    // of live
	next      []extended // candidates for the next level
	nodes     int        // so far in this round
	round     *BeamRound
	candidate []sample.Logprob
}

// branch is a hypothesis of the draft.
type branch struct {
	stem  *Stem
	node  int32 // of the stem's tree; -1: the stem itself
	hist  []int32
	score float64
	lane  *lane
	match Matcher
	core  bool // the search would keep it, if the draft were the target
}

// extended is a branch and a token after it.
type extended struct {
	from  *branch
	id    int32
	score float64
	core  bool
}

func (d *Model) newBeams() BeamSession {
	listed := d.listing()
	target := func(row []float32) []float32 { return d.rows.target(row, listed) }
	return &modelBeams{r: &d.runner, cache: d.cache, target: target, own: d.rows.own, listed: listed, tr: d.o.Translation}
}

// The bigger model searches alone: guesses for its own tokens would have to be beams as well.
func (d *Hierarchical) newBeams() BeamSession {
	target := func(row []float32) []float32 { return d.target(row, nil) }
	return &modelBeams{r: &d.runner, cache: d.cache, target: target, own: itself}
}

func (d *LayerSkip) newBeams() BeamSession {
	return &modelBeams{r: &d.runner, target: func(row []float32) []float32 { return row }, own: itself}
}

func itself(id int32) int32 { return id }

// Committed translates and puts tokens on the shortlist; else stems carry all there is to know.
func (s *modelBeams) Committed(ids []int32) {
	if s.listed != nil {
		s.listed.Add(ids)
	}
	if s.tr != nil {
		s.common = s.tr.toDraft(s.common, ids)
	}
	s.nCommon += len(ids)
}

// Observed tells nothing that a model could use.
func (s *modelBeams) Observed(int, *Tree, func(int32) int32) {}

// Close frees the sequences and the search's part of a shortlist.
func (s *modelBeams) Close() {
	s.free(s.kept)
	if s.listed != nil {
		s.listed.Close()
	}
}

func (s *modelBeams) free(lanes []*lane) {
	for _, l := range lanes {
		l.seq.Free()
	}
}

// sequence is a stem's as the draft numbers tokens.
func (s *modelBeams) sequence(ids []int32) []int32 {
	if s.tr == nil {
		return ids
	}
	return s.tr.toDraft(slices.Clip(s.common), ids[s.nCommon:])
}

// Propose searches level by level until the budget is used up. A level that the budget holds only a part of is left out.
func (s *modelBeams) Propose(r *BeamRound) error {
	s.round, s.nodes, s.live = r, 0, s.live[:0]
	err := s.start()
	for depth := 0; err == nil && r.Behind == 0 && depth < r.Budget.Depth && s.nodes+r.Width <= r.Budget.Nodes; depth++ {
		if err = s.expand(); err != nil || len(s.next) == 0 {
			break
		}
		s.grow()
	}
	if s.cache == nil {
		s.free(s.kept)
		s.kept = s.kept[:0]
	}
	if err != nil {
		return fmt.Errorf("draft of a beam search: %w", err)
	}
	return nil
}

// start gives every stem a lane that holds all of it but the last token, or reads on where that is more than a round may feed.
func (s *modelBeams) start() error {
	stems := s.round.Stems
	wants := make([][]int32, len(stems))
	for i := range stems {
		wants[i] = s.sequence(stems[i].IDs)
	}
	before := s.kept
	if s.cache != nil {
		if err := s.catchUp(wants); err != nil || s.round.Behind > 0 {
			return err
		}
		before = s.kept
	}
	s.kept = nil
	for i := range stems {
		l := &lane{}
		if s.cache == nil {
			n := len(wants[i]) - 1
			l.seq, l.fed = stems[i].Seq.Fork(), slices.Clone(wants[i][:n])
		} else {
			l = fork(closest(before, wants[i]))
		}
		l.sync(wants[i])
		b := &branch{stem: &stems[i], node: -1, hist: slices.Clone(stems[i].IDs), score: stems[i].Score, lane: l, core: true}
		if m := stems[i].Matcher; m != nil {
			b.match = m.Fork()
		}
		s.live, s.kept = append(s.live, b), append(s.kept, l)
	}
	s.free(before)
	b := s.round.Budget
	if b.Feed > 0 { // catchUp has read
		b.Feed = max(1, b.Feed-s.round.Read)
	}
	b = b.among(len(s.kept))
	for _, l := range s.kept {
		s.r.behind(l, &b, &s.round.Read, &s.round.Behind)
	}
	return s.r.readLate()
}

// catchUp feeds what all stems have in common once, before it is forked, when no lane has nearly all of it yet.
func (s *modelBeams) catchUp(wants [][]int32) error {
	shared := wants[0]
	for _, w := range wants {
		shared = shared[:common(shared, w)]
	}
	trunk := closest(s.kept, shared)
	switch {
	case trunk != nil && common(trunk.fed, shared) >= len(shared)-2:
		return nil
	case trunk == nil:
		trunk = &lane{seq: s.cache.NewSeq()}
	default:
		trunk = fork(trunk)
	}
	trunk.sync(shared)
	if s.r.behind(trunk, &s.round.Budget, &s.round.Read, &s.round.Behind) {
		s.free(s.kept)
		s.kept = append(s.kept[:0], trunk)
		return s.r.readLate()
	}
	s.kept = append(s.kept, trunk)
	_, err := s.r.step([]*lane{trunk})
	return err
}

// common is the length of the longest common prefix.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// closest returns the lane that holds most of a sequence's beginning, nil when there are no lanes.
func closest(lanes []*lane, want []int32) (best *lane) {
	most := -1
	for _, l := range lanes {
		if n := common(l.fed, want); n > most {
			best, most = l, n
		}
	}
	return best
}

// fork returns a lane with the same tokens behind it.
func fork(l *lane) *lane {
	return &lane{seq: l.seq.Fork(), fed: slices.Clone(l.fed)}
}

// expand runs the draft over the live branches and collects what may follow, best first. Where the draft believes less in
// the best of it than it should, there is nothing.
func (s *modelBeams) expand() error {
	s.lanes, s.next = s.lanes[:0], s.next[:0]
	for _, b := range s.live {
		s.lanes = append(s.lanes, b.lane)
	}
	logits, err := s.r.step(s.lanes)
	if err != nil {
		return err
	}
	surest := math.Inf(-1)
	for _, b := range s.live {
		if b.lane.stopped {
			continue
		}
		var mask []uint64
		if b.match != nil {
			mask = b.match.Mask()
		}
		if err := s.round.Sampler.SetMask(mask); err != nil {
			return err
		}
		row := s.target(logits.Row(b.lane.row))
		if s.candidate, err = s.round.Sampler.Logprobs(s.candidate, row, b.hist, b.hist[0], s.round.Width+len(s.round.Ends)); err != nil {
			continue // no token may follow, or the draft's logits are not numbers
		}
		for _, c := range s.candidate[1:] {
			if surest = max(surest, c.Logprob); !math.IsInf(c.Logprob, -1) && !slices.Contains(s.round.Ends, c.ID) {
				s.next = append(s.next, extended{from: b, id: c.ID, score: b.score + c.Logprob})
			}
		}
	}
	if detmath.Exp(surest) < s.round.Budget.MinP {
		s.next = s.next[:0]
	}
	slices.SortStableFunc(s.next, func(a, b extended) int { return cmp.Compare(b.score, a.score) })
	s.choose()
	return nil
}

// choose keeps the candidates that a search as narrow as the target's would keep, and then the best others: a wider search
// alone may lose them to what follows hypotheses that the narrow one has given up.
func (s *modelBeams) choose() {
	n := 0
	for i := range s.next {
		if c := &s.next[i]; c.from.core && n < s.round.Beams {
			c.core = true
			n++
		}
	}
	others := s.round.Width - n
	s.next = slices.DeleteFunc(s.next, func(c extended) bool {
		if !c.core {
			others--
		}
		return !c.core && others < 0
	})
}

// grow makes the candidates the live branches, and nodes of their trees.
func (s *modelBeams) grow() {
	s.live = make([]*branch, 0, len(s.next))
	for _, c := range s.next {
		b := &branch{stem: c.from.stem, hist: append(slices.Clip(c.from.hist), c.id), score: c.score, lane: c.from.lane, core: c.core}
		b.node = b.stem.Tree.Add(c.id, c.from.node, nil)
		if m := c.from.match; m != nil {
			b.match = m.Fork()
			b.match.Accept(c.id)
		}
		if c.from.lane = nil; b.lane == nil { // a sibling has taken it
			b.lane = fork(s.sibling(c.from))
			s.kept = append(s.kept, b.lane)
		}
		s.live = append(s.live, b)
	}
	for _, b := range s.live {
		b.lane.feed, b.lane.nLogits, b.lane.stopped = append(b.lane.feed[:0], s.own(b.hist[len(b.hist)-1])), 1, false
	}
	s.nodes += len(s.next)
}

// sibling finds the lane that went from a branch to the first branch after it.
func (s *modelBeams) sibling(from *branch) *lane {
	for _, b := range s.live {
		if b.stem == from.stem && b.stem.Tree.Parents[b.node] == from.node {
			return b.lane
		}
	}
	panic("drafter: a branch without a lane")
}

package engine

import (
	"time"

	"quickdraft/drafter"
)

// beamPlans has a controller for every number of beams. To it, a level of a search is what a token is to a request: T(n) is
// a pass over the hypotheses and the guesses of n-1 levels, and a level is accepted when all that the search chooses from
// it were guessed.
type beamPlans map[int]*drafter.Controller

// beamController returns the controller of searches with n beams, with the pass times that the calibration knows.
func (e *Engine) beamController(n int) *drafter.Controller {
	if c := e.beamPlans[n]; c != nil {
		return c
	}
	o := &e.opts.Spec
	c := drafter.NewController(o.NMax, e.control.share)
	k := &e.control
	k.mu.Lock()
	defer k.mu.Unlock()
	for levels := range 1 + min(o.NMax, maxForest/beamWidth(n)) {
		if t := k.c.PassSeconds(n + levels*beamWidth(n)); t > 0 {
			c.Calibrate(1+levels, t)
		}
	}
	if e.beamPlans == nil {
		e.beamPlans = beamPlans{}
	}
	e.beamPlans[n] = c
	return c
}

// guessable reports whether the pass may have guesses: not while the prompt is computed.
func (s *search) guessable() bool {
	return s.e.opts.Spec.Drafter != nil && !s.r.NoSpec && !s.off && len(s.live[0].ids) > len(s.r.Prompt) && len(s.live[0].pending()) == 1
}

// planLevels returns how many levels to guess: what is forced, or what the controller thinks best.
func (s *search) planLevels() int {
	s.planned = false
	if !s.guessable() {
		return 0
	}
	o := &s.e.opts.Spec
	room := min(s.r.limit-len(s.live[0].ids)-1, o.NMax, min(maxForest, s.e.opts.Chunk-len(s.live))/beamWidth(s.o.Beams))
	if s.r.SpecMax > 0 {
		room = min(room, s.r.SpecMax)
	}
	if n := s.e.forced(s.r); n > 0 {
		return max(0, min(n, room))
	}
	if s.stream == nil {
		s.stream = drafter.NewStream()
	}
	s.planned = true
	n := len(s.live[0].ids)
	s.stream.Room, s.stream.Lag, s.stream.Done, s.stream.Left = max(0, room), n-s.read.asked, n-len(s.r.Prompt), s.r.limit-n
	if !s.read.on {
		s.e.beamController(s.o.Beams).Plan([]*drafter.Stream{s.stream}, 0, 0)
	}
	return min(s.stream.Guesses, s.stream.Room)
}

// judged counts what became of the guesses of a pass, and tells the controller what they took; over says that the search
// ended on them, which is not their fault.
func (s *search) judged(over bool) {
	s.count()
	if !s.planned {
		return
	}
	c := s.e.beamController(s.o.Beams)
	if s.drafted > 0 {
		if s.unread { // what is beyond a level's usual time went into the prompt
			s.late = max(0, s.drafted-time.Duration(c.DraftSeconds(s.levels)*float64(time.Second)))
		}
		if s.nRead > s.o.Beams*s.e.few() {
			c.ReadBy(0, s.nRead, s.drafted.Seconds()-c.DraftSeconds(s.levels))
		} else {
			c.Drafted(s.levels, 0, s.drafted.Seconds())
		}
	}
	if !over {
		c.Judged(s.stream, s.levels, s.levels, len(s.accepted))
	}
	c.Passed(1+s.levels, 1, 1+len(s.accepted), s.pass.Seconds(), s.drafted.Seconds(), s.late.Seconds())
}

// count adds a pass with guesses to the figures, in which every hypothesis stands for a request.
func (s *search) count() {
	n := s.nodes()
	if n == 0 {
		return
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for _, t := range []*SpecStats{&s.r.stats.Spec, &s.e.specTotals} {
		t.Rounds += s.o.Beams
		t.Drafted += n
		t.Offered = longer(t.Offered, s.levels)
		for d := range s.levels {
			t.Offered[d] += s.o.Beams
		}
		t.PerDepth = longer(t.PerDepth, len(s.accepted))
		for d, n := range s.accepted {
			t.Accepted += n
			t.PerDepth[d] += n
		}
	}
}

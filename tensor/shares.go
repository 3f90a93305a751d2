package tensor

import "sync/atomic"

// shares deals out n units of work: each worker has an equal, contiguous part and takes runs from its front; who is done
// takes runs of the part with the most left. Runs shrink with what is left, so that the last ones end together even when a
// worker is held up by another process or sits on a slower core. Units are bytes of weights.
type shares struct {
	parts []workerShare
	low   int // smallest run
	high  int // largest run
}

// workerShare is the units [next, end) of one worker, on cache lines of its own.
type workerShare struct {
	next atomic.Int64
	end  int64
	_    [112]byte
}

// deal shares n units among the workers, in runs of low to high units.
func (s *shares) deal(n, low, high int) {
	s.low, s.high = low, high
	for i := range s.parts {
		lo, hi := share(n, i, len(s.parts))
		s.parts[i].next.Store(int64(lo))
		s.parts[i].end = int64(hi)
	}
}

// take returns the next run of a worker, [lo, hi); none is left when ok is false.
func (s *shares) take(worker int) (lo, hi int, ok bool) {
	if lo, hi, ok = s.from(&s.parts[worker]); ok {
		return lo, hi, true
	}
	for {
		most, left := -1, int64(0)
		for i := range s.parts {
			if l := s.parts[i].end - s.parts[i].next.Load(); l > left {
				most, left = i, l
			}
		}
		if most < 0 {
			return 0, 0, false
		}
		if lo, hi, ok = s.from(&s.parts[most]); ok {
			return lo, hi, true
		}
	}
}

// from takes a quarter of what is left of a part, within the limits of a run.
func (s *shares) from(p *workerShare) (lo, hi int, ok bool) {
	for {
		next := p.next.Load()
		left := int(p.end - next)
		if left <= 0 {
			return 0, 0, false
		}
		run := min(max(left/4, s.low), s.high, left)
		if p.next.CompareAndSwap(next, next+int64(run)) {
			return int(next), int(next) + run, true
		}
	}
}

package engine

import (
	"time"

	"quickdraft/tensor"
)

// stallTarget is how long running answers may wait for a pass that also carries somebody's prompt.
const stallTarget = 150 * time.Millisecond

// minChunk keeps a prompt moving on machines where even a few tokens miss the target.
const minChunk = 16

// passStats measures passes: where their time goes, and how many prompt tokens fit into stallTarget.
type passStats struct {
	nPasses, nTokens          int
	schedule, forward, sample time.Duration
	perToken                  time.Duration // of a wide pass, smoothed; 0 until one was seen
	each                      func(Pass)    // of WatchPasses
	watch                     *tensor.Watch // of the model, when there is each
}

// add records one pass.
func (s *passStats) add(p *plan, schedule, forward, sample time.Duration) {
	n := len(p.batch.Tokens)
	s.nPasses++
	s.nTokens += n
	s.schedule += schedule
	s.forward += forward
	s.sample += sample
	s.report(p, schedule, forward, sample)
	if n < minChunk {
		return
	}
	per := forward / time.Duration(n)
	if s.perToken == 0 {
		s.perToken = per
	}
	s.perToken = (3*s.perToken + per) / 4
}

// chunkBeside returns how many prompt tokens may ride with running decodes.
func (s *passStats) chunkBeside() int {
	if s.perToken == 0 {
		return 4 * minChunk
	}
	return max(minChunk, int(stallTarget/s.perToken)/minChunk*minChunk)
}

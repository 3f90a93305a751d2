package engine

import (
	"sync"
	"time"

	"quickdraft/drafter"
	"quickdraft/model"
)

// control connects the drafter's controller, which has no clock, to what passes and drafts take.
type control struct {
	mu        sync.Mutex // Report reads what the loop writes
	c         *drafter.Controller
	streams   []*drafter.Stream // of the pass
	committed int               // tokens that the pass emitted
	draft     time.Duration     // drafting for the pass
	late      time.Duration     // of these, catching up with prompts
}

// SpecReport is what the controller has measured.
type SpecReport struct {
	Pass       []float64 // (n) seconds of a target pass over i+1 tokens
	Draft      []float64 // (n) seconds of drafting i+1 levels
	Acceptance []float64 // (n) probability that a guess at level i+1 is accepted once it is reached, for a new request
	Rate       float64   // tokens a second that the last plan expects
	Pays       bool      // whether the last plan found guesses worth their cost
}

// SpecReport returns the controller's measurements, which it makes whether or not it decides; false without a drafter.
func (e *Engine) SpecReport() (SpecReport, bool) {
	k := &e.control
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return SpecReport{}, false
	}
	var r SpecReport
	fresh := drafter.NewStream()
	for i := range e.opts.Spec.NMax + 1 {
		r.Pass = append(r.Pass, k.c.PassSeconds(i+1))
	}
	for i := range e.opts.Spec.NMax {
		r.Draft = append(r.Draft, k.c.DraftSeconds(i+1))
		r.Acceptance = append(r.Acceptance, k.c.Acceptance(fresh, i))
	}
	r.Rate, r.Pays = k.c.Expected()
	return r, true
}

// calibrationTime bounds what a calibration may take once the first widths are measured.
const calibrationTime = 400 * time.Millisecond

// calibrate makes the controller and measures T(M) on a scratch sequence, the widths that say most first. Each is run
// twice, and the shorter one counts: a warm cache is what decoding will find, and a shared machine only ever adds.
func (e *Engine) calibrate() error {
	o := &e.opts.Spec
	if o.Drafter == nil {
		return nil
	}
	share := float64(o.Drafter.Bytes()) / float64(max(1, e.model.WeightBytes()))
	e.control.c = drafter.NewController(o.NMax, share)
	seq := e.cache.NewSeq()
	defer seq.Free()
	began := time.Now()
	for i, n := range drafter.CalibrationWidths {
		if i >= 3 && time.Since(began) > calibrationTime {
			break
		}
		if n > e.opts.Chunk || seq.Reserve(n) != nil {
			continue
		}
		b := model.Batch{Tokens: make([]int32, n), Spans: []model.Span{{Seq: seq, N: n}}}
		for i := range n {
			b.Logits = append(b.Logits, int32(i))
		}
		var best time.Duration
		for range 2 {
			start := time.Now()
			if _, err := e.forward(&b); err != nil {
				return err
			}
			if took := time.Since(start); best == 0 || took < best {
				best = took
			}
		}
		e.control.c.Calibrate(n, best.Seconds())
	}
	return nil
}

// planGuesses sets the budget of every decoding request: what is forced, or what the controller thinks best.
func (e *Engine) planGuesses(decoding []*run) {
	o, k := &e.opts.Spec, &e.control
	k.streams, k.committed, k.draft, k.late = k.streams[:0], 0, 0, 0
	for _, r := range decoding {
		r.spec.budget = drafter.Budget{}
		if !e.speculates(r) {
			continue
		}
		if r.spec.stream == nil {
			r.spec.stream = drafter.NewStream()
		}
		r.spec.stream.Room, r.spec.stream.Lag = e.room(r), len(r.ids)-r.spec.asked
		k.streams = append(k.streams, r.spec.stream)
	}
	if len(k.streams) == 0 {
		return
	}
	if o.Fixed > 0 {
		for _, r := range decoding {
			if e.speculates(r) {
				n := min(o.Fixed, e.room(r))
				r.spec.budget = drafter.Budget{Nodes: n, Depth: n, MinP: o.PMin}
			}
		}
		return
	}
	k.mu.Lock()
	k.c.Plan(k.streams, len(decoding)-len(k.streams), e.promptTokens())
	minReach := k.c.MinReach()
	k.mu.Unlock()
	for _, r := range decoding {
		if s := r.spec.stream; s != nil && e.speculates(r) {
			n := min(s.Guesses, r.spec.stream.Room)
			r.spec.budget = drafter.Budget{Nodes: n, Depth: n, MinP: o.PMin, MinReach: minReach, Trust: k.c.Trust()}
		}
	}
}

// promptTokens is how many tokens of prompts will ride beside the decoding requests.
func (e *Engine) promptTokens() int {
	n := 0
	for _, r := range e.active {
		if p := len(r.pending()); p > 1 {
			n += p
		}
	}
	return min(n, e.passes.chunkBeside())
}

// drafted tells the controller how long the drafter took for its trees.
func (e *Engine) drafted(decoding []*run, took time.Duration) {
	k := &e.control
	k.draft = took
	if k.c == nil {
		return
	}
	levels, lag, first := 0, 0, false
	for _, r := range e.rounds {
		levels = max(levels, r.Steps)
	}
	for _, r := range decoding {
		if r.spec.budget.Nodes == 0 {
			continue
		}
		for i := range r.spec.tree.IDs {
			levels = max(levels, r.spec.tree.Depth(int32(i)))
		}
		lag = max(lag, len(r.ids)-r.spec.asked)
		first = first || r.spec.asked == 0
		r.spec.asked = len(r.ids)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if first {
		k.late = max(0, took-time.Duration(k.c.DraftSeconds(levels)*float64(time.Second)))
	}
	k.c.Drafted(levels, lag, took.Seconds())
}

// prune leaves of every tree what is worth its share of the pass.
func (e *Engine) prune(decoding []*run) {
	k := &e.control
	if k.c == nil || e.opts.Spec.Fixed > 0 {
		return
	}
	width := len(decoding)
	for _, r := range decoding {
		width += r.spec.tree.Len()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range decoding {
		if n := r.spec.tree.Len(); n > 0 && r.spec.stream != nil {
			k.c.Trim(r.spec.stream, &r.spec.tree, width-n)
			width += r.spec.tree.Len() - n
		}
	}
}

// judged tells the controller how a tree fared that was walked to its end.
func (e *Engine) judged(r *run) {
	k := &e.control
	if k.c == nil || r.spec.stream == nil {
		return
	}
	t, levels := &r.spec.tree, 0
	for i := range t.IDs {
		if !t.Guest[i] {
			levels = max(levels, t.Depth(int32(i)))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c.Judged(r.spec.stream, t.Len(), levels, len(r.spec.path))
	k.c.Walked(t, r.spec.path)
}

// passed tells the controller what a pass took, unless it carried prompts.
func (e *Engine) passed(p *plan, took time.Duration) {
	k := &e.control
	if k.c == nil {
		return
	}
	for _, it := range p.items {
		if !it.tree && it.nTokens > 1 {
			return
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c.Passed(len(p.batch.Tokens), len(p.items), k.committed, took.Seconds(), k.draft.Seconds(), k.late.Seconds())
}

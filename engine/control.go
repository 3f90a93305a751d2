package engine

import (
	"slices"
	"sync"
	"time"

	"quickdraft/drafter"
)

// control connects the drafter's controller, which has no clock, to what passes and drafts take.
type control struct {
	mu        sync.Mutex // Report reads what the loop writes
	c         *drafter.Controller
	drafter   drafter.Drafter    // of the options, or a union of it alone
	union     *drafter.Union     // the same, when it is one
	own       []drafter.PartCost // of a drafter that is no union
	name      string             // of the drafter of the options
	names     []string           // of the parts
	keeps     []bool             // whether they read texts into a cache of their own
	small     []string           // of the parts' small drafters
	layered   []int              // (small) the part that each is in
	share     float64            // what a step of drafting reads, of what a pass reads of weights
	streams   []*drafter.Stream  // of the pass
	committed int                // tokens that the pass emitted
	draft     time.Duration      // drafting for the pass
	late      time.Duration      // of these, reading texts for guesses that are no probe
	expected  float64            // seconds that drafting for the pass was expected to take
	foreseen  float64            // seconds that drafting and passes were expected to take, of all passes without prompts

	calibration calibration
}

// SpecReport is what the controller has measured.
type SpecReport struct {
	Pass       []float64 // (n) seconds of a target pass over i+1 tokens
	Draft      []float64 // (n) seconds of drafting i+1 levels
	Acceptance []float64 // (n) probability that a guess at level i+1 is accepted once it is reached, for a new request
	Rate       float64   // tokens a second that the last plan expects
	Answer     float64   // tokens that a new answer is expected to get, by the last ones
	Pays       bool      // whether the last plan found guesses worth their cost
	Foreseen   float64   // seconds that all decoding so far was expected to take: T and D of each round as known before it
}

// use makes the controller's view of a drafter. Instant ones are asked before they are planned for, as parts of unions are.
func (k *control) use(d drafter.Drafter) {
	k.drafter, k.own = d, make([]drafter.PartCost, 1)
	if _, ok := d.(drafter.Instant); ok {
		k.drafter = drafter.NewUnion(d)
	}
	if k.union, _ = k.drafter.(*drafter.Union); d == nil {
		return
	}
	k.name = d.Name()
	for i, part := range k.parts() {
		_, keeps := part.(drafter.Keeper)
		k.names, k.keeps = append(k.names, part.Name()), append(k.keeps, keeps)
		if l, ok := part.(drafter.Layered); ok {
			k.small, k.layered = append(k.small, part.Name()+"/"+l.Small().Name()), append(k.layered, i)
		}
	}
}

// newParts are the counts of all drafters at 0.
func (k *control) newParts() []PartStats {
	parts := make([]PartStats, 0, len(k.names)+len(k.small))
	for _, name := range slices.Concat(k.names, k.small) {
		parts = append(parts, PartStats{Name: name})
	}
	return parts
}

// guessed reports whether a node of a round's tree is a guess of the i-th part.
func (k *control) guessed(t *drafter.Tree, node int32, i int) bool {
	if by := t.By[node]; by != 0 && k.union != nil {
		return by>>i&1 != 0
	}
	return i == 0
}

// reads reports whether a way to draft has models that read texts.
func (k *control) reads(s *drafter.Stream) bool {
	if s.Arm < len(k.keeps) {
		return k.keeps[s.Arm]
	}
	return slices.Contains(k.keeps, true)
}

// parts are the drafters that the controller chooses from.
func (k *control) parts() []drafter.Drafter {
	if k.union != nil {
		return k.union.Parts()
	}
	return []drafter.Drafter{k.drafter}
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
	r.Answer = k.c.Answer()
	r.Foreseen = k.foreseen
	return r, true
}

// newController makes the controller of the drafters that the options name.
func (e *Engine) newController() {
	o := &e.opts.Spec
	if o.Drafter == nil {
		return
	}
	var shares []float64
	for _, d := range e.control.parts() {
		share := float64(max(0, d.Bytes())) / float64(max(1, e.model.WeightBytes()))
		shares = append(shares, share)
		e.control.share += share
	}
	e.control.c = drafter.NewController(o.NMax, shares...)
	for i, d := range e.control.parts() {
		if _, ok := d.(drafter.Instant); ok {
			e.control.c.SetInstant(i)
		}
		if e.control.keeps[i] {
			e.control.c.SetReads(i)
		}
	}
}

// costs returns what each of the parts did for the rounds.
func (k *control) costs(rounds []drafter.Round, took time.Duration) []drafter.PartCost {
	if k.union != nil {
		return k.union.Costs()
	}
	k.own[0] = drafter.PartCost{Asked: true, Seconds: took.Seconds()}
	for i := range rounds {
		k.own[0].Count(&rounds[i])
	}
	return k.own
}

// drafted tells the controller how long the drafters took for their trees.
func (e *Engine) drafted(decoding []*run, took time.Duration) {
	k := &e.control
	k.draft += took
	if k.c == nil {
		return
	}
	costs := k.costs(e.rounds, took)
	for i, part := range k.parts() {
		if c, ok := part.(drafter.Counter); ok {
			_, _ = e.guarded(func() error { e.raiseCounts(i, c.Counts()); return nil })
		}
	}
	reads, late := false, 0.0
	e.mu.Lock()
	i := 0
	for _, r := range decoding {
		if r.spec.budget.Nodes == 0 {
			continue
		}
		steps := min(max(e.rounds[i].Steps, 0), e.rounds[i].DraftSteps())
		for _, s := range []*SpecStats{&r.stats.Spec, &e.specTotals} {
			if steps > 0 {
				s.Asks, s.Steps = s.Asks+1, s.Steps+steps
			}
			k.countInner(s, r, &e.rounds[i])
		}
		if i++; steps > 0 || k.c.Models(r.spec.stream) {
			round := &e.rounds[i-1]
			reads = reads || !r.spec.read.probe
			r.spec.read.note(len(r.ids), round.Behind, r.spec.budget.Feed, k.reads(r.spec.stream) && round.Read == 0)
		}
	}
	e.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range costs {
		if c.Asked {
			expected := k.c.PartSeconds(i, c.Steps)
			k.expected += expected
			if read := c.Seconds - expected; c.Longest > e.few() {
				if k.c.ReadBy(i, c.Read, read); reads {
					late += max(0, read)
				}
			} else {
				k.c.DraftedBy(i, c.Steps, c.Longest, c.Seconds)
			}
		}
	}
	k.late += time.Duration(late * float64(time.Second))
}

// ended tells the controller how long r's answer got, which it plans with for those to come.
func (e *Engine) ended(r *run) {
	k := &e.control
	if r.spec.stream == nil || e.forced(r) > 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c.Ended(r.emitted())
}

// judged tells the controller how a tree fared that was walked to its end.
func (e *Engine) judged(r *run) {
	k := &e.control
	if k.c == nil || r.spec.stream == nil || r.SpecFixed > 0 {
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
	allowed := levels
	if r.spec.levels == t.Levels() {
		allowed = r.spec.budget.Depth
	}
	k.c.JudgedOf(r.spec.stream, t.Len(), levels, len(r.spec.path), allowed)
	k.c.Walked(r.spec.stream, t, r.spec.path)
}

// passed tells the controller what a pass took, unless it carried prompts.
func (e *Engine) passed(p *plan, took time.Duration) {
	k := &e.control
	if k.c == nil {
		return
	}
	for _, it := range p.items {
		if !it.tree && it.nTokens > 1 {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.c.Prompted(len(p.batch.Tokens), took.Seconds(), k.late.Seconds())
			return
		}
	}
	k.calibration.decoding += took
	k.mu.Lock()
	defer k.mu.Unlock()
	if expected := k.c.PassSeconds(len(p.batch.Tokens)); expected > 0 {
		k.foreseen += expected + k.expected
	} else {
		k.foreseen += (took + k.draft).Seconds() // the first pass of all is its own measure
	}
	k.c.Passed(len(p.batch.Tokens), len(p.items), k.committed, took.Seconds(), k.draft.Seconds(), k.late.Seconds())
}

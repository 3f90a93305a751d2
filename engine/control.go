package engine

import (
	"slices"
	"sync"
	"time"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/model"
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
	small     []string           // of the parts' small drafters
	layered   []int              // (small) the part that each is in
	share     float64            // what a step of drafting reads, of what a pass reads of weights
	streams   []*drafter.Stream  // of the pass
	committed int                // tokens that the pass emitted
	draft     time.Duration      // drafting for the pass
	late      time.Duration      // of these, catching up with prompts
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
		k.names = append(k.names, part.Name())
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
	r.Foreseen = k.foreseen
	return r, true
}

const (
	// calibrationTime bounds what the calibration may take in all.
	calibrationTime = 400 * time.Millisecond
	// calibrationShare of the time of decoding is what it may take at any time where guesses pay, and idleShare where they do
	// not: short answers are not to pay for long ones, nor those that gain nothing for what might be gained.
	calibrationShare, idleShare = 0.02, 0.005
)

// calibration measures T(M) for widths that rounds have not measured by then, on a sequence of its own, between passes of
// speculating requests.
type calibration struct {
	next     int // width that comes next
	spent    time.Duration
	decoding time.Duration // of the passes of answers so far
	ended    bool
	cache    *kvcache.Cache
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
	}
}

// calibrate measures the next width, when a request runs that speculates and there is one left.
func (e *Engine) calibrate() {
	k := &e.control.calibration
	speculates := func(r *run) bool { return r.spec.session != nil }
	if e.control.c == nil || k.ended || !slices.ContainsFunc(e.active, speculates) {
		return
	}
	c := e.control.c
	for k.next < len(drafter.CalibrationWidths) && c.Measured(drafter.CalibrationWidths[k.next]) {
		k.next++
	}
	if k.next == len(drafter.CalibrationWidths) || k.spent > calibrationTime {
		k.end()
		return
	}
	price := float64(2 * c.PassSeconds(min(drafter.CalibrationWidths[k.next], 8))) // what is not measured is taken to be dear
	share := idleShare
	if _, pays := c.Expected(); pays {
		share = calibrationShare
	}
	if k.spent.Seconds()+price > share*k.decoding.Seconds() {
		return
	}
	if e.measureNext() != nil {
		k.end()
	}
}

// end frees what the calibration holds.
func (k *calibration) end() {
	if k.ended = true; k.cache != nil {
		k.cache.Close()
		k.cache = nil
	}
}

// measureNext runs a pass of the next width twice, and the shorter one counts: a warm cache is what decoding will find, and
// a shared machine only ever adds.
func (e *Engine) measureNext() error {
	k := &e.control.calibration
	if k.cache == nil {
		cfg, err := e.cacheConfig(blocksFor(slices.Max(drafter.CalibrationWidths)))
		if err != nil {
			return err
		}
		cfg.Contiguous = false
		if k.cache, err = kvcache.New(cfg); err != nil {
			return err
		}
	}
	n := drafter.CalibrationWidths[k.next]
	if k.next++; n > e.opts.Chunk {
		return nil
	}
	seq := k.cache.NewSeq()
	defer seq.Free()
	if err := seq.Reserve(n); err != nil {
		return err
	}
	b := model.Batch{Tokens: make([]int32, n), Spans: []model.Span{{Seq: seq, N: n}}}
	for i := range n {
		b.Logits = append(b.Logits, int32(i))
	}
	var best time.Duration
	for range 2 {
		e.reap() // who has left does not wait for these passes
		start := time.Now()
		if _, err := e.forward(&b); err != nil {
			return err
		}
		took := time.Since(start)
		if k.spent += took; best == 0 || took < best {
			best = took
		}
	}
	e.control.mu.Lock()
	e.control.c.Calibrate(n, best.Seconds())
	e.control.mu.Unlock()
	return nil
}

// planGuesses sets the budget of every decoding request: what is forced, or what the controller thinks best. It is not asked
// anew about a request whose models are still reading for the guesses that it wanted.
func (e *Engine) planGuesses(decoding []*run) {
	o, k := &e.opts.Spec, &e.control
	k.streams, k.committed, k.draft, k.late, k.expected = k.streams[:0], 0, 0, 0, 0
	decided := false
	for _, r := range decoding {
		r.spec.budget = drafter.Budget{}
		if !e.speculates(r) {
			continue
		}
		if r.spec.stream == nil {
			r.spec.stream = drafter.NewStream()
			r.spec.stream.Only = e.control.arm(r.SpecMethod)
		}
		if n := min(e.forced(r), e.room(r)); n > 0 {
			r.spec.budget = drafter.Budget{Nodes: n, Depth: n, MinP: r.leastBelief(o), Branch: o.Branch, Arm: r.spec.stream.Only}
			k.c.All(r.spec.stream)
			r.spec.stream.Offers = nil
			continue
		}
		r.spec.stream.Room, r.spec.stream.Lag = e.room(r), len(r.ids)-r.spec.read.asked
		if decided = true; !r.spec.read.on {
			k.streams = append(k.streams, r.spec.stream)
		}
	}
	if decided {
		e.decide(decoding)
	}
	e.ration(decoding)
}

// decide has the controller set the budgets that are not forced.
func (e *Engine) decide(decoding []*run) {
	o, k := &e.opts.Spec, &e.control
	e.preview(decoding)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c.Plan(k.streams, len(decoding)-len(k.streams), e.promptTokens())
	for _, r := range decoding {
		if s := r.spec.stream; e.decides(r) && s.Guesses > 0 {
			b := &r.spec.budget
			*b = drafter.Budget{Nodes: min(s.Guesses, s.Room), Depth: min(s.Depth, s.Room), MinP: r.leastBelief(o)}
			if k.c.Limits(s, b); o.Branch > 0 {
				b.Branch = o.Branch
			}
			if k.union != nil && s.Arm < len(k.union.Parts()) {
				b.Arm = s.Arm + 1
			}
		}
	}
}

// forced returns the guesses that r has in every round, 0 where the controller decides.
func (e *Engine) forced(r *run) int {
	if r.SpecFixed > 0 {
		return r.SpecFixed
	}
	return e.opts.Spec.Fixed
}

// decides reports whether the controller decides for r.
func (e *Engine) decides(r *run) bool { return e.speculates(r) && e.forced(r) == 0 }

// preview asks instant drafters what they propose, after the controller has heard what became of what they proposed last.
func (e *Engine) preview(decoding []*run) {
	k := &e.control
	if k.union == nil {
		return
	}
	rounds := e.rounds[:0]
	k.mu.Lock()
	for _, r := range decoding {
		if !e.decides(r) {
			continue
		}
		s := &r.spec
		if ids := r.ids[min(s.shown, len(r.ids)):]; s.shown > 0 && len(ids) > 0 {
			for i, t := range s.offers {
				if t != nil {
					k.c.Followed(s.stream, i, t, ids)
				}
			}
		}
	}
	k.mu.Unlock()
	for _, r := range decoding {
		if !e.decides(r) {
			continue
		}
		if e.tell(r); r.spec.off {
			continue
		}
		n := min(e.opts.Spec.NMax, e.room(r))
		round := r.round()
		round.Budget = drafter.Budget{Nodes: n, Depth: n, MinP: r.leastBelief(&e.opts.Spec)}
		r.spec.shown = len(r.ids)
		rounds = append(rounds, round)
	}
	e.rounds = rounds
	_, panicked := e.guarded(func() error { k.union.Preview(rounds); return nil })
	for _, r := range decoding {
		switch {
		case !e.decides(r):
		case panicked:
			e.silence(r)
		default:
			r.spec.offers = k.union.Offers(r.spec.offers[:0], r.spec.session)
			r.spec.stream.Offers = r.spec.offers
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

// costs returns what each of the parts did for the rounds.
func (k *control) costs(rounds []drafter.Round, took time.Duration) []drafter.PartCost {
	if k.union != nil {
		return k.union.Costs()
	}
	k.own[0] = drafter.PartCost{Asked: true, Seconds: took.Seconds()}
	for i := range rounds {
		k.own[0].Steps = max(k.own[0].Steps, rounds[i].DraftSteps())
		k.own[0].Behind = k.own[0].Behind || rounds[i].Behind > 0
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
	counts := e.draftCounts
	if c, ok := e.opts.Spec.Drafter.(drafter.Counter); ok {
		_, _ = e.guarded(func() error { counts = c.Counts(); return nil })
	}
	lag, first, reading, late := 0, false, false, 0.0
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
			read, late := r.spec.read.note(len(r.ids), e.rounds[i-1].Behind)
			lag, first, reading = max(lag, read), first || late, reading || r.spec.read.on
		}
	}
	e.raiseCounts(counts)
	e.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range costs {
		if c.Asked {
			expected := k.c.PartSeconds(i, c.Steps)
			if k.expected += expected; first {
				late = max(late, c.Seconds-expected)
			}
			if c.Behind && c.Steps == 0 && reading {
				k.c.ReadBy(i, lag, c.Seconds)
			} else {
				k.c.DraftedBy(i, c.Steps, lag, c.Seconds)
			}
		}
	}
	k.late += time.Duration(late * float64(time.Second))
}

// prune leaves of every tree what is worth its share of the pass.
func (e *Engine) prune(decoding []*run) {
	k := &e.control
	if k.c == nil {
		return
	}
	width := len(decoding)
	for _, r := range decoding {
		width += r.spec.tree.Len()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range decoding {
		r.spec.levels = r.spec.tree.Levels()
		if n := r.spec.tree.Len(); n > 0 && e.decides(r) {
			k.c.Trim(r.spec.stream, &r.spec.tree, width-n)
			width += r.spec.tree.Len() - n
		}
	}
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

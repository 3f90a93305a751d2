package engine

import (
	"errors"
	"fmt"
	"time"

	"quickdraft/drafter"
	"quickdraft/engine/verify"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// openDrafter makes the drafter that the options describe.
func (e *Engine) openDrafter() (err error) {
	o := &e.opts.Spec
	if o.Drafter == nil && o.Open != nil {
		o.Drafter, err = o.Open(e.model)
	}
	if err == nil && o.Drafter != nil && e.encodes() {
		return fmt.Errorf("speculation: %w", errEncoder)
	}
	if e.control.use(o.Drafter); err != nil {
		return err
	}
	if u := e.control.union; u != nil {
		if len(u.Parts()) == 0 {
			return errors.New("speculation: a union of no drafters, want one or more")
		}
		u.Clock(func() time.Time { return e.now() })
	}
	e.specTotals.Parts, e.draftCounts = e.control.newParts(), make([]drafter.Counts, len(e.control.names))
	if o.Drafter == nil && o.Open == nil && (o.Fixed > 0 || o.NMin > 0 || o.PMin > 0 || o.Branch > 0 || o.Lenience < 1) {
		return errors.New("speculation: numbers of guesses, a least probability or lenience asked for without a drafter")
	}
	return checkTakes(e.control.name, o.PMin, o.Branch)
}

// speculation is a request's part of it.
type speculation struct {
	session drafter.Session
	tree    drafter.Tree
	path    []int32 // accepted nodes of the current round after which the answer goes on
	// accepted are these, and the one that ended the answer.
	accepted []int32
	ids      []int32 // of the request, a copy: what drafters do to it changes no answer
	told     int     // tokens of ids that the session knows
	read     reading // what the session's models know of ids
	shown    int     // tokens of ids when instant drafters last proposed; 0: not since the session was made
	offers   []*drafter.Tree
	levels   int // of the tree before it was trimmed
	budget   drafter.Budget
	stream   *drafter.Stream // the controller's view of the request
	off      bool            // no session could be made, or the drafter panicked
	soft     *sample.Sampler // the request's pipeline at temperature 1, for lenience
}

// propose asks the drafter for guesses for every decoding request at once.
func (e *Engine) propose(decoding []*run) {
	e.planGuesses(decoding)
	for _, r := range decoding {
		e.tell(r)
	}
	for e.ask(decoding) && e.readOn(decoding) {
	}
	for _, r := range decoding {
		if r.spec.budget.Nodes > 0 && r.spec.read.on && e.forced(r) > 0 {
			r.spec.read.waits = true
			r.spec.tree.Reset()
		}
	}
	e.prune(decoding)
}

// ask has the drafter fill the trees of the requests that have a budget. It reports whether there were any and the drafter
// survived them.
func (e *Engine) ask(decoding []*run) bool {
	rounds := e.rounds[:0]
	for _, r := range decoding {
		r.spec.tree.Reset()
		if r.spec.budget.Nodes > 0 {
			rounds = append(rounds, r.round())
		}
	}
	e.rounds = rounds
	if len(rounds) == 0 {
		return false
	}
	began := e.now()
	err, panicked := e.guarded(func() error { return e.control.drafter.Propose(rounds) })
	took := e.now().Sub(began)
	i := 0
	for _, r := range decoding {
		if asked := r.spec.budget.Nodes > 0; asked {
			rounds[i].Tree = &r.spec.tree
			i++
			switch {
			case panicked:
				e.silence(r)
			case r.harm.err != nil:
				r.spec.tree.Reset()
			case err != nil:
				r.spec.tree.Reset()
				rounds[i-1].Read, rounds[i-1].Behind = 0, 0
				e.countFailed(r)
			}
		}
		e.sane(r)
		e.trim(r)
	}
	if panicked {
		e.control.draft += took // the pass took that long; of the drafter it says nothing
		return false
	}
	e.drafted(decoding, took)
	return true
}

// round is r's turn to be drafted for.
func (r *run) round() drafter.Round {
	return drafter.Round{
		Session: r.spec.session, IDs: r.spec.ids[:len(r.ids):len(r.ids)], Seq: r.seq, Budget: r.spec.budget, Sampler: r.sampler, Seed: r.Sampling.Seed,
		Coupled: r.Reproducible, Matcher: r.lent, Tree: &r.spec.tree,
	}
}

// room is how many guesses fit: each accepted one and the token after them are emitted, and each row needs a position.
func (e *Engine) room(r *run) int {
	n := max(0, min(r.limit-len(r.ids)-1, e.contextLen-r.seq.Len()-1))
	if r.SpecMax > 0 {
		n = min(n, r.SpecMax)
	}
	return n
}

// trim drops trees that are too small to verify.
func (e *Engine) trim(r *run) {
	t := &r.spec.tree
	if t.Len() < max(e.opts.Spec.NMin, r.SpecMin) && !t.Drawn() {
		t.Reset() // never what was drawn: dropping guesses for what they are would bias the answer
	}
}

// fit cuts r's tree to what the pass and the cache have room for, and makes that room.
func (e *Engine) fit(p *plan, r *run) {
	n := min(r.spec.tree.Len(), e.opts.Chunk-len(p.batch.Tokens)-1)
	for n > 0 && r.seq.Reserve(1+n) != nil {
		n--
	}
	r.spec.tree.Cut(max(n, 0))
}

// addTree gives r a span of its pending token and its guesses, with logits for every row.
func (e *Engine) addTree(p *plan, r *run) {
	t := &r.spec.tree
	n := 1 + t.Len()
	it := item{r: r, nTokens: n, logitsRow: len(p.batch.Logits), tree: true}
	row := len(p.batch.Tokens)
	last := r.ids[len(r.ids)-1]
	p.batch.Tokens = append(p.batch.Tokens, last)
	for _, guess := range t.IDs {
		p.batch.Tokens = append(p.batch.Tokens, e.target(guess, last))
	}
	parents := rooted(p.takeParents(n), t)
	p.parents = append(p.parents, parents)
	for i := range n {
		p.batch.Logits = append(p.batch.Logits, int32(row+i))
	}
	p.batch.Spans = append(p.batch.Spans, model.Span{Seq: r.seq, N: n, Parents: parents, Prompt: len(r.Prompt)})
	p.items = append(p.items, it)
}

// rooted appends the parents of a span that is a tree's root and its nodes.
func rooted(dst []int32, t *drafter.Tree) []int32 {
	dst = append(dst, -1)
	for _, parent := range t.Parents {
		dst = append(dst, parent+1)
	}
	return dst
}

// accept counts what became of a tree and commits the rows of the guesses that were accepted.
func (e *Engine) accept(p *pick, logits tensor.F32) {
	r, t := p.r, &p.r.spec.tree
	for _, node := range r.spec.accepted {
		e.countAccepted(r, t, node)
	}
	e.countRound(r, t)
	if p.why == "" {
		e.judged(r)
	}
	e.observe(r, logits, p.row)
	for k, n := range r.spec.path {
		r.seq.Move(int(n)+1, k+1)
	}
	r.seq.Commit(1 + len(r.spec.path))
	e.publish(r)
}

// choose returns the token after a node and the child that guessed it, -1 when none did. Greedy answers, guesses chosen
// without chance and reproducible requests take plain decoding's own token, so the guesses change nothing; else a guess
// drawn from a distribution goes through speculative sampling.
func (e *Engine) choose(r *run, t *drafter.Tree, node int32, row []float32) (id, child int32, err error) {
	if err := r.mask(r.sampler); err != nil {
		return 0, -1, err
	}
	if e.opts.Spec.Lenience < 1 && r.sampler.IsGreedy() {
		return e.lenient(r, t, node, row)
	}
	if !e.drawn(r, t, node) {
		id, err = r.sampler.Sample(row, r.ids)
		return id, verify.Match(t, node, id), err
	}
	if err := r.sampler.Dist(&r.dist, row, r.ids); err != nil {
		return 0, -1, err
	}
	position := len(r.ids)
	id, child = verify.Sampled(&r.dist, t, node, e.opts.Spec.Lenience, func(purpose sample.Purpose, attempt int) float64 {
		return sample.Uniform(r.Sampling.Seed, position, purpose+sample.Purpose(attempt)*sample.PurposeStride)
	})
	return id, child, nil
}

// lenient is the greedy choice with lenience, judged by the probabilities at temperature 1 after bias and penalties.
func (e *Engine) lenient(r *run, t *drafter.Tree, node int32, row []float32) (id, child int32, err error) {
	if r.spec.soft == nil {
		p := r.sampler.Params()
		p.Temperature, p.TopK, p.TopP, p.MinP, p.TypicalP, p.TopNSigma, p.XTCProbability = 1, 0, 1, 0, 1, 0, 0
		if r.spec.soft, err = e.samples.New(p); err != nil {
			return 0, -1, err
		}
		r.spec.soft.SetPrompt(len(r.Prompt))
	}
	r.spec.soft.SetWorkspace(r.sampler.Workspace())
	if err := r.mask(r.spec.soft); err != nil {
		return 0, -1, err
	}
	if err := r.spec.soft.Dist(&r.dist, row, r.ids); err != nil {
		return 0, -1, err
	}
	id, child = verify.Lenient(&r.dist, t, node, e.opts.Spec.Lenience)
	return id, child, nil
}

// mask tells a sampler which tokens may come next.
func (r *run) mask(s *sample.Sampler) error {
	if r.Matcher == nil {
		return nil
	}
	mask, err := maskBy(r.Matcher)
	if err != nil {
		return err
	}
	return s.SetMask(mask)
}

// drawn reports whether a child of node was drawn from a distribution and has to be judged as such. With lenience all are, those
// that were chosen without chance too: plain decoding's own token could not be accepted more often.
func (e *Engine) drawn(r *run, t *drafter.Tree, node int32) bool {
	lenient := e.opts.Spec.Lenience < 1
	if r.sampler.IsGreedy() || r.Reproducible && !lenient || r.Sampling.Mirostat != 0 {
		return false
	}
	for i := node + 1; int(i) < t.Len(); i++ {
		if t.Parents[i] == node && (t.Q[i] != nil || lenient) {
			return true
		}
	}
	return false
}

package drafter

import (
	"fmt"

	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/tensor"
)

// ModelOptions say how a model drafts.
type ModelOptions struct {
	Model    *model.Model // of the target's vocabulary; see Compatible
	Own      bool         // Close closes the model too
	Vocab    int          // entries of the target's logits rows
	Tokens   int          // ids below this are proposed; 0: Vocab
	Context  int          // positions a request may have; 0: the model's own
	KVTokens int          // positions that all requests may have together; 0: Context
	// Shortlist is how many tokens, the first ones, have logits besides those of the request's own text; 0: all have.
	Shortlist int
	ListRoom  int // tokens of its text that a request has on a shortlist; 0: 8192

	Translation *Translation // for a model of another vocabulary
}

// check puts the defaults in and refuses what cannot be.
func (o *ModelOptions) check(name string) error {
	if o.Model == nil {
		return fmt.Errorf("%s: no draft model given", name)
	}
	c := o.Model.Config()
	if o.Vocab < 1 {
		return fmt.Errorf("%s: target vocabulary of %d tokens, want 1 or more", name, o.Vocab)
	}
	if o.Tokens <= 0 || o.Tokens > o.Vocab {
		o.Tokens = o.Vocab
	}
	if o.Context == 0 {
		o.Context = c.ContextLen
	}
	if o.KVTokens == 0 {
		o.KVTokens = o.Context
	}
	if o.Shortlist < 0 || o.ListRoom < 0 {
		return fmt.Errorf("%s: shortlist of %d tokens and room for %d, want 0 or more", name, o.Shortlist, o.ListRoom)
	}
	if o.ListRoom == 0 {
		o.ListRoom = shortlistRoom
	}
	if o.Shortlist+o.ListRoom >= c.Vocab || o.Translation != nil {
		o.Shortlist = 0
	}
	if o.KVTokens < 1 {
		return fmt.Errorf("%s: KV cache of %d tokens, want 1 or more", name, o.KVTokens)
	}
	return nil
}

// Model drafts with a smaller model: greedy requests get its best tokens, sampled ones draws from its distribution after
// the request's own pipeline. It has a KV cache of its own, fed with a request's prompt when the request is first drafted
// for, and runs one pass a step for all requests.
type Model struct {
	runner
	o     ModelOptions
	cache *kvcache.Cache
	rows
	live  []*modelSession
	lanes []*lane
}

// NewModel makes the drafter.
func NewModel(o ModelOptions) (*Model, error) {
	if err := o.check("draft"); err != nil {
		return nil, err
	}
	r, err := newRunner(o.Model, o.Context)
	if err != nil {
		return nil, err
	}
	cache, err := newPool(o.Model, o.KVTokens)
	if err != nil {
		return nil, err
	}
	d := &Model{runner: r, o: o, cache: cache, rows: rows{tokens: o.Tokens, tr: o.Translation}}
	if o.Shortlist > 0 {
		if d.runner.short, err = o.Model.NewShortlist(o.Shortlist, o.Model.Config().EOS...); err != nil {
			cache.Close()
			return nil, err
		}
		d.rows.short = d.runner.short
	}
	if int(d.vocab) != o.Vocab || o.Tokens != o.Vocab || o.Translation != nil || o.Shortlist > 0 {
		d.rows.row = make([]float32, o.Vocab)
	}
	return d, nil
}

func init() {
	register("draft", Takes{MinP: true, Branch: true, Shortlist: true}, func(c *Config) (Drafter, error) { return NewModel(c.modelOptions(c.Draft)) })
}

// Name is "draft", or "crossvocab" with a translation.
func (d *Model) Name() string {
	if d.o.Translation != nil {
		return "crossvocab"
	}
	return "draft"
}

// Bytes is the draft model's weights that one token reads.
func (d *Model) Bytes() int64 {
	if d.runner.short != nil {
		return d.m.WeightBytes() - d.runner.short.WholeBytes() + d.runner.short.Bytes()
	}
	return d.m.WeightBytes()
}

// Counts say how often drafting stopped early.
func (d *Model) Counts() Counts { return d.counts }

// Close frees the cache, and the model where that was asked for.
func (d *Model) Close() error {
	d.cache.Close()
	if d.runner.short != nil {
		d.runner.short.Free()
	}
	if d.o.Own {
		return d.o.Model.Close()
	}
	return nil
}

// NewSession starts an empty sequence in the draft model's cache.
func (d *Model) NewSession() (Session, error) {
	return &modelSession{d: d, lane: lane{seq: d.cache.NewSeq()}, own: d.listing()}, nil
}

// listing is a new request's part of the shortlist; nil without one.
func (d *Model) listing() *model.Listing {
	if d.runner.short == nil {
		return nil
	}
	return d.runner.short.NewListing(d.o.ListRoom)
}

// modelSession is a request's place in the draft model.
type modelSession struct {
	d *Model
	lane
	chain
	growth
	grows       bool    // this round's guesses come from growth, not from chain
	treeParents []int32 // of the lane
	nTranslated int     // committed tokens of the target that translated stands for
	translated  []int32 // the committed sequence as the draft numbers tokens; empty without a translation
	own         *model.Listing
}

// Committed translates and puts tokens on the shortlist; else rounds carry all there is to know.
func (s *modelSession) Committed(ids []int32) {
	if s.own != nil {
		s.own.Add(ids)
	}
	if tr := s.d.o.Translation; tr != nil {
		s.translated = tr.toDraft(s.translated, ids)
		s.nTranslated += len(ids)
	}
}

// sequence is the round's sequence as the draft numbers tokens.
func (s *modelSession) sequence() []int32 {
	tr := s.d.o.Translation
	if tr == nil {
		return s.hist
	}
	n := len(s.translated)
	all := tr.toDraft(s.translated, s.hist[s.nTranslated:])
	s.translated = all[:n]
	return all
}

// Close leaves what the sequence holds to later sessions of the same text, until others need the blocks.
func (s *modelSession) Close() {
	s.seq.Release(s.fed)
	if s.own != nil {
		s.own.Close()
	}
}

// Propose grows all trees side by side. A request that the draft cannot follow gets fewer guesses, or none.
func (d *Model) Propose(rounds []Round) error {
	d.live, d.late = d.live[:0], d.late[:0]
	for i := range rounds {
		s := rounds[i].Session.(*modelSession)
		s.chain.begin(&rounds[i])
		s.growth.begin()
		s.grows = d.o.Translation == nil && plain(s.round)
		s.sync(s.sequence())
		if !s.full() && !d.behind(&s.lane, &s.round.Budget, &s.round.Read, &s.round.Behind) && !s.stopped {
			d.live = append(d.live, s)
		}
	}
	if err := d.readLate(); err != nil {
		return fmt.Errorf("draft: %w", err)
	}
	for len(d.live) > 0 {
		d.lanes = d.lanes[:0]
		for _, s := range d.live {
			s.round.Steps++
			d.lanes = append(d.lanes, &s.lane)
		}
		logits, err := d.step(d.lanes)
		if err != nil {
			return fmt.Errorf("draft: %w", err)
		}
		on := d.live[:0]
		for _, s := range d.live {
			if !s.stopped && s.next(logits) {
				on = append(on, s)
			}
		}
		d.live = on
	}
	return nil
}

// plain reports whether a request's guesses are simply its draft's best tokens.
func plain(r *Round) bool {
	return r.Sampler.IsGreedy() && r.Matcher == nil && r.Sampler.Plain()
}

// next adds guesses after a step and queues what the next step reads; it reports whether there is to be one.
func (s *modelSession) next(logits tensor.F32) bool {
	if !s.grows {
		id, ok, err := s.guess(s.d.rows.target(logits.Row(s.row), s.own))
		if err != nil || !ok || s.full() {
			return false
		}
		s.feed = append(s.feed[:0], s.d.rows.own(id))
		return true
	}
	t, first := s.round.Tree, int32(s.round.Tree.Len())
	for i, node := range s.front {
		s.sprout(s.round, node, s.d.rows.listed(logits.Row(s.row+i), s.own), &s.d.rows, i == 0)
	}
	on := s.growth.step(s.round, first)
	s.keep(s.commit, func(i int) int32 { return t.IDs[s.passed[s.commit[i]]] })
	if !on {
		return false
	}
	s.feed = s.feed[:0]
	for _, node := range s.growth.rows {
		s.feed = append(s.feed, t.IDs[node])
	}
	s.treeParents = s.growth.parents(s.treeParents[:0], t)
	s.lane.parents, s.nLogits = s.treeParents, len(s.front)
	s.passed = append(s.passed[:0], s.growth.rows...)
	return true
}

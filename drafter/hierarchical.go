package drafter

import (
	"fmt"
	"slices"

	"quickdraft/kvcache"
)

// innerGuesses is how many guesses the small drafter makes for one pass of the bigger one.
const innerGuesses = 4

// Hierarchical drafts with a model whose own tokens are guessed by a smaller drafter: the small one proposes a few, one
// pass of the bigger one says which of them it would have chosen itself, and these, with the bigger model's
// distributions, are what the target verifies. The guesses are exactly those of the bigger model drafting alone.
type Hierarchical struct {
	runner
	small  Drafter
	o      ModelOptions
	cache  *kvcache.Cache
	live   []*hierarchicalSession
	lanes  []*lane
	rounds []Round                // of the small drafter
	asked  []*hierarchicalSession // of rounds
	rows
}

func init() {
	register("hierarchical", Takes{MinP: true, Shortlist: true}, func(c *Config) (Drafter, error) {
		if c.Bigger == nil {
			return nil, fmt.Errorf("hierarchical: no bigger draft model given")
		}
		small, err := New("ngram", *c)
		if c.Draft != nil {
			small, err = New("draft", *c)
		}
		if err != nil {
			return nil, err
		}
		return NewHierarchical(small, c.modelOptions(c.Bigger))
	})
}

// NewHierarchical makes the drafter of a small drafter and a bigger model. Close closes both where o.Own says so for the
// model.
func NewHierarchical(small Drafter, o ModelOptions) (*Hierarchical, error) {
	o.Shortlist = 0
	big, err := NewModel(o)
	if err != nil {
		return nil, err
	}
	return &Hierarchical{runner: big.runner, small: small, o: big.o, cache: big.cache, rows: big.rows}, nil
}

// Name is "hierarchical".
func (d *Hierarchical) Name() string { return "hierarchical" }

// Small is the drafter whose guesses the bigger model verifies.
func (d *Hierarchical) Small() Drafter { return d.small }

// Bytes counts one pass of the bigger model and one step of the small drafter.
func (d *Hierarchical) Bytes() int64 { return d.m.WeightBytes() + d.small.Bytes() }

// Counts add up those of the bigger model and of the small drafter.
func (d *Hierarchical) Counts() Counts {
	sum := d.counts
	if c, ok := d.small.(Counter); ok {
		sum.add(c.Counts())
	}
	return sum
}

// Close closes the small drafter and frees the cache, and the bigger model where that was asked for.
func (d *Hierarchical) Close() error {
	err := d.small.Close()
	d.cache.Close()
	if d.o.Own {
		if e := d.m.Close(); err == nil {
			err = e
		}
	}
	return err
}

// NewSession opens a session of the small drafter and a sequence of the bigger model.
func (d *Hierarchical) NewSession() (Session, error) {
	small, err := d.small.NewSession()
	if err != nil {
		return nil, err
	}
	return &hierarchicalSession{small: small, lane: lane{seq: d.cache.NewSeq()}}, nil
}

type hierarchicalSession struct {
	lane
	chain
	small   Session
	tree    Tree    // of the small drafter
	guesses []int32 // its first path
}

// Committed tells the small drafter; the bigger model finds the tokens in the round.
func (s *hierarchicalSession) Committed(ids []int32) { s.small.Committed(ids) }

// Close ends the small drafter's session and leaves what the sequence holds to later sessions of the same text.
func (s *hierarchicalSession) Close() {
	s.small.Close()
	s.seq.Release(s.fed)
}

// Propose lets the small drafter and the bigger model take turns until all budgets are used up.
func (d *Hierarchical) Propose(rounds []Round) error {
	d.live, d.late = d.live[:0], d.late[:0]
	for i := range rounds {
		s := rounds[i].Session.(*hierarchicalSession)
		s.begin(&rounds[i])
		s.sync(s.hist)
		d.behind(&s.lane, &s.round.Budget, &s.round.Read, &s.round.Behind)
		if !s.full() && !s.stopped {
			d.live = append(d.live, s)
		}
	}
	if err := d.readLate(); err != nil {
		return fmt.Errorf("hierarchical: %w", err)
	}
	for {
		d.guessSmall()
		d.live = slices.DeleteFunc(d.live, func(s *hierarchicalSession) bool { return s.round.Behind > 0 }) // both read first
		if len(d.live) == 0 {
			return nil
		}
		d.lanes = d.lanes[:0]
		for _, s := range d.live {
			s.sync(s.hist)
			s.feed = append(s.feed, s.guesses...)
			s.round.Inner.Drafted += len(s.guesses)
			s.nLogits = 1 + len(s.guesses)
			s.round.Steps++
			d.lanes = append(d.lanes, &s.lane)
		}
		logits, err := d.step(d.lanes)
		if err != nil {
			return fmt.Errorf("hierarchical: %w", err)
		}
		on := d.live[:0]
		for _, s := range d.live {
			if !s.stopped && s.verify(func(i int) []float32 { return d.target(logits.Row(s.row+i), nil) }) {
				on = append(on, s)
			}
		}
		d.live = on
	}
}

// guessSmall asks the small drafter what the bigger model will choose; without an answer the bigger model goes on alone.
func (d *Hierarchical) guessSmall() {
	d.rounds, d.asked = d.rounds[:0], d.asked[:0]
	for _, s := range d.live {
		r := *s.round
		n := min(innerGuesses, min(r.Budget.Nodes, r.Budget.Depth)-r.Tree.Len()-1)
		s.tree.Reset()
		s.guesses = s.guesses[:0]
		r.Session, r.IDs, r.Seq, r.Tree = s.small, s.hist, nil, &s.tree
		r.Budget, r.Read, r.Behind = Budget{Nodes: n, Depth: n, Feed: r.Budget.Feed}, 0, 0
		if n > 0 {
			d.rounds, d.asked = append(d.rounds, r), append(d.asked, s)
		}
	}
	if len(d.rounds) == 0 || d.small.Propose(d.rounds) != nil {
		return
	}
	for i, s := range d.asked {
		s.round.Read, s.round.Behind = max(s.round.Read, d.rounds[i].Read), max(s.round.Behind, d.rounds[i].Behind)
	}
	for _, s := range d.live {
		parent := int32(-1)
		for i := range s.tree.IDs {
			id := s.tree.IDs[i]
			if s.tree.Parents[i] == parent && !s.tree.Guest[i] && id >= 0 && id < d.vocab {
				s.guesses = append(s.guesses, id)
				parent = int32(i)
			}
		}
	}
}

// verify chooses the bigger model's tokens as long as they were guessed, and the one after. It reports whether drafting
// goes on.
func (s *hierarchicalSession) verify(row func(i int) []float32) bool {
	for i := 0; ; i++ {
		id, ok, err := s.guess(row(i))
		if err != nil || !ok {
			return false
		}
		right := i < len(s.guesses) && s.guesses[i] == id
		if right {
			s.round.Inner.Accepted++
		}
		if s.full() {
			return false
		}
		if !right {
			return true
		}
	}
}

package drafter

import "fmt"

const (
	ngramMinOrder = 2   // shortest n-gram: one token of context
	ngramMaxOrder = 4   // longest n-gram: three tokens of context
	ngramWindow   = 512 // tokens of history kept for contexts
)

// NGramGuesses is how many guesses a round NGram makes unless its maker says otherwise.
const NGramGuesses = 4

// ngramSureness is a first belief in a guess by the tokens of its context; the controller learns what it is worth.
var ngramSureness = [ngramMaxOrder]float64{1: 0.35, 2: 0.55, 3: 0.75}

// NGram guesses what followed the last tokens most often so far: tables of 2-, 3- and 4-grams over a request's prompt and
// answer, the longest known context first, each guess being context for the next. Tables belong to a session and keep all
// counts; only the tokens that form contexts live in a window.
type NGram struct {
	draft int
	bytes int64
}

// NewNGram makes the drafter; draft is the number of guesses a round at most, 0 for 4.
func NewNGram(draft int) (*NGram, error) {
	if draft == 0 {
		draft = NGramGuesses
	}
	if draft < 1 {
		return nil, fmt.Errorf("ngram: %d guesses a round, want 1 or more", draft)
	}
	return &NGram{draft: draft}, nil
}

func init() {
	register("ngram", Takes{}, func(c *Config) (Drafter, error) { return NewNGram(c.Guesses) })
}

// Name is "ngram".
func (d *NGram) Name() string { return "ngram" }

// NewSession starts with empty tables.
func (d *NGram) NewSession() (Session, error) { return &ngramSession{d: d}, nil }

// Bytes is the size of the tables of the shortest n-grams, as large as any request has made them.
func (d *NGram) Bytes() int64 { return d.bytes }

// Instant says that its guesses cost nothing.
func (d *NGram) Instant() {}

// Close has nothing to free.
func (d *NGram) Close() error { return nil }

// Propose chains predictions from the last tokens of each round.
func (d *NGram) Propose(rounds []Round) error {
	for i := range rounds {
		r := &rounds[i]
		s := r.Session.(*ngramSession)
		s.predict(r.Tree, r.IDs, min(d.draft, r.Budget.Nodes, r.Budget.Depth))
		d.bytes = max(d.bytes, s.tables[0].bytes())
	}
	return nil
}

// ngramSession counts the n-grams of one request.
type ngramSession struct {
	d        *NGram
	history  [ngramWindow]int32 // ring: token i of the sequence is at i%ngramWindow
	nHistory int                // tokens ever seen
	tables   [ngramMaxOrder - ngramMinOrder + 1]gramOrder
}

// gramOrder holds the n-grams of one length.
type gramOrder struct {
	contexts gramTable // context -> most frequent continuation
	pairs    gramTable // context and continuation -> count
}

func (o *gramOrder) bytes() int64 { return o.contexts.bytes() + o.pairs.bytes() }

// count notes one more occurrence of a continuation.
func (o *gramOrder) count(key gramKey, id int32) {
	context := o.contexts.add(key)
	key[3] = id
	pair := o.pairs.add(key)
	pair.count++
	if pair.count >= context.count {
		context.best, context.count = id, pair.count
	}
}

// Close has nothing to free.
func (s *ngramSession) Close() {}

// Committed counts the tokens in the tables.
func (s *ngramSession) Committed(ids []int32) {
	for _, id := range ids {
		s.update(id)
	}
}

// update counts id at every order for which there is enough history.
func (s *ngramSession) update(id int32) {
	for n := 1; n <= len(s.tables) && n <= s.nHistory; n++ {
		key := gramKey{-1, -1, -1, -1}
		for i := range n {
			key[2-i] = s.history[(s.nHistory-1-i)%ngramWindow]
		}
		s.tables[n-1].count(key, id)
	}
	s.history[s.nHistory%ngramWindow] = id
	s.nHistory++
}

// predict appends a chain of up to n guesses for what follows ids.
func (s *ngramSession) predict(t *Tree, ids []int32, n int) {
	context := gramKey{-1, -1, -1, -1}
	copy(context[max(0, 3-len(ids)):3], ids[max(0, len(ids)-3):])
	parent := int32(-1)
	for range n {
		id, order := s.next(context)
		if order == 0 {
			return
		}
		parent = t.Add(id, parent, nil)
		t.Belief[parent] = ngramSureness[order]
		context[0], context[1], context[2] = context[1], context[2], id
	}
}

// next returns the most frequent continuation of the longest context that is known, and the tokens of that context; 0 for
// none.
func (s *ngramSession) next(context gramKey) (id int32, order int) {
	for n := len(s.tables); n >= 1; n-- {
		if context[3-n] < 0 {
			continue
		}
		key := gramKey{-1, -1, -1, -1}
		copy(key[3-n:3], context[3-n:3])
		if g := s.tables[n-1].contexts.find(key); g != nil {
			return g.best, n
		}
	}
	return 0, 0
}

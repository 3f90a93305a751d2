package drafter

import "fmt"

const (
	lookaheadLevel = 3  // rows of the window: n-grams of 4 tokens
	lookaheadGrams = 8  // n-grams kept for one first token, the latest
	lookaheadWidth = 16 // columns of the window at most
)

// Lookahead collects n-grams that the target itself produces out of order (lookahead decoding, Fu et al. 2024). A window
// of guest nodes, lookaheadLevel rows by some columns, rides in the target's passes: row 0 is a chain, and below each of
// its tokens hangs a column. What the target says after a column's last token completes an n-gram of Jacobi iterates; the
// rows then move up and the answers become the new last row. N-grams of the sequence itself join the pool too, and those
// that begin with its last token are what is proposed. Pools belong to a session.
type Lookahead struct {
	vocab int32
	width int
}

func init() {
	register("lookahead", Takes{}, func(c *Config) (Drafter, error) {
		_, tokens := c.vocab()
		return NewLookahead(tokens, 0)
	})
}

// NewLookahead makes the drafter for ids below vocab; width is the number of columns, 0 for what the budget allows.
func NewLookahead(vocab, width int) (*Lookahead, error) {
	if width == 0 {
		width = lookaheadWidth
	}
	if vocab < 1 || width < 1 || width > lookaheadWidth {
		return nil, fmt.Errorf("lookahead: window of %d columns over %d tokens, want 1 to %d columns", width, vocab, lookaheadWidth)
	}
	return &Lookahead{vocab: int32(vocab), width: width}, nil
}

// Name is "lookahead".
func (d *Lookahead) Name() string { return "lookahead" }

// Bytes is 0: the window rides in the target's pass.
func (d *Lookahead) Bytes() int64 { return 0 }

// Close has nothing to free.
func (d *Lookahead) Close() error { return nil }

// NewSession starts with an empty pool of n-grams.
func (d *Lookahead) NewSession() (Session, error) {
	return &lookaheadSession{d: d, pool: map[int32]*gramRing{}}, nil
}

// gramRing holds the latest n-grams after one token.
type gramRing struct {
	grams [lookaheadGrams][lookaheadLevel]int32
	n     int // ever added
}

// add keeps a gram; one that is there already becomes the latest.
func (g *gramRing) add(gram [lookaheadLevel]int32) {
	have := min(g.n, lookaheadGrams)
	for i := range have {
		at := (g.n - 1 - i) % lookaheadGrams
		if g.grams[at] != gram {
			continue
		}
		for ; i > 0; i-- {
			next := (g.n - i) % lookaheadGrams
			g.grams[at] = g.grams[next]
			at = next
		}
		g.grams[at] = gram
		return
	}
	g.grams[g.n%lookaheadGrams] = gram
	g.n++
}

// latest returns the i-th latest gram.
func (g *gramRing) latest(i int) [lookaheadLevel]int32 {
	return g.grams[(g.n-1-i)%lookaheadGrams]
}

type lookaheadSession struct {
	d      *Lookahead
	pool   map[int32]*gramRing
	window [lookaheadLevel][lookaheadWidth]int32
	filled bool
	last   []int32 // latest tokens of the sequence, to begin a window with

	// Of the last tree: where each place of the window is. Columns beyond nColumns were left out.
	at       [lookaheadLevel][lookaheadWidth]int32
	nColumns int
}

// Close has nothing to free.
func (s *lookaheadSession) Close() {}

// Committed moves the window along: one token forward comes from its rows moving up, more from columns moving left.
func (s *lookaheadSession) Committed(ids []int32) {
	if s.filled && s.nColumns > 1 {
		for n := (len(ids) - 1) % s.nColumns; n > 0; n-- {
			for level := range s.window {
				row := s.window[level][:s.nColumns]
				first := row[0]
				copy(row, row[1:])
				row[len(row)-1] = first
			}
		}
	}
	for _, id := range ids {
		s.last = append(s.last, id)
		if n := len(s.last) - 1 - lookaheadLevel; n >= 0 {
			s.learn(s.last[n], [lookaheadLevel]int32(s.last[n+1:]))
		}
		if n := len(s.last) - lookaheadWidth - lookaheadLevel; n >= lookaheadWidth {
			s.last = append(s.last[:0], s.last[n:]...)
		}
	}
}

// learn adds an n-gram to the pool.
func (s *lookaheadSession) learn(first int32, gram [lookaheadLevel]int32) {
	g := s.pool[first]
	if g == nil {
		g = &gramRing{}
		s.pool[first] = g
	}
	g.add(gram)
}

// Propose gives n-grams half of the budget, and the window what is left.
func (d *Lookahead) Propose(rounds []Round) error {
	for i := range rounds {
		r := &rounds[i]
		s := r.Session.(*lookaheadSession)
		s.begin()
		s.addGrams(r.Tree, r.IDs[len(r.IDs)-1], max(1, r.Budget.Nodes/2), r.Budget.Depth)
		s.addWindow(r.Tree, r.Budget)
	}
	return nil
}

// begin fills a new session's window with tokens of the sequence: anything will do, the target's answers replace it.
func (s *lookaheadSession) begin() {
	s.nColumns = 0
	if s.filled || len(s.last) == 0 {
		return
	}
	for level := range s.window {
		for col := range s.window[level] {
			s.window[level][col] = s.last[(level+col)%len(s.last)]
		}
	}
	s.filled = true
}

// addGrams proposes the latest n-grams after id, sharing what they have in common.
func (s *lookaheadSession) addGrams(t *Tree, id int32, nodes, depth int) {
	g := s.pool[id]
	if g == nil {
		return
	}
	for i := range min(g.n, lookaheadGrams) {
		parent := int32(-1)
		for _, id := range g.latest(i) {
			if t.Depth(parent) >= depth {
				break
			}
			child := childOf(t, parent, id)
			if child < 0 {
				if t.Len() >= nodes {
					return
				}
				child = t.Add(id, parent, nil)
			}
			parent = child
		}
	}
}

// childOf finds a node by its parent and token, -1 when there is none.
func childOf(t *Tree, parent, id int32) int32 {
	for i := parent + 1; int(i) < t.Len(); i++ {
		if t.Parents[i] == parent && t.IDs[i] == id && !t.Guest[i] {
			return i
		}
	}
	return -1
}

// addWindow adds whole columns as guests: column c hangs below the c-th token of row 0.
func (s *lookaheadSession) addWindow(t *Tree, b Budget) {
	if !s.filled {
		return
	}
	parent := int32(-1)
	for col := range s.d.width {
		if t.Len()+lookaheadLevel > b.Nodes || col+lookaheadLevel > b.Depth {
			return
		}
		parent = t.AddGuest(s.window[0][col], parent)
		s.at[0][col] = parent
		below := parent
		for level := 1; level < lookaheadLevel; level++ {
			below = t.AddGuest(s.window[level][col], below)
			s.at[level][col] = below
		}
		s.nColumns = col + 1
	}
}

// Observed turns the answers after each column into n-grams and moves the window up. Columns that were not computed keep
// their last row, one token on.
func (s *lookaheadSession) Observed(t *Tree, argmax func(node int32) int32) {
	var answers [lookaheadWidth]int32
	for col := range answers {
		answers[col] = -1
		if col < s.nColumns && int(s.at[lookaheadLevel-1][col]) < t.Len() {
			answers[col] = argmax(s.at[lookaheadLevel-1][col])
		}
	}
	for col, id := range answers {
		if id < 0 || id >= s.d.vocab {
			continue
		}
		first := s.window[0][col]
		var gram [lookaheadLevel]int32
		for level := 1; level < lookaheadLevel; level++ {
			gram[level-1] = s.window[level][col]
		}
		gram[lookaheadLevel-1] = id
		s.learn(first, gram)
		for level := range lookaheadLevel - 1 {
			s.window[level][col] = s.window[level+1][col]
		}
		s.window[lookaheadLevel-1][col] = id
	}
}

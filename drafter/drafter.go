// Package drafter guesses the next tokens of a sequence. A drafter proposes and nothing more: package engine verifies every
// guess against the target, so a drafter can change how fast an answer comes and never what it says.
package drafter

import (
	"quickdraft/kvcache"
	"quickdraft/sample"
)

// Tree is what a drafter proposes for one request in one round: guesses for the tokens after the last committed one. A
// chain is a tree in which every node is the parent of the next.
//
// Q is the one thing about which a drafter has to be honest. A greedy answer, and a Reproducible one, is the target's own
// whatever Q says. A sampled one has the target's distribution because a guess is accepted with min(1, p/q) and what is left
// of p after a rejection takes q away: this is exact only if the node was drawn from Q, with chance of its own and after
// everything that Q depends on. So Q is what the draw was made from, after temperature, masks, shortlists and whatever else
// narrowed it, not the draft's softmax; a token that was chosen rather than drawn (the most probable one, one that was seen
// before) has Q nil, and which nodes a tree keeps never depends on the tokens that were drawn. The engine cannot see a wrong Q.
type Tree struct {
	IDs     []int32        // (nodes)
	Parents []int32        // (nodes) index of the parent, which comes first; -1: follows the last committed token
	Q       []*sample.Dist // (nodes) the distribution the node was drawn from; nil when it was chosen without chance
	Guest   []bool         // (nodes) rides in the target's pass but is never accepted; see Observer
	Belief  []float64      // (nodes) how sure the drafter is of a node, or of its best one where it drew by chance; 0: it does not say
	By      []uint64       // (nodes) a bit for each drafter of a union that guessed it; 0: nobody says who did
}

// Reset empties the tree and keeps its memory.
func (t *Tree) Reset() {
	t.Cut(0)
}

// Copy makes t another tree with the nodes of from.
func (t *Tree) Copy(from *Tree) {
	t.IDs, t.Parents, t.Q = append(t.IDs[:0], from.IDs...), append(t.Parents[:0], from.Parents...), append(t.Q[:0], from.Q...)
	t.Guest, t.Belief, t.By = append(t.Guest[:0], from.Guest...), append(t.Belief[:0], from.Belief...), append(t.By[:0], from.By...)
}

// Repair cuts a tree that a drafter filled to at most nodes nodes and makes it one that can be walked through: it ends before
// the first node without a parent that comes earlier, missing distributions, marks and beliefs are added as if nothing had
// been said, a distribution that has not one probability for each token counts as none, and beliefs become numbers from 0
// to 1, those that are none 0. Tokens stay as they are, and nothing depends on them.
func (t *Tree) Repair(nodes int) {
	n := max(0, min(nodes, len(t.IDs), len(t.Parents)))
	for i, parent := range t.Parents[:n] {
		if parent < -1 || int(parent) >= i {
			n = i
			break
		}
	}
	t.Cut(n)
	for len(t.Q) < n {
		t.Q = append(t.Q, nil)
	}
	for len(t.Guest) < n {
		t.Guest = append(t.Guest, false)
	}
	for len(t.Belief) < n {
		t.Belief = append(t.Belief, 0)
	}
	for len(t.By) < n {
		t.By = append(t.By, 0)
	}
	for i, q := range t.Q {
		if q != nil && len(q.IDs) != len(q.P) {
			t.Q[i] = nil
		}
		if p := t.Belief[i]; !(p > 0) {
			t.Belief[i] = 0
		} else if p > 1 {
			t.Belief[i] = 1
		}
	}
}

// Len returns the number of nodes.
func (t *Tree) Len() int { return len(t.IDs) }

// Add appends a node and returns its index. Siblings are tried in the order in which they were added; siblings drawn
// without replacement carry the distribution renormalised without the earlier ones.
func (t *Tree) Add(id, parent int32, q *sample.Dist) int32 {
	t.IDs, t.Parents = append(t.IDs, id), append(t.Parents, parent)
	t.Q, t.Guest, t.Belief, t.By = append(t.Q, q), append(t.Guest, false), append(t.Belief, 0), append(t.By, 0)
	return int32(len(t.IDs) - 1)
}

// AddGuest appends a node that is only computed.
func (t *Tree) AddGuest(id, parent int32) int32 {
	i := t.Add(id, parent, nil)
	t.Guest[i] = true
	return i
}

// Depth returns how many tokens lie between the last committed one and node i, itself included.
func (t *Tree) Depth(i int32) int {
	n := 0
	for ; i >= 0; i = t.Parents[i] {
		n++
	}
	return n
}

// Levels returns the depth of the deepest node, 0 for an empty tree.
func (t *Tree) Levels() (n int) {
	for i := range t.IDs {
		n = max(n, t.Depth(int32(i)))
	}
	return n
}

// Drawn reports whether some node was drawn from a distribution.
func (t *Tree) Drawn() bool {
	for _, q := range t.Q {
		if q != nil {
			return true
		}
	}
	return false
}

// Cut keeps the first n nodes and drops the rest, whose parents may be among those kept but never the other way round.
func (t *Tree) Cut(n int) {
	t.IDs, t.Parents = t.IDs[:min(n, len(t.IDs))], t.Parents[:min(n, len(t.Parents))]
	t.Q, t.Guest = t.Q[:min(n, len(t.Q))], t.Guest[:min(n, len(t.Guest))]
	t.Belief, t.By = t.Belief[:min(n, len(t.Belief))], t.By[:min(n, len(t.By))]
}

// Budget limits one round's tree.
type Budget struct {
	Nodes int     // nodes at most, guests included
	Depth int     // levels at most
	MinP  float64 // stop where the drafter believes less than this in its best guess; 0: never

	// MinReach (levels) ends drafting after a guess at a level when all guesses up to it are right with less than this probability,
	// because no number of further steps is worth its time then; empty: never. The guess is paid for, so it stays.
	MinReach []float64
	// MinNode is how likely a node has to be accepted to be worth verifying beside better ones; 0 where nothing is known.
	MinNode float64
	// Feed is how many tokens of the sequence each model may read in this round besides its own guesses: answers of other
	// requests wait meanwhile. One that has more of them to read makes no guesses and says how many are left; 0: no bound.
	Feed   int
	Arm    int      // for a union: 0 asks all of its drafters, i+1 drafter i alone
	Branch int      // guesses for one position at most, from drafters that know several; 0 and 1: chains
	Trust  *Beliefs // what the drafter's beliefs are worth; nil: what they say
}

// stops reports whether drafting ends after guesses on so many levels, which are all right with probability reach.
func (b *Budget) stops(levels int, reach float64) bool {
	return levels > 0 && len(b.MinReach) > 0 && reach < b.MinReach[min(levels, len(b.MinReach))-1]
}

// trust is how likely a guess is accepted of which the drafter believes p.
func (b *Budget) trust(p float64, drawn bool) float64 {
	if b.Trust == nil {
		return p
	}
	return b.Trust.Estimate(p, drawn)
}

// Round is one request's turn to be drafted for.
type Round struct {
	Session Session
	// IDs are (nTokens) the prompt and everything committed, a copy for drafters; the last one is not in the target's cache
	// yet. A drafter inside another also finds tokens at the end that its session was not told and may never be.
	IDs     []int32
	Seq     *kvcache.Seq    // the target's keys and values, after Propose as before it; nil where there are none to share
	Budget  Budget          // what the tree may hold
	Sampler *sample.Sampler // the request's pipeline, for drafters that sample from it
	Seed    uint64          // the request's seed
	Matcher Matcher         // the request's, to be forked; nil: every token is allowed; a mask that allows none ends the guesses
	Part    int             // which of several drafters of one tree this is: each draws with random numbers of its own
	Coupled bool            // the answer takes plain decoding's tokens: draw with the number that those are drawn with
	Tree    *Tree           // the answer; empty when Propose is called, and left empty for no guess
	Steps   int             // the answer: passes of a model that drafting took; 0 when Propose is called
	Inner   Inner           // the answer, of a drafter that verifies a smaller one's guesses; zero when Propose is called; see Union.Inner
	Read    int             // the answer: tokens of IDs that a model computed, which it had not before; 0 when Propose is called
	Behind  int             // the answer: tokens that a model is yet to read before it guesses, see Budget.Feed; 0 when Propose is called
}

// Inner counts the guesses of a smaller drafter within another, and those of them that the other took for its own.
type Inner struct{ Drafted, Accepted int }

// Layered is implemented by drafters that verify a smaller one's guesses.
type Layered interface {
	Small() Drafter
}

// DraftSteps returns the steps that drafting took: passes of a model, or levels of the tree where there is no model.
func (r *Round) DraftSteps() int {
	if r.Steps > 0 {
		return min(r.Steps, maxSteps)
	}
	return r.Tree.Levels()
}

// InnerCounts returns what the drafter says of a smaller one's guesses, as far as it can be true: from 0 to maxSteps of them, and
// no more taken than there were.
func (r *Round) InnerCounts() Inner {
	drafted := min(max(r.Inner.Drafted, 0), maxSteps)
	return Inner{drafted, min(max(r.Inner.Accepted, 0), drafted)}
}

// maxSteps is what a round's steps, and the guesses of a smaller drafter, count for at most.
const maxSteps = 1 << 12

// Matcher restricts the tokens of an answer to those that some language allows, a grammar's for one. It is at one place of
// the answer and moves along with its tokens.
type Matcher interface {
	// Mask has a bit for every token that may come next (bit id%64 of word id/64); nil allows all. It is valid until Accept.
	Mask() []uint64
	// Accept moves on by a token that the mask allows.
	Accept(id int32)
	// Fork returns a matcher at the same place that moves by itself, to follow a branch of guesses.
	Fork() Matcher
}

// Session is a drafter's memory of one request.
type Session interface {
	// Committed reports the tokens that became part of the sequence since the last call; the first call carries the
	// prompt as well. It comes after every pass, whether the session's guesses were used or not.
	Committed(ids []int32)
	// Close frees what the session holds.
	Close()
}

// Observer is implemented by sessions that want to see what the target made of every node, guests included.
type Observer interface {
	// Observed is called after a pass and before Committed; argmax gives the target's best next token after a node, and
	// after the last committed token for -1.
	Observed(t *Tree, argmax func(node int32) int32)
}

// Instant is implemented by drafters whose guesses take microseconds, so that they can be asked before it is known whether
// their guesses are wanted. They propose a chain, and where Budget.Branch is more than 1 other guesses for the next token after it,
// and say how sure they are of each guess.
type Instant interface {
	Instant()
}

// Drafter makes guesses for many requests. The engine calls it from one goroutine.
//
// The engine trusts nothing that a drafter answers: trees are checked and repaired before they are used (see Tree.Repair), any
// token may be guessed, and a panic in a call means no guesses for the requests of that call from then on. What a drafter is
// given is another matter. It runs in the process, and Round's Seq, Sampler and Matcher are the request's own: drafters read
// and fork them or leave them as they were, and one that does not changes the answer. Neither can the engine survive a panic in a goroutine that a
// drafter started, or a call that does not return.
type Drafter interface {
	// Name is the method's name as --spec-type gives it.
	Name() string
	// NewSession starts a request.
	NewSession() (Session, error)
	// Propose fills the trees of all rounds within their budgets, in batched passes where it has a model. An error means
	// no guesses in this round, never a wrong answer.
	Propose(rounds []Round) error
	// Bytes is what one step of drafting reads of weights and tables. Before anything is measured it says what a step is taken
	// to cost, in proportion to the target's weights, and the start-up line compares it with the cache. Too little makes the first
	// rounds look cheaper than they are: they are charged to the controller's credit as soon as they are measured, and later
	// plans go by measurements alone. No answer depends on it.
	Bytes() int64
	// Close frees the drafter.
	Close() error
}

package drafter

import "slices"

// backoff guesses the next token where what is copied does not tell it: what else followed the last tokens, what followed the
// token before the last one most often, whatever was between, and the commonest tokens. Each of them is right one time in ten to
// fifty, which is worth a place in a pass that costs the same without it: on Zen 4, where a pass over 4 tokens takes as long as one,
// `bench spec --kinds chat,code-writing --per-kind 5 -n 96` had 1.28 and 1.33 times the speed of plain decoding on code writing, 1.18
// and 1.21 times with --spec-draft-branch 1, in turns; chat 1.15 and 1.16 with either.
type backoff struct {
	skips  gramOrder       // context is the token before the last one
	counts map[int32]int32 // of all tokens
	common []int32         // (at most nCommon) the commonest tokens, in falling order, the latest first on a tie
}

const (
	nCommon    = 4
	nOthers    = 2  // tokens that followed the last ones elsewhere
	edgesTried = 64 // places that are looked at for them: a repeated token has as many contexts as repeats

	// manyBranches are as many guesses for the next token as an instant drafter may have: which of them are worth it is decided
	// when all are known.
	manyBranches = 1 + nOthers + 1 + nCommon
)

// First beliefs in them; the controller learns what they are worth.
var (
	otherSureness  = [nOthers]float64{0.12, 0.08}
	skipSureness   = 0.1
	commonSureness = [nCommon]float64{0.05, 0.04, 0.03, 0.03}
)

// learn takes in a token that comes after text.
func (b *backoff) learn(text []int32, id int32) {
	if n := len(text); n >= 2 {
		b.skips.count(skipContext(text), id)
	}
	if b.counts == nil {
		b.counts, b.common = map[int32]int32{}, make([]int32, 0, nCommon)
	}
	b.counts[id]++
	at := slices.Index(b.common, id)
	switch {
	case at >= 0:
	case len(b.common) < nCommon:
		at = len(b.common)
		b.common = append(b.common, id)
	case b.counts[id] < b.counts[b.common[nCommon-1]]:
		return
	default:
		at = nCommon - 1
	}
	for ; at > 0 && b.counts[b.common[at-1]] <= b.counts[id]; at-- {
		b.common[at] = b.common[at-1]
	}
	b.common[at] = id
}

// skipContext is what a token two after text's last but one follows.
func skipContext(text []int32) gramKey { return gramKey{-1, -1, text[len(text)-2], -1} }

// guess adds tokens that may come after the automaton's text, behind what the round's tree has already.
func (b *backoff) guess(r *Round, a *automaton) {
	if len(a.text) < 2 {
		return
	}
	rank, tried := 0, 0
	for state := a.states[a.last].link; state > 0 && rank < nOthers && tried < edgesTried; state = a.states[state].link {
		for e := a.states[state].first; e >= 0 && rank < nOthers && tried < edgesTried; e = a.edges[e].next {
			if tried++; addFirst(r, a.edges[e].id, otherSureness[rank]) {
				rank++
			}
		}
	}
	if g := b.skips.contexts.find(skipContext(a.text)); g != nil {
		addFirst(r, g.best, skipSureness)
	}
	for i, id := range b.common {
		addFirst(r, id, commonSureness[i])
	}
}

// addFirst adds a guess for the next token unless it is one already or the budget is used up.
func addFirst(r *Round, id int32, sureness float64) bool {
	t, first := r.Tree, 0
	for i, parent := range t.Parents {
		if parent == -1 && t.IDs[i] == id {
			return false
		}
		if parent == -1 {
			first++
		}
	}
	if t.Len() >= r.Budget.Nodes || first >= r.Budget.Branch || r.Budget.Depth < 1 {
		return false
	}
	t.Belief[t.Add(id, -1, nil)] = sureness
	return true
}

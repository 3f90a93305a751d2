package drafter

// automaton is a suffix automaton: every path from state 0 spells a substring of the text, and every substring is one. It
// grows by a token at a time in amortised constant time, and has at most two states and three edges a token.
type automaton struct {
	text   []int32
	states []suffixState
	edges  []suffixEdge
	slots  []int32 // (power of two) open addressing by state and token: index into edges plus 1, 0 is free
	last   int32   // the state of the whole text
}

// suffixState stands for substrings that end at the same places.
type suffixState struct {
	length int32 // of the longest of them
	link   int32 // state of the longest suffix that ends in more places; -1 for state 0
	first  int32 // edge it starts with, -1 for none
	end    int32 // a text index behind an occurrence, the latest that was noted
}

type suffixEdge struct {
	from, to int32
	id       int32
	next     int32 // next edge of from, -1 for none
}

// noteDepth bounds how many suffixes learn of a new occurrence; a repeated token has as many suffixes as repeats.
const noteDepth = 24

func newAutomaton() *automaton {
	return &automaton{states: []suffixState{{link: -1, first: -1}}, slots: make([]int32, 64)}
}

// slot returns where the edge is, or the free slot where it belongs.
func (a *automaton) slot(from, id int32) uint64 {
	mask := uint64(len(a.slots) - 1)
	h := (uint64(uint32(from))<<32 | uint64(uint32(id))) * 0x9E3779B97F4A7C15
	for at := h >> 32 & mask; ; at = (at + 1) & mask {
		if i := a.slots[at]; i == 0 || a.edges[i-1].from == from && a.edges[i-1].id == id {
			return at
		}
	}
}

// edge returns the edge's index, -1 when there is none.
func (a *automaton) edge(from, id int32) int32 { return a.slots[a.slot(from, id)] - 1 }

func (a *automaton) addEdge(from, id, to int32) {
	if 2*len(a.edges) >= len(a.slots) {
		a.slots = make([]int32, 2*len(a.slots))
		for i := range a.edges {
			a.slots[a.slot(a.edges[i].from, a.edges[i].id)] = int32(i + 1)
		}
	}
	a.edges = append(a.edges, suffixEdge{from: from, to: to, id: id, next: a.states[from].first})
	a.states[from].first = int32(len(a.edges) - 1)
	a.slots[a.slot(from, id)] = int32(len(a.edges))
}

// extend appends a token. It returns the longest suffix of the text that also occurs earlier: its length and the index
// behind its latest earlier occurrence that was noted.
func (a *automaton) extend(id int32) (length, end int32) {
	a.text = append(a.text, id)
	cur := int32(len(a.states))
	a.states = append(a.states, suffixState{length: a.states[a.last].length + 1, first: -1, end: int32(len(a.text))})
	p := a.last
	for ; p >= 0 && a.edge(p, id) < 0; p = a.states[p].link {
		a.addEdge(p, id, cur)
	}
	link := int32(0)
	if p >= 0 {
		link = a.split(p, id)
	}
	a.states[cur].link, a.last = link, cur
	length, end = a.states[link].length, a.states[link].end
	for n := 0; link > 0 && n < noteDepth; n++ {
		a.states[link].end = int32(len(a.text))
		link = a.states[link].link
	}
	return length, end
}

// split returns the state of p's substrings followed by id, and makes one of its own for them where the edge leads to a
// state that holds longer substrings too.
func (a *automaton) split(p, id int32) int32 {
	q := a.edges[a.edge(p, id)].to
	if a.states[q].length == a.states[p].length+1 {
		return q
	}
	clone := int32(len(a.states))
	a.states = append(a.states, suffixState{length: a.states[p].length + 1, link: a.states[q].link, first: -1, end: a.states[q].end})
	for e := a.states[q].first; e >= 0; e = a.edges[e].next {
		a.addEdge(clone, a.edges[e].id, a.edges[e].to)
	}
	a.states[q].link = clone
	for ; p >= 0; p = a.states[p].link {
		e := a.edge(p, id)
		if e < 0 || a.edges[e].to != q {
			break
		}
		a.edges[e].to = clone
	}
	return clone
}

// suffixMatch is a suffix of some sequence that occurs in an automaton's text.
type suffixMatch struct {
	state  int32
	length int32
}

// step returns the longest suffix of m's tokens and id that occurs in the text.
func (a *automaton) step(m suffixMatch, id int32) suffixMatch {
	for {
		if e := a.edge(m.state, id); e >= 0 {
			return suffixMatch{a.edges[e].to, m.length + 1}
		}
		if m.state == 0 {
			return suffixMatch{}
		}
		m.state = a.states[m.state].link
		m.length = a.states[m.state].length
	}
}

// bytes is the memory the automaton holds.
func (a *automaton) bytes() int64 {
	return int64(4*cap(a.text) + 16*cap(a.states) + 16*cap(a.edges) + 4*cap(a.slots))
}

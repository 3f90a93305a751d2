package drafter

import (
	"slices"

	"quickdraft/sample"
)

// maxFront bounds the nodes that one step of the draft goes on from.
const maxFront = 4

// growth grows a round's tree of greedy guesses in steps of the draft: each step takes the nodes of the newest level that
// are worth it, all in one pass, and adds their most probable next tokens. The draft's cache holds the path that all of
// them share, the stem; what lies beyond rides in every pass, with a mask for a tree.
type growth struct {
	rows   []int32   // (rows of the next pass) nodes: ancestors first, the front last
	passed []int32   // (rows of the last pass) nodes
	front  []int32   // nodes that the next pass gives children
	commit []int32   // rows of the last pass that become part of the stem
	reach  []float64 // (nodes) probability that the node is accepted
	stem   int32     // last node whose keys and values the cache holds as committed; -1: none
	top    []sample.Ranked
}

func (g *growth) begin() {
	g.rows, g.passed, g.reach, g.stem = g.rows[:0], g.passed[:0], g.reach[:0], -1
	g.front = append(g.front[:0], -1)
}

// reachOf is the probability that a node is accepted, 1 for the root.
func (g *growth) reachOf(node int32) float64 {
	if node < 0 {
		return 1
	}
	return g.reach[node]
}

// sprout adds the children of a node, given the draft's logits behind it, as long as they are worth verifying; the best one
// always is when it goes on from the best node.
func (g *growth) sprout(r *Round, node int32, row []float32, of *rows, best bool) {
	depth := r.Tree.Depth(node)
	if depth >= r.Budget.Depth {
		return
	}
	g.top = of.ranker.Top(g.top, row, max(1, r.Budget.Branch))
	for i, c := range g.top {
		if r.Tree.Len() >= r.Budget.Nodes || c.P < r.Budget.MinP {
			return
		}
		reach := float64(g.reachOf(node) * r.Budget.trust(c.P, false))
		if !(best && i == 0) && reach < r.Budget.MinNode {
			continue
		}
		at := r.Tree.Add(of.id(int(c.Index)), node, nil)
		r.Tree.Belief[at] = c.P
		g.reach = append(g.reach, reach)
	}
}

// step chooses the front of the next step among the nodes from first on, the likeliest first, and what of the last pass is
// to be committed before: the nodes that all of the front descend from. It reports whether another step pays; where none
// does, the path to the likeliest node is committed, for the next round.
func (g *growth) step(r *Round, first int32) bool {
	best := int32(-1)
	for i := first; int(i) < r.Tree.Len(); i++ {
		if best < 0 || g.reach[i] > g.reach[best] {
			best = i
		}
	}
	g.front, g.commit = g.front[:0], g.commit[:0]
	if best < 0 {
		return false
	}
	g.front = append(g.front, best)
	levels := r.Tree.Depth(best)
	if r.Tree.Len() >= r.Budget.Nodes || levels >= r.Budget.Depth || r.Budget.stops(levels, g.reach[best]) {
		g.advance(r.Tree)
		return false
	}
	for i := first; int(i) < r.Tree.Len() && len(g.front) < maxFront; i++ {
		if i != best && g.reach[i] >= 2*r.Budget.MinNode {
			g.front = append(g.front, i)
		}
	}
	g.advance(r.Tree)
	g.lay(r.Tree)
	return true
}

// lay makes the rows of the next pass: what lies between the stem and the front, and the front.
func (g *growth) lay(t *Tree) {
	g.rows = g.rows[:0]
	for _, node := range g.front {
		for up := t.Parents[node]; up != g.stem; up = t.Parents[up] {
			g.insert(up)
		}
	}
	g.rows = append(g.rows, g.front...)
}

// parents appends what the rows' parents are among the rows, -1 for the stem.
func (g *growth) parents(dst []int32, t *Tree) []int32 {
	for _, node := range g.rows {
		parent := t.Parents[node]
		if parent == g.stem {
			dst = append(dst, -1)
		} else {
			dst = append(dst, int32(slices.Index(g.rows, parent)))
		}
	}
	return dst
}

// insert keeps rows sorted and without repeats: parents have lower numbers.
func (g *growth) insert(node int32) {
	at := len(g.rows)
	for at > 0 && g.rows[at-1] > node {
		at--
	}
	if at > 0 && g.rows[at-1] == node {
		return
	}
	g.rows = append(g.rows, 0)
	copy(g.rows[at+1:], g.rows[at:])
	g.rows[at] = node
}

// advance moves the stem along what all of the front descend from and the last pass computed.
func (g *growth) advance(t *Tree) {
	for {
		next := below(t, g.front[0], g.stem)
		for _, node := range g.front[1:] {
			if below(t, node, g.stem) != next {
				return
			}
		}
		row := slices.Index(g.passed, next)
		if next < 0 || row < 0 {
			return
		}
		g.commit = append(g.commit, int32(row))
		g.stem = next
	}
}

// below is the ancestor of a node, or itself, whose parent is stem; -1 when there is none.
func below(t *Tree, node, stem int32) int32 {
	for node >= 0 && t.Parents[node] != stem {
		node = t.Parents[node]
	}
	return node
}

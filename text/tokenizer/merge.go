package tokenizer

// mergeAll merges s.syms until no pair is left: the best rank first, and of equal ranks the leftmost.
func (m *bpe) mergeAll(s *scratch) {
	switch n := len(s.syms); {
	case n < 2:
	case n <= scanSyms:
		m.mergeByScan(s)
	default:
		m.mergeByHeap(s)
	}
}

// mergeByScan looks through all pairs for each merge. vals[i] is the merge of symbols i and i+1.
func (m *bpe) mergeByScan(s *scratch) {
	syms, vals := s.syms, s.vals[:0]
	for i := range len(syms) - 1 {
		vals = append(vals, m.merge(syms[i], syms[i+1]))
	}
	for len(vals) > 0 {
		best, at := vals[0]>>32, 0
		for i, v := range vals {
			if v>>32 < best {
				best, at = v>>32, i
			}
		}
		if vals[at] == noMerge {
			break
		}
		syms[at] = int32(uint32(vals[at]))
		syms = append(syms[:at+1], syms[at+2:]...)
		vals = append(vals[:at], vals[at+1:]...)
		if at > 0 {
			vals[at-1] = m.merge(syms[at-1], syms[at])
		}
		if at < len(vals) {
			vals[at] = m.merge(syms[at], syms[at+1])
		}
	}
	s.syms, s.vals = syms, vals
}

// node is a symbol in a doubly linked list over the word.
type node struct {
	id         int32 // -1: merged into the one before
	prev, next int32 // -1: none
}

// candidate is a possible merge of the symbols left and right, which stood at node at when it was found.
type candidate struct {
	val         uint64 // rank<<32 | id
	at          int32
	left, right int32
}

// mergeHeap is a binary heap with the next merge first.
type mergeHeap []candidate

func (h mergeHeap) before(i, j int) bool {
	if a, b := h[i].val>>32, h[j].val>>32; a != b {
		return a < b
	}
	return h[i].at < h[j].at
}

func (h *mergeHeap) push(c candidate) {
	*h = append(*h, c)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if !a.before(i, up) {
			break
		}
		a[i], a[up] = a[up], a[i]
		i = up
	}
}

func (h *mergeHeap) pop() candidate {
	a := *h
	top, last := a[0], len(a)-1
	a[0] = a[last]
	a = a[:last]
	*h = a
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(a) {
			break
		}
		if down+1 < len(a) && a.before(down+1, down) {
			down++
		}
		if !a.before(down, i) {
			break
		}
		a[i], a[down] = a[down], a[i]
		i = down
	}
	return top
}

// mergeByHeap takes n*log(n) time for n symbols, however they merge.
func (m *bpe) mergeByHeap(s *scratch) {
	nodes, h := s.nodes[:0], s.heap[:0]
	for i, id := range s.syms {
		nodes = append(nodes, node{id: id, prev: int32(i) - 1, next: int32(i) + 1})
	}
	nodes[len(nodes)-1].next = -1
	offer := func(at int32) {
		left, next := nodes[at].id, nodes[at].next
		if next < 0 {
			return
		}
		right := nodes[next].id
		if v := m.merge(left, right); v != noMerge {
			h.push(candidate{val: v, at: at, left: left, right: right})
		}
	}
	for i := range len(nodes) - 1 {
		offer(int32(i))
	}
	for len(h) > 0 {
		c := h.pop()
		n := &nodes[c.at]
		if n.id != c.left || n.next < 0 || nodes[n.next].id != c.right {
			continue // a merge has changed one of the two since
		}
		gone := n.next
		n.id, n.next = int32(uint32(c.val)), nodes[gone].next
		nodes[gone].id = -1
		if n.next >= 0 {
			nodes[n.next].prev = c.at
		}
		offer(c.at)
		if n.prev >= 0 {
			offer(n.prev)
		}
	}
	s.syms = s.syms[:0]
	for at := int32(0); at >= 0; at = nodes[at].next {
		s.syms = append(s.syms, nodes[at].id)
	}
	s.nodes, s.heap = nodes, h
}

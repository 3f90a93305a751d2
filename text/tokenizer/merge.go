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

// symbols is a word as a list that is linked in place, four bytes a symbol at its start: the id of a symbol stands where
// the symbol begins. One that was merged out of n > 1 has -n in its second and in its last slot, the way to its neighbours.
type symbols []int32

// next returns where the symbol after the one at i begins, len(l) after the last.
func (l symbols) next(i int) int {
	if i+1 < len(l) && l[i+1] < 0 {
		return i - int(l[i+1])
	}
	return i + 1
}

// prev returns where the symbol before the one at i > 0 begins.
func (l symbols) prev(i int) int {
	if n := l[i-1]; n < 0 {
		return i + int(n)
	}
	return i - 1
}

// join makes one symbol of those at i and j, which are neighbours.
func (l symbols) join(i, j int, id int32) {
	end := l.next(j)
	l[j] = -1 // no longer the begin of one, wherever it is
	l[i], l[i+1], l[end-1] = id, int32(i-end), int32(i-end)
}

// compact returns the ids alone, in the memory of l.
func (l symbols) compact() []int32 {
	n := 0
	for i := 0; i < len(l); {
		next := l.next(i)
		l[n] = l[i]
		n, i = n+1, next
	}
	return l[:n]
}

// mergeHeap is a binary heap of rank<<32 | position of the left symbol: the next merge is first.
type mergeHeap []uint64

func (h *mergeHeap) push(v uint64) {
	*h = append(*h, v)
	a := *h
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if a[up] <= v {
			break
		}
		a[i], i = a[up], up
	}
	a[i] = v
}

func (h *mergeHeap) pop() uint64 {
	a := *h
	top, last := a[0], len(a)-1
	a[0] = a[last]
	*h = a[:last]
	(*h).down(0)
	return top
}

// down moves the entry at i to its place among those below it.
func (h mergeHeap) down(i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		low := 2*i + 1
		if low >= len(h) {
			break
		}
		if low+1 < len(h) && h[low+1] < h[low] {
			low++
		}
		if v <= h[low] {
			break
		}
		h[i], i = h[low], low
	}
	h[i] = v
}

// order makes a heap of entries in any order.
func (h mergeHeap) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// mergeByHeap takes n*log(n) time for n symbols, however they merge, and 13 bytes of memory for each: a text of megabytes
// may be one word. The heap has an entry for every pair that can be merged, and entries of pairs that are no more; those
// are told by their rank.
func (m *bpe) mergeByHeap(s *scratch) {
	list := symbols(s.syms)
	h := s.heap[:0]
	if n := len(list) + len(list)/8; cap(h) < n {
		h = make(mergeHeap, 0, n)
	}
	for i := range len(list) - 1 {
		if v := m.merge(list[i], list[i+1]); v != noMerge {
			h = append(h, v>>32<<32|uint64(i))
		}
	}
	h.order()
	for len(h) > 0 {
		top := h.pop()
		i := int(uint32(top))
		v := m.mergeAt(list, i)
		if v>>32 != top>>32 || v == noMerge {
			continue
		}
		list.join(i, list.next(i), int32(uint32(v)))
		if len(h)+2 > cap(h) {
			h = m.dropStale(h, list)
		}
		if v := m.mergeAt(list, i); v != noMerge {
			h.push(v>>32<<32 | uint64(i))
		}
		if i == 0 {
			continue
		}
		left := list.prev(i)
		if v := m.mergeAt(list, left); v != noMerge {
			h.push(v>>32<<32 | uint64(left))
		}
	}
	s.syms, s.heap = list.compact(), h
}

// mergeAt is the merge of the symbol that begins at i with the one after it.
func (m *bpe) mergeAt(list symbols, i int) uint64 {
	if list[i] < 0 {
		return noMerge
	}
	next := list.next(i)
	if next >= len(list) {
		return noMerge
	}
	return m.merge(list[i], list[next])
}

// dropStale drops the entries of pairs that are no more. Every merge leaves room for one, so that there is as much room
// afterwards as there were merges, and what this costs is shared by as many again.
func (m *bpe) dropStale(h mergeHeap, list symbols) mergeHeap {
	kept := h[:0]
	for _, e := range h {
		if v := m.mergeAt(list, int(uint32(e))); v != noMerge && v>>32 == e>>32 {
			kept = append(kept, e)
		}
	}
	kept.order()
	return kept
}

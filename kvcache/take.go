package kvcache

import "fmt"

// Take copies an appended row of another sequence of the same cache, counted from that one's committed length, to the place
// behind the committed tokens of s, in every layer: what a tree computed for a token becomes part of a sequence that
// follows one of its branches. The room must be reserved; Commit counts the row.
func (s *Seq) Take(from *Seq, row int) {
	if s.cache != from.cache {
		panic("kvcache: take of a row from another cache")
	}
	s.mustHold(1)
	from.mustHold(row + 1)
	if row < 0 {
		panic(fmt.Sprintf("kvcache: take of row %d", row))
	}
	a, b := from.length+row, s.length
	for i := range s.cache.layers {
		l := &s.cache.layers[i]
		source, target := from.tables[l.pool].blocks[a/BlockTokens], s.tables[l.pool].blocks[b/BlockTokens]
		if !s.cache.pools[l.pool].writable(target) {
			panic(fmt.Sprintf("kvcache: take at position %d into a shared block: Reserve first", b))
		}
		l.k.copyKeys(int(target), b%BlockTokens, int(source), a%BlockTokens)
		l.v.copyValues(int(target), b%BlockTokens, int(source), a%BlockTokens)
	}
}

package kvcache

import (
	"fmt"

	"quickdraft/tensor"
)

// Seq is one sequence of tokens. A pass reserves room, appends its rows in every layer, reads them through views, and
// then commits the rows that count; what was appended and not committed is overwritten by the next pass.
type Seq struct {
	cache  *Cache
	blocks []int32 // block i holds positions 16*i to 16*i+15
	length int     // committed tokens
}

// NewSeq returns an empty sequence. It holds no block until Reserve.
func (c *Cache) NewSeq() *Seq {
	return &Seq{cache: c, blocks: make([]int32, 0, c.cfg.Blocks)}
}

// Len is the number of committed tokens.
func (s *Seq) Len() int { return s.length }

// Reserve makes room for n more tokens after the committed ones. The error says how many blocks are missing; the
// sequence is unchanged then.
func (s *Seq) Reserve(n int) error {
	if n < 0 {
		return fmt.Errorf("kvcache: reserve of %d tokens, must not be negative", n)
	}
	c := s.cache
	room := len(s.blocks)*BlockTokens - s.length
	if n <= room {
		return nil
	}
	need := (n - room + BlockTokens - 1) / BlockTokens
	if need > len(c.free) {
		return fmt.Errorf("kvcache: %d more tokens after %d need %d blocks of %d tokens, %d of %d are free",
			n, s.length, need, BlockTokens, len(c.free), c.cfg.Blocks)
	}
	rest := len(c.free) - need
	for i := len(c.free) - 1; i >= rest; i-- {
		s.blocks = append(s.blocks, c.free[i])
	}
	c.free = c.free[:rest]
	return nil
}

// Append writes the rows of k and v, (n, KVHeads*HeadDim), at the positions after the committed tokens of one layer.
// The room must be reserved.
func (s *Seq) Append(layer int, k, v tensor.F32) {
	cfg := &s.cache.cfg
	if k.Cols != cfg.KVHeads*cfg.HeadDim || v.Cols != k.Cols || v.Rows != k.Rows {
		panic(fmt.Sprintf("kvcache: append of keys (%d, %d) and values (%d, %d) to %d heads of %d", k.Rows, k.Cols, v.Rows,
			v.Cols, cfg.KVHeads, cfg.HeadDim))
	}
	s.mustHold(k.Rows)
	l := &s.cache.layers[layer]
	size := cfg.blockSize()
	for i := range k.Rows {
		pos := s.length + i
		at := int(s.blocks[pos/BlockTokens]) * size
		l.k.putKeys(at, k.Row(i), pos%BlockTokens)
		l.v.putValues(at, v.Row(i), pos%BlockTokens, cfg.HeadDim)
	}
}

// putKeys writes one token's keys to their lane of the block at a place, (KVHeads*HeadDim, 16).
func (s store) putKeys(at int, k []float32, lane int) {
	for i, x := range k {
		s.put(at+i*BlockTokens+lane, x)
	}
}

// putValues writes one token's values to the block at a place, (KVHeads, 16, HeadDim).
func (s store) putValues(at int, v []float32, lane, headDim int) {
	for ; len(v) > 0; v, at = v[headDim:], at+headDim*BlockTokens {
		for d, x := range v[:headDim] {
			s.put(at+lane*headDim+d, x)
		}
	}
}

// Commit counts the first n appended rows as part of the sequence.
func (s *Seq) Commit(n int) {
	s.mustHold(n)
	s.length += n
}

// Move copies, in every layer, the appended row from to the appended row to, both counted from the committed length: a
// tree's accepted path is brought together before it is committed.
func (s *Seq) Move(from, to int) {
	s.mustHold(max(from, to) + 1)
	if from < 0 || to < 0 {
		panic(fmt.Sprintf("kvcache: move of row %d to %d", from, to))
	}
	cfg := &s.cache.cfg
	size := cfg.blockSize()
	a, b := s.length+from, s.length+to
	blockA, blockB := int(s.blocks[a/BlockTokens])*size, int(s.blocks[b/BlockTokens])*size
	a, b = a%BlockTokens, b%BlockTokens
	for i := range s.cache.layers {
		l := &s.cache.layers[i]
		for at := 0; at < size; at += BlockTokens {
			l.k.move(blockB+at+b, blockA+at+a, 1)
		}
		for at := 0; at < size; at += cfg.HeadDim * BlockTokens {
			l.v.move(blockB+at+b*cfg.HeadDim, blockA+at+a*cfg.HeadDim, cfg.HeadDim)
		}
	}
}

// Truncate keeps the first n committed tokens and frees the blocks past them, those only reserved included.
func (s *Seq) Truncate(n int) {
	if n < 0 || n > s.length {
		panic(fmt.Sprintf("kvcache: truncate to %d of %d tokens", n, s.length))
	}
	s.length = n
	keep := (n + BlockTokens - 1) / BlockTokens
	for i := len(s.blocks) - 1; i >= keep; i-- {
		s.cache.free = append(s.cache.free, s.blocks[i])
	}
	s.blocks = s.blocks[:keep]
}

// Free gives all blocks back; the sequence is empty afterwards and may be used again.
func (s *Seq) Free() { s.Truncate(0) }

// View shows one layer's committed tokens and extra appended rows after them. It is valid until the blocks it shows are
// freed. In a layer with a window it starts at the block of the oldest position that the first extra row sees.
func (s *Seq) View(layer, extra int) tensor.KVView {
	s.mustHold(extra)
	l := &s.cache.layers[layer]
	first := 0
	if l.window > 0 {
		first = max(s.length+1-l.window, 0) / BlockTokens
	}
	end := s.length + extra
	return tensor.KVView{
		K: l.k.half, V: l.v.half, K32: l.k.full, V32: l.v.full,
		Blocks: s.blocks[first : (end+BlockTokens-1)/BlockTokens],
		First:  first * BlockTokens,
		Len:    end,
	}
}

// mustHold panics when fewer than n rows are reserved after the committed tokens.
func (s *Seq) mustHold(n int) {
	if n < 0 || s.length+n > len(s.blocks)*BlockTokens {
		panic(fmt.Sprintf("kvcache: %d rows after %d tokens in %d blocks: Reserve first", n, s.length, len(s.blocks)))
	}
}

package kvcache

import (
	"fmt"

	"quickdraft/tensor"
)

// Seq is one sequence of tokens. A pass reserves room, appends its rows in every layer, reads them through views, and
// then commits the rows that count; what was appended and not committed is overwritten by the next pass.
type Seq struct {
	cache     *Cache
	tables    []table // (pools)
	length    int     // committed tokens
	tail      *node   // the cached prefix that the first nodes*16 tokens are; nil for none
	nodes     int
	liveIndex int // in Cache.live, -1 for a sequence without blocks
}

// table is a sequence's blocks of one pool.
type table struct {
	blocks []int32 // block i holds positions 16*i to 16*i+15
	first  int     // blocks before this one have left the window and are no longer held
}

// NewSeq returns an empty sequence. It holds no block until Reserve or Adopt.
func (c *Cache) NewSeq() *Seq {
	s := &Seq{cache: c, tables: make([]table, len(c.pools)), liveIndex: -1}
	for i := range s.tables {
		s.tables[i].blocks = make([]int32, 0, c.cfg.Blocks)
	}
	return s
}

// Len is the number of committed tokens.
func (s *Seq) Len() int { return s.length }

// Reserve makes room for n more tokens after the committed ones, in blocks that belong to this sequence alone. The error
// says how many blocks are missing, or that another sequence holds a contiguous cache; the sequence is unchanged then.
func (s *Seq) Reserve(n int) error {
	if n < 0 {
		return fmt.Errorf("kvcache: reserve of %d tokens, must not be negative", n)
	}
	if n == 0 {
		return nil
	}
	c := s.cache
	if c.taken(s) {
		return c.errTaken(n)
	}
	total := blocksFor(s.length + n)
	for i, p := range c.pools {
		need := max(total-len(s.tables[i].blocks), 0)
		if b, ok := s.partial(i); ok && p.refs[b] > 1 {
			need++
		}
		if need > p.available() {
			return fmt.Errorf("kvcache: %d more tokens after %d need %d blocks of %d tokens, %d of %d are free",
				n, s.length, need, BlockTokens, p.available(), len(p.refs))
		}
	}
	for i := range c.pools {
		t := &s.tables[i]
		for len(t.blocks) < total {
			t.blocks = append(t.blocks, c.take(i, len(t.blocks)))
		}
		s.own(i)
	}
	s.enlist()
	return nil
}

// partial returns the block that the next row goes to when it holds committed rows too.
func (s *Seq) partial(pool int) (block int32, ok bool) {
	if s.length%BlockTokens == 0 {
		return 0, false
	}
	return s.tables[pool].blocks[s.length/BlockTokens], true
}

// taken reports whether a sequence other than s holds a contiguous cache.
func (c *Cache) taken(s *Seq) bool { return c.cfg.Contiguous && len(c.live) > 0 && c.live[0] != s }

func (c *Cache) errTaken(n int) error {
	return fmt.Errorf("kvcache: reserve of %d tokens in a contiguous cache, which another sequence of %d tokens holds", n, c.live[0].length)
}

// own makes the partial block of a pool writable: a shared one is copied, and so is a cached one unless no block is left or
// the block has to stay in its place; then the prefix cache loses it.
func (s *Seq) own(pool int) {
	c, p := s.cache, s.cache.pools[pool]
	b, ok := s.partial(pool)
	if !ok || p.writable(b) {
		return
	}
	if p.refs[b] == 1 && (c.cfg.Contiguous || p.available() == 0) {
		c.forget(pool, b)
		return
	}
	copied := c.take(pool, s.length/BlockTokens)
	c.copyBlock(pool, copied, b)
	s.tables[pool].blocks[s.length/BlockTokens] = copied
	p.release(b)
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
	blocks := s.tables[l.pool].blocks
	for i := range k.Rows {
		pos := s.length + i
		b := blocks[pos/BlockTokens]
		if !s.cache.pools[l.pool].writable(b) {
			panic(fmt.Sprintf("kvcache: append at position %d to a shared block: Reserve first", pos))
		}
		l.k.putKeys(int(b), k.Row(i), pos%BlockTokens)
		l.v.putValues(int(b), v.Row(i), pos%BlockTokens)
	}
}

// Commit counts the first n appended rows as part of the sequence. Blocks that have left a window by more than Slack
// tokens are given back.
func (s *Seq) Commit(n int) {
	s.mustHold(n)
	s.length += n
	for i, p := range s.cache.pools {
		s.leave(i, p.firstSeen(max(s.length-Slack, 0)))
	}
}

// Extend counts the first n appended rows as Commit does, but for the time being: no block is given back, so that Truncate
// to the length from before leaves the sequence as it was. It is for guesses.
func (s *Seq) Extend(n int) {
	s.mustHold(n)
	s.length += n
}

// leave gives the blocks of a pool before the given one back.
func (s *Seq) leave(pool, first int) {
	for t := &s.tables[pool]; t.first < first; t.first++ {
		s.cache.pools[pool].release(t.blocks[t.first])
		t.blocks[t.first] = -1
	}
}

// Move copies, in every layer, the appended row from to the appended row to, both counted from the committed length: a
// tree's accepted path is brought together before it is committed.
func (s *Seq) Move(from, to int) {
	s.mustHold(max(from, to) + 1)
	if from < 0 || to < 0 {
		panic(fmt.Sprintf("kvcache: move of row %d to %d", from, to))
	}
	a, b := s.length+from, s.length+to
	for i := range s.cache.layers {
		l := &s.cache.layers[i]
		blocks := s.tables[l.pool].blocks
		source, target := int(blocks[a/BlockTokens]), int(blocks[b/BlockTokens])
		l.k.copyKeys(target, b%BlockTokens, source, a%BlockTokens)
		l.v.copyValues(target, b%BlockTokens, source, a%BlockTokens)
	}
}

// Truncate keeps the first n committed tokens, frees the blocks past them, those only reserved included, and returns what
// is left: n, or 0 when a window before n is gone, which happens only more than Slack tokens back or in an adopted prefix.
func (s *Seq) Truncate(n int) int {
	if n < 0 || n > s.length {
		panic(fmt.Sprintf("kvcache: truncate to %d of %d tokens", n, s.length))
	}
	for i, p := range s.cache.pools {
		if p.firstSeen(n) < s.tables[i].first {
			n = 0
		}
	}
	s.length = n
	for s.nodes*BlockTokens > n {
		s.climb()
	}
	keep := blocksFor(n)
	for i, p := range s.cache.pools {
		t := &s.tables[i]
		for j := len(t.blocks) - 1; j >= max(keep, t.first); j-- {
			p.release(t.blocks[j])
		}
		t.blocks, t.first = t.blocks[:keep], min(t.first, keep)
	}
	if n == 0 {
		s.delist()
	}
	return n
}

// Free gives all blocks back; the sequence is empty afterwards and may be used again.
func (s *Seq) Free() { s.Truncate(0) }

// Fork returns a new sequence with the same committed tokens. The two share their blocks until one writes. A contiguous
// cache has no place for a second sequence: there Fork panics.
func (s *Seq) Fork() *Seq {
	if s.cache.cfg.Contiguous {
		panic(fmt.Sprintf("kvcache: fork of %d tokens in a contiguous cache, which holds one sequence", s.length))
	}
	f := s.cache.NewSeq()
	f.length = s.length
	f.setTail(s.tail, s.nodes)
	for i, p := range s.cache.pools {
		t := &s.tables[i]
		f.tables[i] = table{blocks: append(f.tables[i].blocks, t.blocks[:blocksFor(s.length)]...), first: t.first}
		for _, b := range f.tables[i].blocks[t.first:] {
			p.hold(b)
		}
	}
	if f.length > 0 {
		f.enlist()
	}
	return f
}

// View shows one layer's committed tokens and extra appended rows after them. It is valid until the blocks it shows are
// freed. In a layer with a window it starts at the block of the oldest position that the first extra row sees.
func (s *Seq) View(layer, extra int) tensor.KVView {
	s.mustHold(extra)
	l := &s.cache.layers[layer]
	first, end := s.cache.pools[l.pool].firstSeen(s.length), s.length+extra
	return tensor.KVView{
		K: l.k.half, V: l.v.half, K32: l.k.full, V32: l.v.full, K8: l.k.eight, V8: l.v.eight,
		Blocks: s.tables[l.pool].blocks[first:blocksFor(end)],
		First:  first * BlockTokens,
		Len:    end,
	}
}

// mustHold panics when fewer than n rows are reserved after the committed tokens.
func (s *Seq) mustHold(n int) {
	if room := len(s.tables[0].blocks); n < 0 || s.length+n > room*BlockTokens {
		panic(fmt.Sprintf("kvcache: %d rows after %d tokens in %d blocks: Reserve first", n, s.length, room))
	}
}

// enlist notes that the sequence holds blocks, delist that it holds none.
func (s *Seq) enlist() {
	if s.liveIndex < 0 {
		s.liveIndex = len(s.cache.live)
		s.cache.live = append(s.cache.live, s)
	}
}

func (s *Seq) delist() {
	if s.liveIndex >= 0 {
		live := s.cache.live
		last := live[len(live)-1]
		live[s.liveIndex], last.liveIndex = last, s.liveIndex
		s.cache.live = live[:len(live)-1]
		s.liveIndex = -1
	}
}

func blocksFor(nTokens int) int { return (nTokens + BlockTokens - 1) / BlockTokens }

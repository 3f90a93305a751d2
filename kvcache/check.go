package kvcache

import "fmt"

// CheckIntegrity compares everything that the cache keeps twice: holders of blocks against the blocks of sequences, the
// free and idle lists against holders, and cached prefixes against their blocks. The error names what differs.
func (c *Cache) CheckIntegrity() error {
	tails := map[*node]int{}
	for i, s := range c.live {
		if s.liveIndex != i {
			return fmt.Errorf("kvcache: sequence %d of %d believes to be number %d", i, len(c.live), s.liveIndex)
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("kvcache: sequence %d: %w", i, err)
		}
		if s.tail != nil {
			tails[s.tail]++
		}
	}
	for i, p := range c.pools {
		if err := c.checkPool(i, p); err != nil {
			return fmt.Errorf("kvcache: pool %d: %w", i, err)
		}
	}
	return c.checkNodes(tails)
}

// check looks at one sequence.
func (s *Seq) check() error {
	depth := 0
	for n := s.tail; n != nil && n.parent != nil; n = n.parent {
		depth++
	}
	if depth != s.nodes || s.nodes*BlockTokens > s.length {
		return fmt.Errorf("%d tokens, tail of depth %d, counted as %d", s.length, depth, s.nodes)
	}
	for i, p := range s.cache.pools {
		t := &s.tables[i]
		if len(t.blocks) < blocksFor(s.length) || t.first > p.firstSeen(s.length) {
			return fmt.Errorf("%d tokens in %d blocks from %d on of pool %d", s.length, len(t.blocks), t.first, i)
		}
		for j, b := range t.blocks {
			if (b < 0) != (j < t.first) {
				return fmt.Errorf("block %d of pool %d is %d, those held begin at %d", j, i, b, t.first)
			}
		}
	}
	return nil
}

// checkPool counts every block's holders and places.
func (c *Cache) checkPool(pool int, p *pool) error {
	refs, places := make([]int32, len(p.refs)), make([]int, len(p.refs))
	for _, s := range c.live {
		for _, b := range s.tables[pool].blocks[s.tables[pool].first:] {
			refs[b]++
		}
	}
	for _, b := range p.free {
		if places[b]++; p.node[b] != nil {
			return fmt.Errorf("free block %d is cached", b)
		}
	}
	nIdle := 0
	for b := p.next[len(p.refs)]; int(b) < len(p.refs) && nIdle <= len(p.refs); b = p.next[b] {
		nIdle++
		if places[b]++; p.node[b] == nil {
			return fmt.Errorf("idle block %d is not cached", b)
		}
	}
	if nIdle != p.nIdle {
		return fmt.Errorf("%d idle blocks, counted as %d", nIdle, p.nIdle)
	}
	for b := range refs {
		if refs[b] != p.refs[b] {
			return fmt.Errorf("block %d has %d holders, counted as %d", b, refs[b], p.refs[b])
		}
		if want := min(1, 1-min(refs[b], 1)); places[b] != int(want) {
			return fmt.Errorf("block %d with %d holders is %d times free or idle", b, refs[b], places[b])
		}
		if n := p.node[b]; n != nil && n.blocks[pool] != int32(b) {
			return fmt.Errorf("block %d is cached for a prefix that has block %d", b, n.blocks[pool])
		}
	}
	return nil
}

// checkNodes walks the prefixes.
func (c *Cache) checkNodes(tails map[*node]int) error {
	full, stack := 0, []*node{&c.prefix.root}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for c := n.children; c != nil; c = c.sibling {
			stack = append(stack, c)
		}
		nBlocks := 0
		for i, b := range n.blocks {
			if b >= 0 {
				if nBlocks++; c.pools[i].node[b] != n {
					return fmt.Errorf("kvcache: prefix has block %d of pool %d, which is another's", b, i)
				}
			}
		}
		if n == &c.prefix.root {
			continue
		}
		if nBlocks != n.nBlocks || tails[n] != n.nTails {
			return fmt.Errorf("kvcache: prefix with %d blocks and %d tails, counted as %d and %d", nBlocks, tails[n], n.nBlocks, n.nTails)
		}
		if nBlocks == 0 && n.nTails == 0 && n.children == nil {
			return fmt.Errorf("kvcache: prefix of %d tokens that nothing needs", n.nTokens)
		}
		if n.nTokens == BlockTokens {
			if full++; c.prefix.child(n.parent, n.tokens[:]) != n {
				return fmt.Errorf("kvcache: prefix that its hash does not find")
			}
		}
	}
	for _, n := range c.prefix.index {
		for ; n != nil; n = n.next {
			full--
		}
	}
	if full != 0 {
		return fmt.Errorf("kvcache: %d more prefixes in the tree than in the index", full)
	}
	return nil
}

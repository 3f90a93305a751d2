package kvcache

import (
	"math/bits"
	"slices"
)

// prefixes is what the cache knows about the tokens of its blocks: a tree of nodes, one for each run of 16 tokens after
// the runs of its ancestors. A chained hash finds a node; equal tokens and the same parent, which was found in the same
// way, decide.
type prefixes struct {
	root  node
	index []*node // (power of two) by the lowest bits of the hash, linked by node.next; a map would allocate now and then
	spare *node   // nodes for reuse, linked by node.next
	hash  func(parent uint64, tokens []int32) uint64
}

// node is the tokens of one block after those of its ancestors. It lives while it has a block, a child or a sequence
// whose tail it is.
type node struct {
	parent   *node
	children *node // the first, linked by sibling
	sibling  *node
	next     *node
	hash     uint64
	tokens   [BlockTokens]int32
	nTokens  int     // fewer than 16 in a leaf that a finished sequence left
	blocks   []int32 // (pools) -1 where the block was evicted
	nBlocks  int     // not evicted
	nTails   int     // sequences whose tail this is
}

// init makes the nodes of a full cache at once, a few hundred bytes a block: publishing while tokens are decoded allocates
// nothing then. There are as many nodes with a block as blocks at most, and as many again are for ancestors without.
func (t *prefixes) init(pools []*pool) {
	n := 0
	for _, p := range pools {
		n += 2 * len(p.refs)
	}
	t.index, t.hash = make([]*node, 1<<bits.Len(uint(n))), chainHash
	nodes, numbers := make([]node, n), make([]int32, n*len(pools))
	for i := range nodes {
		n := &nodes[i]
		n.blocks, numbers = numbers[:len(pools):len(pools)], numbers[len(pools):]
		n.next, t.spare = t.spare, n
	}
}

// chainHash mixes the tokens of a block into the hash of the blocks before it.
func chainHash(parent uint64, tokens []int32) uint64 {
	h := parent ^ 0x9e3779b97f4a7c15
	for _, id := range tokens {
		h = (h ^ uint64(uint32(id))) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

// child returns the node of a full block after parent, or nil.
func (t *prefixes) child(parent *node, tokens []int32) *node {
	hash := t.hash(parent.hash, tokens)
	for n := *t.bucket(hash); n != nil; n = n.next {
		if n.hash == hash && n.parent == parent && slices.Equal(n.tokens[:], tokens) {
			return n
		}
	}
	return nil
}

// closest returns the child with a block that shares the most tokens, at least one, with the given ones, and how many.
func (n *node) closest(tokens []int32) (best *node, shared int) {
	for c := n.children; c != nil; c = c.sibling {
		k := 0
		for k < min(len(tokens), c.nTokens) && c.tokens[k] == tokens[k] {
			k++
		}
		if k > shared && c.nBlocks > 0 {
			best, shared = c, k
		}
	}
	return best, shared
}

// add makes a node of up to 16 tokens without blocks.
func (t *prefixes) add(parent *node, tokens []int32, pools int) *node {
	n := t.spare
	if n == nil {
		n = &node{blocks: make([]int32, pools)}
	} else {
		t.spare = n.next
	}
	n.parent, n.next, n.nTokens = parent, nil, copy(n.tokens[:], tokens)
	parent.children, n.sibling = n, parent.children
	for i := range n.blocks {
		n.blocks[i] = -1
	}
	if n.nTokens == BlockTokens {
		n.hash = t.hash(parent.hash, tokens)
		first := t.bucket(n.hash)
		n.next, *first = *first, n
	}
	return n
}

// prune removes a node that nothing needs any more, and then its ancestors.
func (t *prefixes) prune(n *node) {
	for n != &t.root && n.nBlocks == 0 && n.nTails == 0 && n.children == nil {
		parent := n.parent
		at := &parent.children
		for *at != n {
			at = &(*at).sibling
		}
		*at = n.sibling
		if n.nTokens == BlockTokens {
			t.unlink(n)
		}
		n.parent, n.next, t.spare = nil, t.spare, n
		n = parent
	}
}

// unlink takes a node out of the index.
func (t *prefixes) unlink(n *node) {
	at := t.bucket(n.hash)
	for *at != n {
		at = &(*at).next
	}
	*at = n.next
}

// bucket is where the nodes of a hash begin.
func (t *prefixes) bucket(hash uint64) **node { return &t.index[hash&uint64(len(t.index)-1)] }

// forget takes a block out of the prefix cache.
func (c *Cache) forget(pool int, b int32) {
	p := c.pools[pool]
	n := p.node[b]
	p.node[b] = nil
	n.blocks[pool] = -1
	n.nBlocks--
	c.prefix.prune(n)
}

// setTail makes n, of the given depth, the cached prefix of the sequence.
func (s *Seq) setTail(n *node, depth int) {
	old := s.tail
	if n != nil {
		n.nTails++
	}
	s.tail, s.nodes = n, depth
	if old != nil {
		old.nTails--
		s.cache.prefix.prune(old)
	}
}

// climb goes from the tail to its parent.
func (s *Seq) climb() {
	if s.nodes == 1 {
		s.setTail(nil, 0)
		return
	}
	s.setTail(s.tail.parent, s.nodes-1)
}

// end is the tail, or the root of the prefixes.
func (s *Seq) end() *node {
	if s.tail == nil {
		return &s.cache.prefix.root
	}
	return s.tail
}

// Adopt makes an empty sequence hold the longest cached prefix of ids and returns its length. The prefix may end inside a
// block, whose rest is copied when it is written. While another sequence holds a contiguous cache, there is none.
func (s *Seq) Adopt(ids []int32) int {
	if s.length > 0 {
		panic("kvcache: adopt by a sequence that is not empty")
	}
	if s.cache.taken(s) {
		return 0
	}
	t := &s.cache.prefix
	n := &t.root
	for at := 0; at+BlockTokens <= len(ids); at += BlockTokens {
		c := t.child(n, ids[at:at+BlockTokens])
		if c == nil {
			break
		}
		n = c
		s.setTail(n, s.nodes+1)
	}
	for {
		part, shared := s.end().closest(ids[s.nodes*BlockTokens:])
		if part != nil && s.hold(part, shared) || s.nodes > 0 && s.hold(nil, 0) || s.nodes == 0 {
			return s.length
		}
		s.climb()
	}
}

// hold takes the blocks of the tail's path, and of a partial block after it, unless one that is needed was evicted. What
// allows to cut the sequence inside its windows comes along if it is there.
func (s *Seq) hold(part *node, shared int) bool {
	length := s.nodes*BlockTokens + shared
	last := s.tail
	if part != nil {
		last = part
	}
	for i, p := range s.cache.pools {
		n := last
		for j := blocksFor(length) - 1; j >= p.firstSeen(length); j-- {
			if n.blocks[i] < 0 {
				return false
			}
			n = n.parent
		}
	}
	for i, p := range s.cache.pools {
		t := &s.tables[i]
		t.blocks = t.blocks[:blocksFor(length)]
		t.first = len(t.blocks)
		n := last
		for j := len(t.blocks) - 1; j >= 0; j-- {
			if b := n.blocks[i]; j+1 == t.first && b >= 0 && j >= p.firstSeen(max(length-Slack, 0)) {
				t.blocks[j], t.first = b, j
				p.hold(b)
			} else {
				t.blocks[j] = -1
			}
			n = n.parent
		}
	}
	s.length = length
	s.enlist()
	return true
}

// Publish tells the prefix cache which tokens the committed ones are, ids[:Len()]. Full blocks become available to Adopt
// of other sequences at once; where another sequence had published the same tokens, the two share its blocks from now on,
// which hold the same bits.
func (s *Seq) Publish(ids []int32) {
	t := &s.cache.prefix
	for (s.nodes+1)*BlockTokens <= s.length {
		tokens := ids[s.nodes*BlockTokens : (s.nodes+1)*BlockTokens]
		n := t.child(s.end(), tokens)
		if n == nil {
			n = t.add(s.end(), tokens, len(s.cache.pools))
		}
		s.share(n, s.nodes)
		s.setTail(n, s.nodes+1)
	}
}

// share makes the sequence's block j the node's, or the node's the sequence's.
func (s *Seq) share(n *node, j int) {
	for i, p := range s.cache.pools {
		b := s.tables[i].blocks[j]
		switch cached := n.blocks[i]; {
		case b < 0 || b == cached:
		case cached < 0 && p.node[b] == nil:
			p.node[b], n.blocks[i] = n, b
			n.nBlocks++
		case cached >= 0:
			p.hold(cached)
			s.tables[i].blocks[j] = cached
			p.release(b)
		}
	}
}

// Release publishes the sequence, its partial last block included, and frees it: until its blocks are evicted, Adopt
// finds them.
func (s *Seq) Release(ids []int32) {
	s.Publish(ids)
	if rest := ids[s.nodes*BlockTokens : s.length]; len(rest) > 0 {
		if _, shared := s.end().closest(rest); shared < len(rest) {
			n := s.cache.prefix.add(s.end(), rest, len(s.cache.pools))
			s.share(n, s.nodes)
			s.cache.prefix.prune(n)
		}
	}
	s.Free()
}

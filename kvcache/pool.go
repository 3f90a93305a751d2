package kvcache

// pool is the blocks of the layers that share a window. A block is free, held by sequences, or idle: held by none but
// part of a cached prefix. Idle blocks form a list from the least recently used one to the most recent.
type pool struct {
	window     int     // positions that rows see, 0 for all
	refs       []int32 // (blocks) sequences that hold the block
	node       []*node // (blocks) the cached prefix that the block belongs to, nil for none
	free       []int32 // block numbers; the last is taken first
	prev, next []int32 // (blocks+1) neighbours in the list of idle blocks; the last entry is both its ends
	nIdle      int
}

func newPool(window, blocks int) *pool {
	p := &pool{
		window: window, refs: make([]int32, blocks), node: make([]*node, blocks), free: make([]int32, blocks),
		prev: make([]int32, blocks+1), next: make([]int32, blocks+1),
	}
	for i := range p.free {
		p.free[i] = int32(blocks - 1 - i)
	}
	p.prev[blocks], p.next[blocks] = int32(blocks), int32(blocks)
	return p
}

// available is the number of blocks that a sequence can have.
func (p *pool) available() int { return len(p.free) + p.nIdle }

// firstSeen is the number of the oldest block that the row after length tokens sees.
func (p *pool) firstSeen(length int) int {
	if p.window == 0 {
		return 0
	}
	return max(length+1-p.window, 0) / BlockTokens
}

// oldest is the idle block to evict next; there must be one.
func (p *pool) oldest() int32 { return p.next[len(p.refs)] }

// idle puts a block at the recent end of the list.
func (p *pool) idle(b int32) {
	end := int32(len(p.refs))
	last := p.prev[end]
	p.prev[b], p.next[b] = last, end
	p.next[last], p.prev[end] = b, b
	p.nIdle++
}

// wake takes a block out of the list.
func (p *pool) wake(b int32) {
	p.next[p.prev[b]], p.prev[p.next[b]] = p.next[b], p.prev[b]
	p.nIdle--
}

// hold adds a holder to a block that is held or idle.
func (p *pool) hold(b int32) {
	if p.refs[b] == 0 {
		p.wake(b)
	}
	p.refs[b]++
}

// release takes a holder from a block. One that is cached becomes idle with its last holder, another one free.
func (p *pool) release(b int32) {
	p.refs[b]--
	switch {
	case p.refs[b] < 0:
		panic("kvcache: block released more often than held")
	case p.refs[b] > 0:
	case p.node[b] != nil:
		p.idle(b)
	default:
		p.free = append(p.free, b)
	}
}

// writable reports whether the one holder of a block may write into it.
func (p *pool) writable(b int32) bool { return p.refs[b] == 1 && p.node[b] == nil }

// take returns a block for place j of a sequence, with one holder. In a contiguous cache it is the block of that place;
// elsewhere a free one, or when there is none the idle one that was used longest ago. There must be an available one.
func (c *Cache) take(pool, j int) int32 {
	p := c.pools[pool]
	b := int32(j % len(p.refs))
	switch {
	case c.cfg.Contiguous:
	case len(p.free) > 0:
		b = p.free[len(p.free)-1]
	default:
		b = p.oldest()
	}
	if p.node[b] != nil {
		p.wake(b)
		c.forget(pool, b)
	} else {
		p.unfree(b)
	}
	p.refs[b] = 1
	return b
}

// unfree takes a block out of the free ones. Those of a contiguous cache are freed and taken in opposite orders, so that the
// search ends early there too.
func (p *pool) unfree(b int32) {
	i := len(p.free) - 1
	for p.free[i] != b {
		i--
	}
	p.free = append(p.free[:i], p.free[i+1:]...)
}

// Package kvcache stores the keys and values of sequences in blocks of 16 tokens.
//
// A block has one number in all layers that share a window. Sequences take blocks from a common pool as they grow and give
// them back when they are cut or freed; several may hold the same block, and who writes into a shared one gets a copy
// first. Blocks whose tokens are known stay behind as a prefix cache until their memory is needed (see Seq.Adopt). The
// content of a block is float16 (or float32 when asked for), laid out for the attention of package tensor (see
// tensor.KVView).
//
// For a single stream there is Config.Contiguous: the same calls, but the rows lie in memory in the order of their positions,
// and one sequence at a time holds them. Content and views are the same, and so are the results of attention.
package kvcache

import (
	"fmt"
	"math"

	"quickdraft/machine"
	"quickdraft/tensor"
)

// BlockTokens is the number of tokens of a block.
const BlockTokens = tensor.KVBlock

// Slack is how many committed tokens a sequence with sliding windows can always be cut by; see Seq.Truncate.
const Slack = 8 * BlockTokens

// Config is the shape of a cache.
type Config struct {
	Layers, KVHeads, HeadDim int
	Windows                  []int // (Layers): positions a layer's rows see, 0 for all; nil for all in every layer
	Blocks                   int   // capacity in blocks
	WindowBlocks             int   // capacity of the layers that have a window; 0 for Blocks
	F32                      bool  // keep float32 instead of float16, for comparison with other implementations
	K8, V8                   bool  // keep keys, values in 8 bits instead of float16
	Contiguous               bool  // keep one sequence in order; see Cache.Contiguous
}

// Cache is a pool of blocks. It is for one goroutine, like the sequences made from it.
type Cache struct {
	cfg    Config
	layers []layer
	pools  []*pool // one for each window that occurs, in the order of the layers
	live   []*Seq  // sequences that hold blocks
	prefix prefixes
	pages  machine.Pages
}

// layer is the store of one layer: the pool's blocks of blockSize values each.
type layer struct {
	k, v store
	pool int
}

// New returns an empty cache. Memory is reserved at once but becomes resident only as blocks are written. The error
// names the field that is out of range, or the size when there is no such memory.
func New(cfg Config) (*Cache, error) {
	if cfg.WindowBlocks == 0 {
		cfg.WindowBlocks = cfg.Blocks
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"Layers", cfg.Layers}, {"KVHeads", cfg.KVHeads}, {"HeadDim", cfg.HeadDim}, {"Blocks", cfg.Blocks}, {"WindowBlocks", cfg.WindowBlocks}} {
		if f.value < 1 || f.value > math.MaxInt32 {
			return nil, fmt.Errorf("kvcache: %s is %d, must be 1 to %d", f.name, f.value, math.MaxInt32)
		}
	}
	if cfg.Windows != nil && len(cfg.Windows) != cfg.Layers {
		return nil, fmt.Errorf("kvcache: Windows has %d entries, must be one for each of %d layers", len(cfg.Windows), cfg.Layers)
	}
	if cfg.F32 && (cfg.K8 || cfg.V8) {
		return nil, fmt.Errorf("kvcache: 8-bit keys %v and values %v, must not be with F32", cfg.K8, cfg.V8)
	}
	bytes := cfg.bytes()
	if bytes > 1<<46 {
		return nil, fmt.Errorf("kvcache: %.0f bytes for %d layers, %d heads of %d and %d blocks, more than any machine maps",
			bytes, cfg.Layers, cfg.KVHeads, cfg.HeadDim, cfg.Blocks)
	}
	// Small pages: a cache is rarely full, and huge ones would make the unused rest of every layer resident.
	pages, err := machine.MapPages(int(bytes), false)
	if err != nil {
		return nil, fmt.Errorf("kvcache: %d blocks of %d layers: %w", cfg.Blocks, cfg.Layers, err)
	}
	c := &Cache{cfg: cfg, layers: make([]layer, cfg.Layers), pages: pages}
	data := pages.Data
	for i := range c.layers {
		l := &c.layers[i]
		l.k, data = newStore(data, cfg.format(cfg.K8), cfg.blocks(i), &cfg)
		l.v, data = newStore(data, cfg.format(cfg.V8), cfg.blocks(i), &cfg)
		l.pool = c.poolOf(cfg.window(i), cfg.blocks(i))
	}
	c.prefix.init(c.pools)
	return c, nil
}

// poolOf returns the number of the pool for a window, which it makes when there is none.
func (c *Cache) poolOf(window, blocks int) int {
	for i, p := range c.pools {
		if p.window == window {
			return i
		}
	}
	c.pools = append(c.pools, newPool(window, blocks))
	return len(c.pools) - 1
}

// Close gives the memory back; the cache, its sequences and their views must not be used afterwards.
func (c *Cache) Close() { c.pages.Free() }

// Contiguous reports whether the cache keeps one sequence in order. Block i of it has number i, modulo the capacity where
// windows make a ring of it, so nothing has to be searched or copied. While a sequence holds blocks, Reserve and Restore are
// refused to others and Adopt finds nothing for them; Fork panics. What a released sequence leaves is found by Adopt up to
// the first block that a later one has overwritten.
func (c *Cache) Contiguous() bool { return c.cfg.Contiguous }

// Blocks is the capacity in blocks.
func (c *Cache) Blocks() int { return c.cfg.Blocks }

// FreeBlocks is the number of blocks that no sequence holds, for the layers that see everything; where all have windows, of
// the pool with the fewest. Cached prefixes count as free: they give way.
func (c *Cache) FreeBlocks() int {
	n := math.MaxInt
	for _, p := range c.pools {
		if p.window == 0 {
			return p.available()
		}
		n = min(n, p.available())
	}
	return n
}

// CachedBlocks is the number of blocks that hold a cached prefix and no sequence, over all pools.
func (c *Cache) CachedBlocks() int {
	n := 0
	for _, p := range c.pools {
		n += p.nIdle
	}
	return n
}

// Bytes is the memory of a full cache.
func (c *Cache) Bytes() int64 { return int64(len(c.pages.Data)) }

// copyBlock copies the keys and values of a block in all layers of a pool.
func (c *Cache) copyBlock(pool int, to, from int32) {
	for i := range c.layers {
		if l := &c.layers[i]; l.pool == pool {
			l.k.copyBlock(int(to), int(from))
			l.v.copyBlock(int(to), int(from))
		}
	}
}

// window is the window of a layer, 0 for none.
func (cfg *Config) window(layer int) int {
	if cfg.Windows == nil {
		return 0
	}
	return max(cfg.Windows[layer], 0)
}

// blocks is the capacity of a layer.
func (cfg *Config) blocks(layer int) int {
	if cfg.window(layer) > 0 {
		return cfg.WindowBlocks
	}
	return cfg.Blocks
}

// blockSize is the number of values of a layer's block, of keys or of values.
func (cfg *Config) blockSize() int { return cfg.KVHeads * cfg.HeadDim * BlockTokens }

// bytes is the size of the store; as a float it cannot overflow.
func (cfg *Config) bytes() float64 {
	windowed := 0
	for _, w := range cfg.Windows {
		if w > 0 {
			windowed++
		}
	}
	blocks := float64(float64(cfg.Layers-windowed)*float64(cfg.Blocks)) + float64(float64(windowed)*float64(cfg.WindowBlocks))
	values := float64(cfg.KVHeads) * float64(cfg.HeadDim) * BlockTokens
	if values > 1<<46 {
		return values // the size of a block would overflow
	}
	return blocks * float64(cfg.blockBytes(cfg.format(cfg.K8))+cfg.blockBytes(cfg.format(cfg.V8)))
}

// format is that of keys or values.
func (cfg *Config) format(eight bool) format {
	switch {
	case eight:
		return eights
	case cfg.F32:
		return floats
	}
	return halves
}

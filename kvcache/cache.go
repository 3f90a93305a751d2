// Package kvcache stores the keys and values of sequences in blocks of 16 tokens.
//
// A block has one number in all layers. Sequences take blocks from a common pool as they grow and give them back when
// they are cut or freed; the content of a block is float16 (or float32 when asked for), laid out for the attention of
// package tensor (see tensor.KVView).
package kvcache

import (
	"fmt"
	"math"

	"quickdraft/machine"
	"quickdraft/tensor"
)

// BlockTokens is the number of tokens of a block.
const BlockTokens = tensor.KVBlock

// Config is the shape of a cache.
type Config struct {
	Layers, KVHeads, HeadDim int
	Windows                  []int // (Layers): positions a layer's rows see, 0 for all; nil for all in every layer
	Blocks                   int   // capacity in blocks
	F32                      bool  // keep float32 instead of float16, for comparison with other implementations
}

// Cache is a pool of blocks. It is for one goroutine, like the sequences made from it.
type Cache struct {
	cfg    Config
	layers []layer
	free   []int32 // block numbers; the last is taken first
	pages  machine.Pages
}

// layer is the store of one layer: Blocks blocks of blockSize values each.
type layer struct {
	k, v   store
	window int
}

// New returns an empty cache. Memory is reserved at once but becomes resident only as blocks are written. The error
// names the field that is out of range, or the size when there is no such memory.
func New(cfg Config) (*Cache, error) {
	for _, f := range []struct {
		name  string
		value int
	}{{"Layers", cfg.Layers}, {"KVHeads", cfg.KVHeads}, {"HeadDim", cfg.HeadDim}, {"Blocks", cfg.Blocks}} {
		if f.value < 1 || f.value > math.MaxInt32 {
			return nil, fmt.Errorf("kvcache: %s is %d, must be 1 to %d", f.name, f.value, math.MaxInt32)
		}
	}
	if cfg.Windows != nil && len(cfg.Windows) != cfg.Layers {
		return nil, fmt.Errorf("kvcache: Windows has %d entries, must be one for each of %d layers", len(cfg.Windows), cfg.Layers)
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
	c := &Cache{cfg: cfg, layers: make([]layer, cfg.Layers), free: make([]int32, cfg.Blocks), pages: pages}
	data, n := pages.Data, cfg.Blocks*cfg.blockSize()*cfg.valueBytes()
	for i := range c.layers {
		l := &c.layers[i]
		l.k, l.v, data = newStore(data[:n], cfg.F32), newStore(data[n:2*n], cfg.F32), data[2*n:]
		if cfg.Windows != nil {
			l.window = max(cfg.Windows[i], 0)
		}
	}
	for i := range c.free {
		c.free[i] = int32(cfg.Blocks - 1 - i)
	}
	return c, nil
}

// Close gives the memory back; the cache, its sequences and their views must not be used afterwards.
func (c *Cache) Close() { c.pages.Free() }

// Blocks is the capacity in blocks.
func (c *Cache) Blocks() int { return c.cfg.Blocks }

// FreeBlocks is the number of blocks that no sequence holds.
func (c *Cache) FreeBlocks() int { return len(c.free) }

// Bytes is the memory of a full cache.
func (c *Cache) Bytes() int64 { return int64(len(c.pages.Data)) }

// blockSize is the number of values of a layer's block, of keys or of values.
func (cfg *Config) blockSize() int { return cfg.KVHeads * cfg.HeadDim * BlockTokens }

// bytes is the size of the store; as a float it cannot overflow.
func (cfg *Config) bytes() float64 {
	values := float64(cfg.KVHeads) * float64(cfg.HeadDim) * BlockTokens * float64(cfg.Blocks)
	return 2 * float64(cfg.Layers) * values * float64(cfg.valueBytes())
}

func (cfg *Config) valueBytes() int {
	if cfg.F32 {
		return 4
	}
	return 2
}

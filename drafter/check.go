package drafter

import (
	"fmt"

	"quickdraft/kvcache"
)

// Checker is implemented by drafters that hold keys and values of their own, for tests of what becomes of them.
type Checker interface {
	// Check reports what contradicts itself in the drafter's caches, and where no session is open, blocks that are still held.
	Check(idle bool) error
}

func checkCache(c *kvcache.Cache, idle bool) error {
	if err := c.CheckIntegrity(); err != nil {
		return fmt.Errorf("draft: %w", err)
	}
	if free := c.FreeBlocks(); idle && free != c.Blocks() {
		return fmt.Errorf("draft: %d of %d KV blocks free with no session open", free, c.Blocks())
	}
	return nil
}

// Check looks at the draft model's cache.
func (d *Model) Check(idle bool) error { return checkCache(d.cache, idle) }

// Check looks at the bigger model's cache and at the small drafter's.
func (d *Hierarchical) Check(idle bool) error {
	err := checkCache(d.cache, idle)
	if c, ok := d.small.(Checker); ok && err == nil {
		err = c.Check(idle)
	}
	return err
}

// Check looks at the caches of all parts.
func (d *Union) Check(idle bool) error {
	for _, part := range d.drafters {
		if c, ok := part.(Checker); ok {
			if err := c.Check(idle); err != nil {
				return err
			}
		}
	}
	return nil
}

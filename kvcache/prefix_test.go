package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/tensor"
)

// tokens makes n ids that differ from position to position.
func tokens(first int32, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = first + int32(i)
	}
	return ids
}

// filled returns a sequence that holds the rows of ids.
func filled(t *testing.T, c *Cache, ids []int32) *model {
	m := &model{seq: c.NewSeq()}
	width := c.cfg.KVHeads * c.cfg.HeadDim * c.cfg.Layers
	for i := range ids {
		m.rows = append(m.rows, rowOf(ids[:i+1], width))
	}
	require.NoError(t, m.seq.Reserve(len(ids)))
	m.append(m.rows)
	m.seq.Commit(len(ids))
	m.ids = ids
	m.check(t, nil)
	return m
}

func small(t *testing.T, cfg Config) *Cache {
	cfg.Layers, cfg.KVHeads, cfg.HeadDim = 2, 1, 2
	if cfg.Windows == nil {
		cfg.Windows = []int{0, 0}
	}
	c, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestAdoptFindsTheLongestPrefix(t *testing.T) {
	c := small(t, Config{Blocks: 40})
	ids := tokens(0, 100)
	filled(t, c, ids).seq.Release(ids)
	require.Equal(t, 7, c.CachedBlocks())
	require.Equal(t, 40, c.FreeBlocks())
	for _, k := range []struct {
		name string
		ids  []int32
		want int
	}{
		{"the same", ids, 100},
		{"longer", append(tokens(0, 100), 7, 7), 100},
		{"shorter", ids[:99], 99},
		{"inside a block", ids[:37], 37},
		{"whole blocks", ids[:32], 32},
		{"differs inside a block", append(tokens(0, 50), tokens(500, 50)...), 50},
		{"differs at once", tokens(1, 100), 0},
		{"other first block, same second", append(tokens(200, 16), tokens(16, 16)...), 0},
		{"none", nil, 0},
	} {
		t.Run(k.name, func(t *testing.T) {
			s := c.NewSeq()
			require.Equal(t, k.want, s.Adopt(k.ids))
			require.Equal(t, k.want, s.Len())
			require.NoError(t, c.CheckIntegrity())
			s.Free()
			require.Equal(t, 7, c.CachedBlocks(), "nothing is lost")
		})
	}
}

func TestSharedBlocksAreCopiedWhenWritten(t *testing.T) {
	c := small(t, Config{Blocks: 4})
	a := filled(t, c, tokens(0, 20))
	b := &model{seq: a.seq.Fork(), ids: a.ids, rows: a.rows}
	require.Equal(t, 2, c.FreeBlocks())
	require.Panics(t, func() { b.append(a.rows[:1]) }, "a shared block must be reserved first")
	require.NoError(t, b.seq.Reserve(1))
	require.Equal(t, 1, c.FreeBlocks(), "one copy of the last block")
	b.append(a.rows[:1])
	b.seq.Commit(1)
	a.check(t, nil)
	require.NoError(t, a.seq.Reserve(1))
	require.Equal(t, 1, c.FreeBlocks(), "nobody shares it any more")
	require.NoError(t, c.CheckIntegrity())

	third := a.seq.Fork()
	require.NoError(t, third.Reserve(1))
	require.EqualError(t, a.seq.Fork().Reserve(1), "kvcache: 1 more tokens after 20 need 1 blocks of 16 tokens, 0 of 4 are free")
}

func TestEvictionTakesTheLeastRecentlyUsedEnd(t *testing.T) {
	c := small(t, Config{Blocks: 6})
	x, y := tokens(0, 48), tokens(100, 48)
	filled(t, c, x).seq.Release(x)
	filled(t, c, y).seq.Release(y)
	s := c.NewSeq()
	require.Equal(t, 48, s.Adopt(x)) // x is the more recent one now
	s.Free()
	require.NoError(t, s.Reserve(16))
	require.Equal(t, 32, c.NewSeq().Adopt(y), "the end of the older one went first")
	require.NoError(t, c.CheckIntegrity())
	for _, s := range append([]*Seq(nil), c.live...) {
		s.Free()
	}
	require.NoError(t, s.Reserve(4*16))
	require.Equal(t, 0, c.NewSeq().Adopt(x))
	require.Equal(t, 32, c.NewSeq().Adopt(y))
}

func TestEqualSequencesShareTheirBlocks(t *testing.T) {
	c := small(t, Config{Blocks: 10})
	a, b := filled(t, c, tokens(0, 40)), filled(t, c, tokens(0, 40))
	require.Equal(t, 4, c.FreeBlocks())
	a.seq.Publish(a.ids)
	b.seq.Publish(b.ids)
	require.Equal(t, 6, c.FreeBlocks())
	b.check(t, nil)
	require.NoError(t, c.CheckIntegrity())
}

// TestWindowsHoldOnlyTheirWindow feeds more tokens than the windowed layers have room for.
func TestWindowsHoldOnlyTheirWindow(t *testing.T) {
	c := small(t, Config{Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 12})
	ids := tokens(0, 600)
	m := &model{seq: c.NewSeq()}
	for at := 0; at < len(ids); at += 10 {
		var rows []row
		for i := at; i < at+10; i++ {
			rows = append(rows, rowOf(ids[:i+1], 4))
		}
		require.NoError(t, m.seq.Reserve(10))
		m.append(rows)
		m.check(t, rows)
		m.seq.Commit(10)
		m.rows, m.ids = append(m.rows, rows...), ids[:at+10]
		m.seq.Publish(m.ids)
		require.NoError(t, c.CheckIntegrity())
	}
	require.Equal(t, 600-Slack, m.seq.Truncate(600-Slack))
	require.Equal(t, 0, m.seq.Truncate(100), "the window before position 100 is gone")
	require.Equal(t, c.cfg.WindowBlocks, c.pools[1].available())
	require.Equal(t, 592, c.NewSeq().Adopt(ids), "the end is still known, with its window")
	require.NoError(t, c.CheckIntegrity())
}

func TestPublishAllocatesNothing(t *testing.T) {
	c := small(t, Config{Blocks: 8})
	x := tensor.NewF32(16, 2)
	ids := tokens(0, 64)
	s := c.NewSeq()
	turn := int32(0)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		turn++
		s.Free()
		for i := range ids {
			ids[i] = turn
		}
		for range 4 {
			require.NoError(t, s.Reserve(16))
			for layer := range 2 {
				s.Append(layer, x, x)
			}
			s.Commit(16)
			s.Publish(ids)
		}
	}))
}

// long is a sequence of n committed tokens, taken ten at a time so that few windowed blocks do.
func long(t *testing.T, c *Cache, n int) *Seq {
	t.Helper()
	s := c.NewSeq()
	for s.Len() < n {
		step := min(10, n-s.Len())
		require.NoError(t, s.Reserve(step))
		s.Commit(step)
	}
	return s
}

// TestSlackIsKeptAtEveryLength cuts by what a window always allows, and by a block more.
func TestSlackIsKeptAtEveryLength(t *testing.T) {
	c := small(t, Config{Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 14})
	gone := 0
	for n := 200; n < 240; n++ {
		s := long(t, c, n)
		require.Equal(t, n-Slack, s.Truncate(n-Slack))
		s.Free()
		s = long(t, c, n)
		if s.Truncate(n-Slack-BlockTokens) == 0 {
			gone++
		}
		s.Free()
	}
	require.Equal(t, 40, gone, "what the window left is given back")
}

// TestAFreedSequenceIsAsNew uses one again whose first blocks had left the window.
func TestAFreedSequenceIsAsNew(t *testing.T) {
	c := small(t, Config{Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 14})
	s := long(t, c, 400)
	s.Free()
	require.NoError(t, s.Reserve(40))
	s.Commit(40)
	require.NoError(t, c.CheckIntegrity())
	require.Len(t, s.View(1, 0).Blocks, 2, "positions 21 to 39 are seen")
	s.Free()
	for _, p := range c.pools {
		require.Equal(t, len(p.refs), p.available())
	}
	require.NoError(t, c.CheckIntegrity())
}

// TestACachedBlockIsCopiedWhileOneIsLeft continues in a partial block of a cached prefix: with a block left the prefix stays,
// without one it makes way.
func TestACachedBlockIsCopiedWhileOneIsLeft(t *testing.T) {
	for blocks, want := range map[int]int{3: 20, 2: 16} {
		c := small(t, Config{Blocks: blocks})
		ids := tokens(0, 20)
		filled(t, c, ids).seq.Release(ids)
		s := c.NewSeq()
		require.Equal(t, 20, s.Adopt(ids))
		require.NoError(t, s.Reserve(1))
		s.Commit(1)
		s.Free()
		require.NoError(t, c.CheckIntegrity())
		require.Equal(t, want, c.NewSeq().Adopt(ids), "%d blocks", blocks)
	}
}

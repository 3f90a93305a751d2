package kvcache

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTakeFollowsABranch makes sequences of two branches of a tree whose rows were appended behind a third.
func TestTakeFollowsABranch(t *testing.T) {
	for name, cfg := range map[string]Config{
		"float16": {Blocks: 40}, "float32": {Blocks: 40, F32: true}, "8 bits": {Blocks: 40, K8: true, V8: true}, "windows": {Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 40},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 15, 16, 30, 31, 32} {
				c := small(t, cfg)
				free := c.FreeBlocks()
				stem := filled(t, c, tokens(0, n))
				width := c.cfg.KVHeads * c.cfg.HeadDim * c.cfg.Layers
				branches := [2][]int32{append(tokens(0, n), 7, 8, 9), append(tokens(0, n), 6, 5, 4)}
				var tree []row // the branches' rows in turns
				for depth := range 3 {
					for _, ids := range branches {
						tree = append(tree, rowOf(ids[:n+depth+1], width))
					}
				}
				require.NoError(t, stem.seq.Reserve(len(tree)))
				stem.append(tree)
				for b, ids := range branches {
					m := &model{seq: stem.seq.Fork(), ids: ids, rows: slices.Clone(stem.rows)}
					for depth := range 3 {
						require.NoError(t, m.seq.Reserve(1))
						m.seq.Take(stem.seq, 2*depth+b)
						m.seq.Commit(1)
						m.rows = append(m.rows, tree[2*depth+b])
						m.check(t, nil)
						stem.check(t, tree)
						require.NoError(t, c.CheckIntegrity())
					}
					m.seq.Free()
				}
				stem.seq.Free()
				require.Equal(t, free, c.FreeBlocks())
			}
		})
	}
}

func TestTakeNeedsRoomOfItsOwn(t *testing.T) {
	c := small(t, Config{Blocks: 10})
	stem := filled(t, c, tokens(0, 20))
	require.NoError(t, stem.seq.Reserve(1))
	stem.append(stem.rows[:1])
	branch := stem.seq.Fork()
	require.PanicsWithValue(t, "kvcache: take at position 20 into a shared block: Reserve first", func() { branch.Take(stem.seq, 0) })
	require.NoError(t, branch.Reserve(1))
	require.Panics(t, func() { branch.Take(stem.seq, 12) }, "not appended")
	require.Panics(t, func() { branch.Take(stem.seq, -1) })
	require.Panics(t, func() { branch.Take(filled(t, small(t, Config{Blocks: 10}), tokens(0, 20)).seq, 0) }, "another cache")
}

// TestExtendLeavesNoTrace lengthens a sequence for guesses and cuts it again, with windows that its guesses have left.
func TestExtendLeavesNoTrace(t *testing.T) {
	for _, contiguous := range []bool{false, true} {
		for _, n := range []int{1, 16, 40, 200} {
			c := small(t, Config{Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 20, Contiguous: contiguous})
			m := filled(t, c, tokens(0, n))
			free, first := c.pools[1].available(), m.seq.tables[1].first
			ids, width := tokens(0, n+60), c.cfg.KVHeads*c.cfg.HeadDim*c.cfg.Layers
			var extra []row
			for i := range 60 {
				extra = append(extra, rowOf(ids[:n+i+1], width))
			}
			require.NoError(t, m.seq.Reserve(60))
			m.append(extra)
			m.seq.Extend(60)
			require.Equal(t, n+60, m.seq.Len())
			require.NoError(t, c.CheckIntegrity())
			require.Panics(t, func() { m.seq.Extend(100) }, "not reserved")
			require.Equal(t, n, m.seq.Truncate(n))
			require.NoError(t, c.CheckIntegrity())
			require.Equal(t, []int{free, first}, []int{c.pools[1].available(), m.seq.tables[1].first})
			m.check(t, nil)
		}
	}
}

package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCollidingHashesDecideNothing has one hash for everything: blocks of the same tokens after other tokens, and of other
// tokens after the same ones, are told apart all the same, whichever was published first.
func TestCollidingHashesDecideNothing(t *testing.T) {
	join := func(parts ...[]int32) (ids []int32) {
		for _, p := range parts {
			ids = append(ids, p...)
		}
		return ids
	}
	a, b, x, y := tokens(0, 16), tokens(100, 16), tokens(200, 16), tokens(300, 16)
	all := [][]int32{join(a, x), join(b, x), join(b, y), join(x, a), join(a, y, x), join(b, x, y)}
	for first := range all {
		c := small(t, Config{Blocks: 40})
		c.prefix.hash = func(uint64, []int32) uint64 { return 7 }
		for i := range all {
			ids := all[(first+i)%len(all)]
			filled(t, c, ids).seq.Release(ids)
			require.NoError(t, c.CheckIntegrity())
		}
		for _, ids := range append(all, join(y, x), join(a, b), join(b, x, x)) {
			m := &model{seq: c.NewSeq()}
			n := m.seq.Adopt(ids)
			for i := range n {
				m.rows = append(m.rows, rowOf(ids[:i+1], 4))
			}
			m.check(t, nil)
			m.seq.Free()
		}
		only := c.NewSeq()
		require.Zero(t, only.Adopt(join(y, x)), "nothing began with it")
		require.Equal(t, 32, only.Adopt(join(b, y)))
		only.Free()
	}
}

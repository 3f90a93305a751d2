package kvcache

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/tensor"
)

// TestContiguousKeepsWhatIsNotOverwritten follows one stream whose requests begin alike and then differ.
func TestContiguousKeepsWhatIsNotOverwritten(t *testing.T) {
	c := small(t, Config{Blocks: 8, Contiguous: true})
	require.True(t, c.Contiguous())
	x := tokens(0, 100)
	y := append(tokens(0, 40), tokens(500, 30)...)
	filled(t, c, x).seq.Release(x)
	require.Equal(t, 7, c.CachedBlocks())
	require.Equal(t, 8, c.FreeBlocks())

	m := &model{seq: c.NewSeq()}
	require.Equal(t, 40, m.seq.Adopt(y))
	require.EqualError(t, c.NewSeq().Reserve(1), "kvcache: reserve of 1 tokens in a contiguous cache, which another sequence of 40 tokens holds")
	require.Zero(t, c.NewSeq().Adopt(x), "nothing is found while a sequence holds the cache")
	for i := range y {
		m.rows = append(m.rows, rowOf(y[:i+1], 4))
	}
	added := m.rows[40:]
	m.rows = m.rows[:40]
	m.check(t, nil)
	require.NoError(t, m.seq.Reserve(len(added)))
	require.Equal(t, 8-5, c.FreeBlocks())
	m.append(added)
	m.seq.Commit(len(added))
	m.rows, m.ids = m.rows[:len(y)], y
	m.check(t, nil)
	require.NoError(t, c.CheckIntegrity())
	m.seq.Release(y)

	for _, k := range []struct {
		ids  []int32
		want int
	}{{x, 40}, {y, 70}, {tokens(9, 20), 0}} {
		s := c.NewSeq()
		require.Equal(t, k.want, s.Adopt(k.ids))
		s.Free()
	}
	require.NoError(t, c.CheckIntegrity())
	s := c.NewSeq()
	require.NoError(t, s.Reserve(128), "cached prefixes give way")
	require.EqualError(t, s.Reserve(129), "kvcache: 129 more tokens after 0 need 1 blocks of 16 tokens, 0 of 8 are free")
	s.Free()
	require.NoError(t, c.CheckIntegrity())
}

// TestSavedByEitherCache restores what a cache of one kind saved in one of the other, with a ring of blocks for the windows
// that is much shorter than the sequence.
func TestSavedByEitherCache(t *testing.T) {
	for _, contiguous := range []bool{false, true} {
		cfg := Config{Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 20, Contiguous: contiguous}
		ids := tokens(0, 555)
		m := &model{seq: small(t, cfg).NewSeq()}
		for at := 0; at < len(ids); at += 15 {
			var rows []row
			for i := at; i < at+15; i++ {
				rows = append(rows, rowOf(ids[:i+1], 4))
			}
			require.NoError(t, m.seq.Reserve(15))
			m.append(rows)
			m.check(t, rows)
			m.seq.Commit(15)
			m.rows = append(m.rows, rows...)
		}
		require.Positive(t, m.seq.tables[1].first)
		path := filepath.Join(t.TempDir(), "seq.kv")
		require.NoError(t, Save(path, Saved{m.seq, testPrint, ids}))

		cfg.Contiguous = !contiguous
		c := small(t, cfg)
		s, got, err := c.Restore(path, testPrint)
		require.NoError(t, err)
		require.Equal(t, ids, got)
		(&model{seq: s, ids: ids, rows: m.rows}).check(t, nil)
		require.NoError(t, c.CheckIntegrity())
		if cfg.Contiguous {
			_, _, err = c.Restore(path, testPrint)
			require.ErrorContains(t, err, "which another sequence of 555 tokens holds")
		}
		s.Release(ids)
		require.Equal(t, 555, c.NewSeq().Adopt(ids))
		require.NoError(t, c.CheckIntegrity())
	}
}

func TestContiguousPassAllocatesNothing(t *testing.T) {
	c := small(t, Config{Blocks: 80, Windows: []int{0, 20}, WindowBlocks: 20, Contiguous: true})
	s, x := c.NewSeq(), tensor.NewF32(16, 2)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if s.Len() > 1200 {
			s.Free()
		}
		require.NoError(t, s.Reserve(16))
		for layer := range 2 {
			s.Append(layer, x, x)
		}
		s.Commit(16)
	}))
}

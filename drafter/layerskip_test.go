package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
)

func TestKeptLayers(t *testing.T) {
	for _, c := range []struct {
		n    int
		skip string
		want string // one letter a layer: x is kept
		err  string
	}{
		{2, "", "x.", ""}, {3, "", "x.x", ""}, {8, "", "xx.x.xxx", ""}, {10, "", "xxx.x.x.xx", ""},
		{6, "3-5", "xxx...", ""}, {6, "0, 2-3", ".x..xx", ""},
		{1, "", "", "1 layer, want 2"}, {4, "0-3", "", "leaves none of 4"}, {4, "4", "", `"4", want`}, {4, "2-1", "", `"2-1", want`},
		{4, "a", "", `"a", want numbers or ranges`}, {4, "1-", "", `"1-", want`}, {4, "-1", "", `"-1", want`},
	} {
		kept, err := keptLayers(c.n, c.skip)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		got := ""
		for _, k := range kept {
			got += map[bool]string{true: "x", false: "."}[k]
		}
		require.Equal(t, c.want, got, "%d %q", c.n, c.skip)
	}
}

// TestLayerSkipNeverWritesTargetState drafts between passes of the target and compares the target's logits with a run
// without drafting; with no layer really skipped, the guesses are the target's own tokens.
func TestLayerSkipNeverWritesTargetState(t *testing.T) {
	m := tiny(t, "gemma3-text", 128)
	for i, n := range []int{1, 3, 16, 17, 31, 40, 1, 3, 16, 17, 31, 40} {
		ids := sequence(n, 2)
		cfg := m.CacheConfig(64)
		cfg.Contiguous = i >= 6
		cache, err := kvcache.New(cfg)
		require.NoError(t, err)
		seq := cache.NewSeq()
		feed := func(tokens []int32) []float32 {
			logits, err := m.Forward(&model.Batch{Tokens: tokens, Spans: []model.Span{{Seq: seq, N: len(tokens)}}, Logits: []int32{int32(len(tokens) - 1)}})
			require.NoError(t, err)
			row := append([]float32(nil), logits.Row(0)...)
			seq.Commit(len(tokens))
			return row
		}
		if n > 1 {
			feed(ids[:n-1])
		}
		d, err := NewLayerSkip(m, "1")
		require.NoError(t, err)
		free := cache.FreeBlocks()
		r := draftRound(t, d, ids, sample.Greedy(), 20)
		r.Seq = seq
		require.NoError(t, d.Propose([]Round{r}))
		require.Equal(t, 20, r.Tree.Len())
		require.Equal(t, free, cache.FreeBlocks())
		require.Equal(t, n-1, seq.Len())
		require.NoError(t, cache.CheckIntegrity())

		d.layers = []bool{true, true, true}
		full := draftRound(t, d, ids, sample.Greedy(), 5)
		full.Seq = seq
		require.NoError(t, d.Propose([]Round{full}))
		require.Equal(t, continuation(t, tiny(t, "gemma3-text", 128), ids, 5), full.Tree.IDs)

		require.Equal(t, lastRow(t, tiny(t, "gemma3-text", 128), ids), feed(ids[n-1:]))
		full.Tree.Reset()
		require.NoError(t, d.Propose([]Round{full}), "a sequence that is not one token behind gets no guess")
		require.Zero(t, full.Tree.Len())
		seq.Free()
		cache.Close()
	}
}

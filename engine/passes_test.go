package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWatchPasses(t *testing.T) {
	e := openTiny(t, Options{})
	want, _ := answer(t, e, request(2, 20, 7))
	var passes []Pass
	require.NoError(t, e.WatchPasses(func(p Pass) { passes = append(passes, p) }))
	got, _ := answer(t, e, request(1, 20, 7))
	require.NotEqual(t, want, got)
	got, _ = answer(t, e, request(2, 20, 7))
	require.Equal(t, want, got)
	require.NoError(t, e.WatchPasses(nil))
	require.Len(t, passes, 14)
	require.Equal(t, 20, passes[0].Tokens)
	for i, p := range passes {
		require.Equal(t, 1, p.Requests)
		if i%7 > 0 {
			require.Equal(t, 1, p.Tokens)
			require.True(t, p.End.After(passes[i-1].End))
		}
		require.Positive(t, p.Schedule)
		require.Positive(t, p.Sample)
		require.Positive(t, p.Products)
		require.Positive(t, p.Attention)
		require.Less(t, p.Products+p.Attention, p.Forward)
	}
	answer(t, e, request(3, 5, 5))
	require.Len(t, passes, 14)
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.WatchPasses(nil), ErrClosed)
}

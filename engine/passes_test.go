package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPassTimes(t *testing.T) {
	e := openTiny(t, Options{})
	answer(t, e, request(1, 9, 5))
	before, err := e.Passes()
	require.NoError(t, err)
	require.Equal(t, 5, before.Passes, "the prompt's gives the first token")
	require.Equal(t, 9+4, before.Tokens)
	require.Positive(t, before.Forward)
	require.Zero(t, before.Products)

	require.NoError(t, e.WatchPasses(true))
	want, _ := answer(t, e, request(2, 20, 7))
	after, err := e.Passes()
	require.NoError(t, err)
	d := after.Sub(before)
	require.Equal(t, 7, d.Passes)
	require.Positive(t, d.Products)
	require.Positive(t, d.Attention)
	require.Less(t, d.Products+d.Attention, d.Forward)
	require.Positive(t, d.Schedule)
	require.Positive(t, d.Sample)

	require.NoError(t, e.WatchPasses(false))
	got, _ := answer(t, e, request(2, 20, 7))
	require.Equal(t, want, got)
	again, err := e.Passes()
	require.NoError(t, err)
	require.Zero(t, again.Products)
	require.NoError(t, e.Close())
	_, err = e.Passes()
	require.ErrorIs(t, err, ErrClosed)
}

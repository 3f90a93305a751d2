package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/kvcache"
)

func TestSavedPrefixContinuesLikeAnUnsavedOne(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "gemma3-text"} {
		path := filepath.Join(golden.Dir(t, "archs"), arch)
		file := filepath.Join(t.TempDir(), "prefix.kv")
		r := lawRequest(7)
		first := open(t, path, Options{Context: 256})
		want := whole(t, submit(t, first, r))
		require.NoError(t, first.SavePrefix(context.Background(), file, r.Prompt))
		require.NoError(t, first.Close())

		second := open(t, path, Options{Context: 256})
		ids, err := second.RestorePrefix(t.Context(), file)
		require.NoError(t, err)
		require.Equal(t, r.Prompt, ids)
		ticket := submit(t, second, r)
		require.Equal(t, want, whole(t, ticket))
		require.Equal(t, len(r.Prompt)-1, ticket.Stats().CachedTokens)

		_, err = open(t, path, Options{Context: 256, F32: true}).RestorePrefix(t.Context(), file)
		require.ErrorIs(t, err, kvcache.ErrForeign)
		_, err = openWritten(t, Options{Context: 256}, nil).RestorePrefix(t.Context(), file)
		require.ErrorIs(t, err, kvcache.ErrForeign)
		_, err = open(t, path, Options{Context: 64}).RestorePrefix(t.Context(), file)
		require.ErrorContains(t, err, "are free")
		require.NoError(t, os.Truncate(file, 1000))
		_, err = second.RestorePrefix(t.Context(), file)
		require.ErrorIs(t, err, kvcache.ErrDamaged)
		require.NoError(t, second.Close())
		_, err = second.RestorePrefix(t.Context(), file)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, second.SavePrefix(context.Background(), file, r.Prompt), ErrClosed)
	}
	off := openWritten(t, Options{Context: 64, NoPrefix: true}, nil)
	_, err := off.RestorePrefix(t.Context(), "x")
	require.ErrorContains(t, err, "the prefix cache is off")
	require.ErrorContains(t, off.SavePrefix(context.Background(), "x", []int32{1}), "the prefix cache is off")
}

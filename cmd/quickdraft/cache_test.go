package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCacheOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"perplexity", "-f", "x", "--cache-type-k", "q4_0"}, `--cache-type-k "q4_0": want f16 or q8_0`},
		{[]string{"perplexity", "-f", "x", "--cache-type-v", ""}, `--cache-type-v "": want f16 or q8_0`},
	} {
		cmd := root()
		cmd.SetArgs(c.args)
		err := cmd.Execute()
		require.ErrorContains(t, err, c.want)
		var usage *usageError
		require.True(t, errors.As(err, &usage), "%v", c.args)
	}
	for layout, want := range map[string]bool{"contiguous": true, "paged": false, "": false} {
		f := modelFlags{weights: "native", layout: layout, noTiles: true}
		require.Equal(t, want, f.engineOptions().Contiguous)
	}
	require.EqualError(t, execute("run", "--kv-layout", "ring"), `--kv-layout "ring": want contiguous or paged`)
	layout, err := runCommand().Flags().GetString("kv-layout")
	require.NoError(t, err)
	require.Equal(t, "contiguous", layout)
}

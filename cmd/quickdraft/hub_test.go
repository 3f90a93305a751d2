package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemoveRepacked(t *testing.T) {
	home := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", home)
	tiles := filepath.Join(home, "repacked", "m.gguf-0123456789ab.tiles")
	require.NoError(t, os.MkdirAll(filepath.Dir(tiles), 0o755))
	require.NoError(t, os.WriteFile(tiles, make([]byte, 300_000), 0o600))
	for _, args := range [][]string{{"rm"}, {"rm", "a", "b"}, {"rm", "a", "--repacked"}} {
		cmd := root()
		cmd.SetArgs(args)
		var usage *usageError
		require.True(t, errors.As(cmd.Execute(), &usage), "%v", args)
	}
	require.FileExists(t, tiles)
	require.Equal(t, "0.3 MB freed\n", string(output(t, "rm", "--repacked")))
	require.NoFileExists(t, tiles)
}

func TestListNamesAFolderThatCannotBeMade(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	t.Setenv("QUICKDRAFT_HOME", filepath.Join(blocked, "home"))
	cmd := root()
	cmd.SetArgs([]string{"list"})
	require.ErrorContains(t, cmd.Execute(), blocked)
}

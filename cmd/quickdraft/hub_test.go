package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

func TestNamesThatStandForNothing(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	path := small(t)
	for _, name := range []string{"nosuchmodel", "smollm2:9000b", "./missing.gguf", "/nowhere/missing.gguf", "hf:only-one-part", "pypi:", "http://", "ftp://x/y"} {
		for _, args := range [][]string{
			{"run", "-m", name, "-p", "a"}, {"run", name, "a"}, {"run", "-m", path, "-md", name, "-p", "a"}, {"pull", name}, {"show", name}, {"bench", "-m", name}, {"bench", "decode", "-m", name},
			{"perplexity", "-m", name, "-f", path}, {"imatrix", "-m", name, "-f", path, "-o", "x"}, {"quantize", name, "x", "q8_0"},
			{"debug", "logits", "-m", name, "--ids", "1"}, {"debug", "generate", "-m", name, "--ids", "1"}, {"debug", "tokenize", "-m", name},
			{"debug", "template", "-m", name, "--messages", messages(t)},
		} {
			cmd := root()
			cmd.SetArgs(longShorthand(args))
			err := cmd.Execute()
			require.ErrorContains(t, err, name, "%v", args)
			require.Equal(t, 2, exitCode(err), "%v: %v", args, err)
			require.NotContains(t, err.Error(), "\n", "%v", args)
		}
	}
	cmd := root()
	cmd.SetArgs([]string{"rm", "smollm2:135m"})
	err := cmd.Execute()
	require.ErrorContains(t, err, "model smollm2:135m is not in the cache")
	require.Equal(t, 1, exitCode(err))
}

// messages writes a conversation for debug template.
func messages(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "messages.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"messages":[{"role":"user","content":"hi"}]}`), 0o600))
	return path
}

// TestListOfOddNames shows file names that nobody but a stranger's program makes.
func TestListOfOddNames(t *testing.T) {
	home := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", home)
	dir := filepath.Join(home, "models")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder.gguf"), 0o755))
	for _, name := range []string{"a\nb.gguf", "\x1b[2J.gguf", "\xff.gguf", "plain.gguf", "damaged.gguf"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "damaged.gguf.json"), []byte(`{"name": 5`), 0o600))
	text := string(output(t, "list"))
	require.Equal(t, 6, strings.Count(text, "\n"), text)
	require.NotContains(t, text, "\x1b")
	for _, name := range []string{`"a\nb.gguf"`, `"\x1b[2J.gguf"`, `"\xff.gguf"`, "\nplain.gguf ", "\ndamaged.gguf "} {
		require.Contains(t, text, name)
	}
}

//go:build unix

package model

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	tilesModelVariable = "MODEL_TEST_TILES_OF"
	tilesDirVariable   = "MODEL_TEST_TILES_IN"
	tilesLimitVariable = "MODEL_TEST_TILES_LIMIT" // bytes that a file may have
)

// TestTilesInProcess is what the tests below run in other processes: it loads a model, beginning when its input ends.
func TestTilesInProcess(t *testing.T) {
	path, dir := os.Getenv(tilesModelVariable), os.Getenv(tilesDirVariable)
	if path == "" {
		path, dir = tinyGGUF("llama").write(t), t.TempDir()
	} else if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		t.Fatal("input without an end")
	}
	var limit uint64
	if _, err := fmt.Sscan(os.Getenv(tilesLimitVariable), &limit); err == nil {
		signal.Ignore(unix.SIGXFSZ) // writes then fail with EFBIG
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}))
	}
	m, err := Load(path, Options{TilesDir: dir, Note: func(line string) { fmt.Println("note:", line) }})
	require.NoError(t, err)
	defer m.Close()
	fmt.Println("logits:", logitsOf(t, m)[:8])
}

func tilesProcess(c *tilesCase, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestTilesInProcess$")
	cmd.Env = append(append(os.Environ(), tilesModelVariable+"="+c.model, tilesDirVariable+"="+c.dir), env...)
	return cmd
}

// TestTilesOfManyProcesses starts processes that all find no tiles: each answers, and one complete file stays.
func TestTilesOfManyProcesses(t *testing.T) {
	c := newTilesCase(t)
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	start, hold, err := os.Pipe()
	require.NoError(t, err)
	for range 4 {
		cmd, out := tilesProcess(c), new(strings.Builder)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = start, out, out
		require.NoError(t, cmd.Start())
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	require.NoError(t, hold.Close()) // all begin now
	for i, cmd := range cmds {
		require.NoError(t, cmd.Wait(), outs[i])
	}
	require.NoError(t, start.Close())
	logits, mapped := c.load()
	require.True(t, mapped, "the file is complete")
	require.Empty(t, c.notes)
	c.file()
	for _, out := range outs {
		require.Contains(t, out.String(), fmt.Sprintln("logits:", logits[:8]))
		require.NotContains(t, out.String(), "note:")
	}
}

// TestTilesThatTheSystemRefuses runs out of room for the file at different places: the model works from memory, with one
// line that says so, and nothing stays behind.
func TestTilesThatTheSystemRefuses(t *testing.T) {
	c := newTilesCase(t)
	want, _ := c.load()
	path := c.file()
	size, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	for _, limit := range []int64{0, 100, 4096, size.Size() / 2, size.Size() - 1} {
		out, err := tilesProcess(c, fmt.Sprint(tilesLimitVariable, "=", limit)).CombinedOutput()
		require.NoError(t, err, "%d bytes: %s", limit, out)
		require.Contains(t, string(out), fmt.Sprintln("logits:", want[:8]))
		require.Equal(t, 1, strings.Count(string(out), "note:"), "%d bytes: %s", limit, out)
		require.Contains(t, string(out), "repacked weights are not kept for the next start: ")
		require.Contains(t, string(out), unix.EFBIG.Error())
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Empty(t, entries, "%d bytes", limit)
	}
	_, err = tilesProcess(c, fmt.Sprint(tilesLimitVariable, "=", size.Size())).CombinedOutput()
	require.NoError(t, err)
	_, mapped := c.load()
	require.True(t, mapped, "there is room for all of it")
}

// TestTilesInAFolderThatIsReadOnly has no right to make the file. The superuser has, and leaves it out.
func TestTilesInAFolderThatIsReadOnly(t *testing.T) {
	c := newTilesCase(t)
	want, _ := c.load()
	path := c.file()
	require.NoError(t, os.Chmod(c.dir, 0o555))
	t.Cleanup(func() { _ = os.Chmod(c.dir, 0o755) })
	got, mapped := c.load()
	require.True(t, mapped, "reading needs no right to write")
	require.Equal(t, want, got)
	if unix.Access(c.dir, unix.W_OK) == nil {
		return
	}
	require.NoError(t, os.Truncate(path, 100))
	got, mapped = c.load()
	require.False(t, mapped)
	require.Equal(t, want, got)
	require.Len(t, c.notes, 1)
}

//go:build unix

package model

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
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

// TestTilesInAFolderThatIsReadOnly has no right to make the file, as another user where this one has all rights.
func TestTilesInAFolderThatIsReadOnly(t *testing.T) {
	c := newTilesCase(t)
	want, _ := c.load()
	path := c.file()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Chmod(c.dir, 0o755) })
	for what, prepare := range map[string]func() error{
		"":                   func() error { return os.WriteFile(path, before, 0o644) },
		"damaged":            func() error { return os.Truncate(path, 100) },
		"no such file":       func() error { return os.Remove(path) },
		"a folder of others": func() error { return os.Remove(path) },
	} {
		require.NoError(t, os.Chmod(c.dir, 0o755))
		require.NoError(t, os.WriteFile(path, before, 0o644))
		require.NoError(t, prepare(), what)
		mode := os.FileMode(0o555)
		if what == "a folder of others" {
			mode = 0o700
		}
		require.NoError(t, os.Chmod(c.dir, mode))
		left, err := os.ReadDir(c.dir)
		require.NoError(t, err)
		cmd := tilesProcess(c)
		withoutRights(t, cmd, c.model, c.dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", what, out)
		require.Contains(t, string(out), fmt.Sprintln("logits:", want[:8]), what)
		if what == "" {
			require.NotContains(t, string(out), "note:", "reading needs no right to write")
		} else if mode != 0o700 || os.Getuid() == 0 { // the owner of a folder may write to it
			require.Equal(t, 1, strings.Count(string(out), "note:"), "%s: %s", what, out)
			require.Contains(t, string(out), "note: repacked weights are not kept for the next start: ", what)
			require.Contains(t, string(out), "permission denied", what)
			after, err := os.ReadDir(c.dir)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(left), fmt.Sprint(after), what)
		}
	}
}

// withoutRights makes the process one of a user to whom no file belongs where this user is the superuser, who may write
// everywhere. The user may reach and read what is named.
func withoutRights(t *testing.T, cmd *exec.Cmd, readable ...string) {
	if os.Getuid() != 0 {
		return
	}
	program, err := os.ReadFile(cmd.Path)
	require.NoError(t, err)
	cmd.Path = filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(cmd.Path, program, 0o755))
	for _, path := range append(readable, cmd.Path) {
		for dir := filepath.Dir(path); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
	const nobody = 65534
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = filepath.Dir(cmd.Path)
}

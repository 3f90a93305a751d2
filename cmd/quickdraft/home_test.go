//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHomesThatCannotBe runs without a usable cache folder: models from files work, with one line that says what is not kept, and
// what needs the folder names it.
func TestHomesThatCannotBe(t *testing.T) {
	model, dir := small(t), t.TempDir()
	file, home := filepath.Join(dir, "file"), filepath.Join(dir, "home")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Mkdir(home, 0o755))
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, "no cache folder: "},
		{[]string{"HOME="}, "no cache folder: "},
		{[]string{"XDG_CACHE_HOME=relative"}, "relative"},
		{[]string{"HOME=" + file}, file},
		{[]string{"QUICKDRAFT_HOME=" + file}, file},
		{[]string{"QUICKDRAFT_HOME=/dev/null"}, "/dev/null"},
		{[]string{"HOME=" + home}, ""},
	} {
		env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
		for _, args := range [][]string{
			{"run", "-m", model, "-p", "a", "-n", "2"}, {"debug", "logits", "-m", model, "--ids", "1", "--top", "1"},
		} {
			cmd := program(t, args...)
			cmd.Env = append(append(env, asProgram+"=main"), c.env...)
			code, stderr := ran(t, cmd)
			require.Equal(t, 0, code, "%v %v: %s", c.env, args, stderr)
			line := "repacked weights are not kept for the next start: "
			if c.want == "" {
				require.NotContains(t, stderr, line, "%v %v", c.env, args)
				continue
			}
			require.Equal(t, 1, strings.Count(stderr, line), "%v %v: %s", c.env, args, stderr)
			require.Contains(t, stderr, c.want, "%v %v", c.env, args)
		}
		if c.want == "" {
			continue
		}
		for _, args := range [][]string{{"list"}, {"pull", "smollm2:135m"}, {"rm", "smollm2:135m"}, {"rm", "--repacked"}, {"list", "--json"}} {
			cmd := program(t, args...)
			cmd.Env = append(append(env, asProgram+"=main"), c.env...)
			var out bytes.Buffer
			cmd.Stdout = &out
			code, stderr := ran(t, cmd)
			require.Contains(t, []int{1, 2}, code, "%v %v: %s", c.env, args, stderr)
			require.Contains(t, stderr, c.want, "%v %v", c.env, args)
			require.Contains(t, stderr, "QUICKDRAFT_HOME", "%v %v", c.env, args)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "%v %v: %s", c.env, args, stderr)
			require.Empty(t, out.String())
		}
	}
}

// TestPullsOfManyProcesses pulls one file four times at once and kills the process that fetches it in the middle.
func TestPullsOfManyProcesses(t *testing.T) {
	data := append([]byte("GGUF"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)...)
	var requests, bodies atomic.Int64
	started := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("ETag", `"one"`)
		rest, first := data, 0
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &first); n == 1 && first < len(data) {
			rest = data[first:]
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		}
		if requests.Load() == 1 { // the first process gets half of it
			n, _ := w.Write(rest[:len(data)/2])
			bodies.Add(int64(n))
			w.(http.Flusher).Flush()
			close(started)
			<-r.Context().Done()
			return
		}
		n, _ := w.Write(rest)
		bodies.Add(int64(n))
	}))
	defer server.Close()
	home := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", home)
	name := fmt.Sprintf("%s/m.gguf#sha256=%x", server.URL, sha256.Sum256(data))
	pull := func() (*exec.Cmd, *transcript) {
		cmd, out := program(t, "pull", name), new(transcript)
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		return cmd, out
	}
	first, _ := pull()
	<-started
	var others []*exec.Cmd
	var outs []*transcript
	for range 3 {
		cmd, out := pull()
		others, outs = append(others, cmd), append(outs, out)
	}
	for _, out := range outs {
		out.waitFor(t, "another process pulls it; waiting")
	}
	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())
	for i, cmd := range others {
		require.Equal(t, 0, exited(t, cmd), outs[i].String())
		lines := strings.Fields(outs[i].String())
		got, err := os.ReadFile(lines[len(lines)-1])
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
	}
	require.Less(t, bodies.Load(), int64(2*len(data)), "one fetched it, and went on where the killed one was")
	require.LessOrEqual(t, requests.Load(), int64(3))
	require.NoError(t, filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			require.Regexp(t, `\.gguf(\.json)?$`, path)
		}
		return err
	}))
}

// TestRepackingOfManyProcesses starts four with no tiles in the cache and kills one in the middle.
func TestRepackingOfManyProcesses(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	tiles := filepath.Join(os.Getenv("QUICKDRAFT_HOME"), "repacked")
	model := large(t)
	var cmds []*exec.Cmd
	var outs []*bytes.Buffer
	for range 4 {
		cmd, out := program(t, "debug", "generate", "-m", model, "--ids", "1,2,3", "-n", "4", "-t", "1"), new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		require.NoError(t, cmd.Start())
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	require.Eventually(t, func() bool {
		entries, _ := os.ReadDir(tiles)
		return len(entries) > 0
	}, patience, time.Millisecond)
	require.NoError(t, cmds[0].Process.Signal(syscall.SIGKILL))
	_ = cmds[0].Wait()
	for i := 1; i < len(cmds); i++ {
		require.Equal(t, 0, exited(t, cmds[i]), outs[i])
		require.Equal(t, outs[1].String(), outs[i].String())
		require.NotContains(t, outs[i].String(), "repacked")
	}
	entries, err := os.ReadDir(tiles)
	require.NoError(t, err)
	left := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			left++
		}
	}
	require.LessOrEqual(t, left, 1)
	require.Contains(t, string(output(t, "debug", "generate", "-m", model, "--ids", "1,2,3", "-n", "4")), strings.TrimSpace(outs[1].String()))
}

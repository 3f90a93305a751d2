//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/bench"
	"quickdraft/modelfile/gguf"
)

// large is a model whose conversion takes a while.
func large(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "large.gguf")
	s := bench.Shape{
		Name: "large", Arch: "llama", Layers: 4, Dim: 1024, Heads: 16, KVHeads: 16, HeadDim: 64, FF: 4096, Vocab: 4000, Context: 2048,
		RopeBase: 10000, Eps: 1e-5, Tied: true,
	}
	require.NoError(t, s.Write(t.Context(), path, gguf.TypeQ4_0))
	return path
}

// started starts a patient program and waits until it watches signals.
func started(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(cmd.Env, asProgram+"=patient", readyFile+"=3")
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	_, err = r.Read(make([]byte, 1))
	require.NoError(t, err, "it ended at once")
}

func manyWords(n int) string { return strings.Repeat("some words of a text ", n) }

// TestSignals stops every command that may run for long in the middle.
func TestSignals(t *testing.T) {
	home := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", home)
	model, out := large(t), t.TempDir()
	long := filepath.Join(t.TempDir(), "long.txt")
	require.NoError(t, os.WriteFile(long, []byte(manyWords(20000)), 0o600))
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write([]byte("GGUF and more"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer slow.Close()
	parts := func(t *testing.T) []string {
		names, err := filepath.Glob(filepath.Join(home, "models", "url", "*.part"))
		require.NoError(t, err)
		return names
	}
	ids := "1" + strings.Repeat(",2", 1500)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	for i, c := range []struct {
		args  []string
		after time.Duration // the time to get into the middle; 0: until a part of the file is there
	}{
		{[]string{"run", "-m", model}, 300 * time.Millisecond}, // waits for standard input
		{[]string{"debug", "tokenize", "-m", model}, 300 * time.Millisecond},
		{[]string{"debug", "template", "-m", model}, 300 * time.Millisecond},
		{[]string{"run", "-m", model, "-p", "a", "--ignore-eos", "-c", "2048"}, time.Second},
		{[]string{"quantize", model, filepath.Join(out, "q.gguf"), "q3_k", "-t", "1"}, 500 * time.Millisecond},
		{[]string{"bench", "decode", "--shape", "qwen2.5-coder-7b", "--write", filepath.Join(out, "shape.gguf")}, 300 * time.Millisecond},
		{[]string{"imatrix", "-m", model, "-f", long, "-o", filepath.Join(out, "imatrix")}, time.Second},
		{[]string{"perplexity", "-m", model, "-f", long}, time.Second},
		{[]string{"bench", "-m", model, "-r", "1000"}, time.Second},
		{[]string{"bench", "decode", "-m", model, "-r", "1000"}, time.Second},
		{[]string{"bench", "verify", "-m", model, "-r", "1000"}, time.Second},
		{[]string{"bench", "prefill", "-m", model, "-r", "1000"}, time.Second},
		{[]string{"bench", "batch", "-m", model, "-r", "1000"}, time.Second},
		{[]string{"bench", "spec", "-m", model, "--kinds", "chat"}, time.Second},
		{[]string{"bench", "roofline", "-r", "1000"}, time.Second},
		{[]string{"debug", "logits", "-m", model, "--ids", ids, "--chunk", "1"}, time.Second},
		{[]string{"debug", "generate", "-m", model, "--ids", "1,2", "-n", "2000", "-c", "2048"}, time.Second},
		{[]string{"pull", slow.URL + "/m.gguf"}, 0},
	} {
		signal := signals[i%len(signals)]
		what := fmt.Sprintf("%.80v, %v", c.args, signal)
		cmd := program(t, c.args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		in, err := cmd.StdinPipe() // stays open
		require.NoError(t, err)
		started(t, cmd)
		if time.Sleep(c.after); c.after == 0 {
			require.Eventually(t, func() bool { return len(parts(t)) > 0 }, patience, time.Millisecond)
		}
		start := time.Now()
		require.NoError(t, cmd.Process.Signal(signal))
		code := exited(t, cmd)
		require.Equal(t, 128+int(signal), code, "%s: %s", what, stderr.String())
		require.Less(t, time.Since(start), patience/2, "%s: it did not stop by itself", what)
		require.NotContains(t, stderr.String(), "context canceled", what)
		require.NotContains(t, stderr.String(), "goroutine", what)
		_ = in.Close()
		for _, dir := range []string{out, filepath.Join(home, "repacked")} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				require.True(t, strings.HasSuffix(e.Name(), ".tiles"), "%s left %s", what, e.Name())
			}
		}
	}
	require.NotEmpty(t, parts(t), "the next pull goes on from there")
	names, err := filepath.Glob(filepath.Join(home, "models", "url", "*"))
	require.NoError(t, err)
	for _, name := range names {
		require.Contains(t, name, ".part")
	}
}

// stuck starts a command that does not stop, as one of the programs of TestMain, and returns what it says next.
func stuck(t *testing.T, as string) (signal func(syscall.Signal), says func() string, wait func() int, dir string) {
	dir = t.TempDir()
	cmd := program(t, filepath.Join(dir, "out"))
	cmd.Env = append(cmd.Env, asProgram+"="+as)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	says = func() string {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		return line
	}
	require.Equal(t, "ready\n", says())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	return func(s syscall.Signal) { require.NoError(t, cmd.Process.Signal(s)) }, says, func() int { return exited(t, cmd) }, dir
}

func TestSecondSignal(t *testing.T) {
	signal, says, wait, dir := stuck(t, "stuck and patient")
	signal(syscall.SIGINT)
	require.Equal(t, "asked\n", says())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the first one asks")
	start := time.Now()
	signal(syscall.SIGINT)
	require.Equal(t, 130, wait())
	require.Less(t, time.Since(start), patience/2, "the second one waits for nothing")
	entries, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestACommandThatDoesNotStop(t *testing.T) {
	signal, _, wait, dir := stuck(t, "stuck")
	start := time.Now()
	signal(syscall.SIGTERM)
	require.Equal(t, 143, wait())
	require.Greater(t, time.Since(start), grace/2)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestNohup keeps signals ignored that were ignored at the start.
func TestNohup(t *testing.T) {
	model := small(t)
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	cmd := program(t)
	cmd.Args = append([]string{"sh", "-c", `trap "" HUP INT; exec "$0" "$@"`, cmd.Path}, "run", "-m", model, "-n", "2")
	cmd.Path = "/bin/sh"
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	started(t, cmd)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		require.NoError(t, cmd.Process.Signal(s))
	}
	time.Sleep(300 * time.Millisecond)
	_, err = in.Write([]byte("a prompt"))
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.Equal(t, 0, exited(t, cmd))
}

// TestClosedPipe gives commands a standard output that nobody reads.
func TestClosedPipe(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	for _, args := range [][]string{
		{"list", "--catalog"}, {"list"}, {"--help"}, {"bench", "theory"}, {"run", "-m", model, "-p", "a", "--ignore-eos"},
		{"run", "-m", model, "-p", "a", "--json", "-n", "1"}, {"debug", "logits", "-m", model, "--ids", "1,2,3"}, {"pull", model}, {"show", "smollm2:135m"},
	} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		cmd := program(t, args...)
		cmd.Stdout = w
		code, stderr := ran(t, cmd)
		require.NoError(t, w.Close())
		require.Equal(t, pipeCode, code, "%v: %s", args, stderr)
		require.NotContains(t, stderr, "error", "%v", args)
	}
	out := filepath.Join(t.TempDir(), "out.gguf") // an unread standard error is no reason to stop
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	cmd := program(t, "quantize", model, out, "q4_k")
	cmd.Stderr = w
	code, _ := ran(t, cmd)
	require.NoError(t, w.Close())
	require.Equal(t, 0, code)
	require.FileExists(t, out)
}

// TestFullOutput gives commands a standard output that has no room.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no full device here: %v", err)
	}
	defer full.Close()
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte(manyWords(100)), 0o600))
	for _, args := range [][]string{
		{"--help"}, {"--version"}, {"list"}, {"list", "--dir"}, {"list", "--catalog"}, {"list", "--json"}, {"pull", model}, {"show", "smollm2:135m"}, {"rm", "--repacked"},
		{"run", "-m", model, "-p", "a", "-n", "3"}, {"run", "-m", model, "-p", "a", "-n", "3", "--json"}, {"bench", "theory"}, {"bench", "theory", "--json"},
		{"debug", "levels"}, {"debug", "logits", "-m", model, "--ids", "1,2"}, {"debug", "generate", "-m", model, "--ids", "1", "-n", "2"},
		{"perplexity", "-m", model, "-f", text, "-c", "64"}, {"quantize", model, filepath.Join(t.TempDir(), "out"), "q8_0"}, {"bench", "decode", "-m", model, "-r", "1", "-n", "8"},
		{"debug", "template", "--template", text, "--messages", messages(t)},
	} {
		cmd := program(t, args...)
		cmd.Stdout = full
		code, stderr := ran(t, cmd)
		require.Equal(t, 1, code, "%v: %s", args, stderr)
		require.Contains(t, stderr, "error: standard output: no space left on device\n", "%v", args)
	}
}

// TestClosedDescriptors runs commands without standard input, output or error.
func TestClosedDescriptors(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	for redirect, want := range map[string]int{"<&-": 2, ">&-": 0, "2>&-": 0, ">&- 2>&-": 0} {
		cmd := program(t)
		args := "-p a"
		if redirect == "<&-" {
			args = "" // the prompt would come from there
		}
		cmd.Args = []string{"sh", "-c", fmt.Sprintf(`"$0" run -m "$1" -n 2 %s %s`, args, redirect), cmd.Path, model}
		cmd.Path = "/bin/sh"
		code, stderr := ran(t, cmd)
		require.Equal(t, want, code, "%s: %s", redirect, stderr)
	}
}

// TestFileLimit writes more than the process may: it is noticed before the work, and where it is not, writing fails and the
// program is not ended.
func TestFileLimit(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	dir := t.TempDir()
	for _, c := range []struct {
		args string
		want string
	}{
		{`quantize "$1" "$2/out.gguf" f32`, "out.gguf: takes "},
		{`bench decode --shape llama-3.2-1b --write "$2/out.gguf"`, "out.gguf: takes "},
		{`imatrix -m "$1" -f "$1" -c 64 --windows 1 -o "$2/out.gguf"`, "out.gguf: "},
	} {
		cmd := program(t)
		cmd.Args = []string{"sh", "-c", `ulimit -f 1; "$0" ` + c.args, cmd.Path, model, dir}
		cmd.Path = "/bin/sh"
		code, stderr := ran(t, cmd)
		require.Equal(t, 1, code, "%s: %s", c.args, stderr)
		require.Contains(t, stderr, c.want, c.args)
		require.NotContains(t, stderr, ".tmp", c.args)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, c.args)
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readmeBlock returns the only block of README.md that begins with a line.
func readmeBlock(t *testing.T, readme, first string) string {
	t.Helper()
	blocks := regexp.MustCompile("(?ms)^```(?:go)?\n("+regexp.QuoteMeta(first)+"\n.*?)^```$").FindAllStringSubmatch(readme, -1)
	require.Len(t, blocks, 1, "blocks that begin with %q", first)
	return blocks[0][1]
}

// TestReadmesProgram builds the program of README.md as a module of its own, with no network, and asks a tiny model with it.
func TestReadmesProgram(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	module := readmeBlock(t, string(readme), "module hello")
	require.Contains(t, module, regexp.MustCompile(`(?m)^go \S+$`).FindString(string(own)), "the version of Go is that of go.mod")
	require.Contains(t, module, "=> ../quickdraft\n")
	module = strings.Replace(module, "../quickdraft", root, 1)

	dir := t.TempDir()
	for name, data := range map[string]string{"go.mod": module, "go.sum": string(sums), "main.go": readmeBlock(t, string(readme), "package main")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	program := filepath.Join(dir, "hello.exe")
	for _, args := range [][]string{{"build", "-o", program, "."}, {"vet", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "PWD="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, out)
	}
	t.Run("answers", func(t *testing.T) {
		out, err := exec.Command(program, shards(t), "hello").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Greater(t, len(out), 10, "an answer")
	})
	out, err := exec.Command(program, filepath.Join(dir, "missing.gguf"), "hello").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "missing.gguf")
}

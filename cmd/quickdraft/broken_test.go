package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// shards copies the model of the golden set that lies in shards, and puts a tokenizer of bytes beside it.
func shards(t *testing.T) string {
	t.Helper()
	from, dir := filepath.Join(golden.Dir(t, "archs"), "llama-untied"), t.TempDir()
	files, err := filepath.Glob(filepath.Join(from, "model*"))
	require.NoError(t, err)
	require.Greater(t, len(files), 2, "an index and shards")
	for _, path := range append(files, filepath.Join(from, "config.json")) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600))
	}
	write := func(name string, v any) {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	vocab := map[string]int{}
	shifted := rune(256)
	for b := range rune(256) {
		piece := string(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			piece = string(shifted)
			shifted++
		}
		vocab[piece] = int(b)
	}
	write("tokenizer.json", map[string]any{
		"added_tokens": []any{}, "pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false}, "decoder": map[string]any{"type": "ByteLevel"},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	write("tokenizer_config.json", map[string]any{"chat_template": "{{ messages[0].content }}"})
	write("generation_config.json", map[string]any{"eos_token_id": 2})
	return dir
}

// withoutOutput runs a command line with standard output and error thrown away, and returns the bytes it allocated.
func withoutOutput(t *testing.T, args ...string) (err error, allocated uint64) {
	t.Helper()
	out, stderr := os.Stdout, os.Stderr
	null, openErr := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, openErr)
	os.Stdout, os.Stderr = null, null
	defer func() {
		os.Stdout, os.Stderr = out, stderr
		null.Close()
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = execute(args...)
	runtime.ReadMemStats(&after)
	return err, after.TotalAlloc - before.TotalAlloc
}

// mostAllocated bounds what reading a broken model of some hundred kilobytes may allocate.
const mostAllocated = 256 << 20

// uses are the ways to read a model.
func uses(model, out string) [][]string {
	return [][]string{
		{"run", "-m", model, "-p", "a", "-n", "1", "--no-repack-cache", "--spec-type", "none"}, {"quantize", model, out, "q8_0"},
		{"debug", "logits", "-m", model, "--ids", "1", "--top", "1", "--no-repack-cache"},
	}
}

// TestTruncatedModels cuts files off at many places: the error is one line that names the file.
func TestTruncatedModels(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	out := filepath.Join(t.TempDir(), "out.gguf")
	folder := shards(t)
	single := small(t)
	models := map[string]string{single: single}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		models[filepath.Join(folder, e.Name())] = folder
	}
	for file, model := range models {
		for _, args := range uses(model, out) {
			err, _ := withoutOutput(t, args...)
			require.NoError(t, err, "%v", args)
		}
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		for i := range 24 {
			cut := i * len(whole) / 24
			if i >= 12 { // where things begin
				cut = 1 << (i - 12)
			}
			if cut >= len(whole) {
				continue
			}
			require.NoError(t, os.WriteFile(file, whole[:cut], 0o600))
			for _, args := range uses(model, out) {
				err, allocated := withoutOutput(t, args...)
				if optional := filepath.Base(file); err == nil && args[0] == "debug" && strings.HasPrefix(optional, "tokenizer") {
					continue // it reads no text
				}
				require.Error(t, err, "%s of %d bytes: %v", file, cut, args)
				require.Equal(t, 1, exitCode(err), "%v", err)
				require.NotContains(t, err.Error(), "\n")
				require.Contains(t, err.Error(), filepath.Base(file), "%d bytes: %v", cut, args)
				require.Less(t, allocated, uint64(mostAllocated), "%s of %d bytes: %v", file, cut, args)
			}
		}
		require.NoError(t, os.WriteFile(file, whole, 0o600))
		require.NoError(t, os.RemoveAll(out))
	}
}

// TestDamagedModels changes bytes in the parts of files that say what the rest is: whatever comes of it, it is an answer or one line.
func TestDamagedModels(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	out := filepath.Join(t.TempDir(), "out.gguf")
	folder, single := shards(t), small(t)
	rng := rand.New(rand.NewPCG(1, 2))
	models := map[string]string{single: single}
	for _, name := range []string{"config.json", "model*", "tokenizer.json"} {
		files, err := filepath.Glob(filepath.Join(folder, name))
		require.NoError(t, err)
		for _, file := range files {
			models[file] = folder
		}
	}
	for file, model := range models {
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		rounds := 120
		if testing.Short() {
			rounds = 20
		}
		for range rounds {
			data := bytes.Clone(whole)
			for range 1 + rng.IntN(2) {
				at := rng.IntN(min(len(data), 1500))
				data[at] = byte(rng.Uint32())
				if rng.IntN(3) == 0 && at+8 <= len(data) { // numbers of all sizes
					binary.LittleEndian.PutUint64(data[at:], rng.Uint64()>>rng.IntN(64))
				}
			}
			require.NoError(t, os.WriteFile(file, data, 0o600))
			args := uses(model, out)[rng.IntN(3)]
			err, allocated := withoutOutput(t, args...)
			if err != nil {
				require.NotContains(t, err.Error(), "\n", "%v", args)
				require.Equal(t, 1, exitCode(err), "%v", err)
			}
			require.Less(t, allocated, uint64(mostAllocated), "%v: %v", args, err)
		}
		require.NoError(t, os.WriteFile(file, whole, 0o600))
	}
}

// TestEndlessInput feeds what has no end to readers of small files.
func TestEndlessInput(t *testing.T) {
	data, err := readBounded(io.MultiReader(strings.NewReader("a"), io.LimitReader(zeros{}, 9)), 10)
	require.NoError(t, err)
	require.Len(t, data, 10)
	_, err = readBounded(zeros{}, 10)
	require.EqualError(t, err, "has more than 10 bytes, want at most that")
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	for _, path := range []string{"/dev/zero", "/dev/urandom"} {
		if _, err := os.Stat(path); err != nil {
			t.Skip("no such devices here")
		}
		for _, args := range [][]string{{"run", "-m", path, "-p", "a"}, {"quantize", path, filepath.Join(t.TempDir(), "out"), "q8_0"}, {"debug", "logits", "-m", path, "--ids", "1"}} {
			err := execute(args...)
			require.Error(t, err, "%v", args)
			require.Contains(t, err.Error(), path)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

package gguf

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFingerprint changes one thing at a time: name, size, time, header and weights all count.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	when := time.Unix(1_700_000_000, 5)
	write := func(name, title string, weight byte, more int) string {
		w := NewWriter()
		w.Set("general.name", title)
		data := make([]byte, 32+more)
		data[3] = weight
		w.AddTensor("a", TypeF32, []int{len(data) / 4}, data)
		path := filepath.Join(dir, name)
		require.NoError(t, w.WriteFile(path))
		require.NoError(t, os.Chtimes(path, when, when))
		return path
	}
	sum := func(path string) [32]byte {
		f, err := Open(path)
		require.NoError(t, err)
		s, ok := f.Fingerprint()
		require.True(t, ok)
		require.NoError(t, f.Close())
		_, ok = f.Fingerprint()
		require.False(t, ok, "closed")
		return s
	}
	base := sum(write("m.gguf", "one", 0, 0))
	require.Equal(t, base, sum(write("m.gguf", "one", 0, 0)))
	require.NotEqual(t, base, sum(write("m.gguf", "one", 1, 0)), "weights")
	require.NotEqual(t, base, sum(write("m.gguf", "two", 0, 0)), "header")
	require.NotEqual(t, base, sum(write("m.gguf", "one", 0, 32)), "size")
	require.NotEqual(t, base, sum(write("n.gguf", "one", 0, 0)), "name")
	path := write("m.gguf", "one", 0, 0)
	require.NoError(t, os.Chtimes(path, when, when.Add(time.Nanosecond)))
	require.NotEqual(t, base, sum(path), "time")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := Parse("memory", data)
	require.NoError(t, err)
	_, ok := f.Fingerprint()
	require.False(t, ok)
}

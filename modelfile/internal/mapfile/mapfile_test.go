package mapfile

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenReleaseClose(t *testing.T) {
	page := os.Getpagesize()
	for _, size := range []int{0, 1, page - 1, page, 3*page + 17} {
		path := filepath.Join(t.TempDir(), "f")
		want := bytes.Repeat([]byte("0123456789a"), size/11+1)[:size]
		require.NoError(t, os.WriteFile(path, want, 0o600))
		f, err := Open(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(f.Data))
		for from := range min(size, 3) {
			f.Release(f.Data[from:])
			f.Release(f.Data[from:from])
			require.Equal(t, string(want), string(f.Data), "released pages are read again")
		}
		require.NoError(t, f.Close())
		require.Empty(t, f.Data)
		require.NoError(t, f.Close(), "a second time")
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(dir)
	require.EqualError(t, err, dir+": is a folder, want a regular file")
}

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

// TestFingerprintSamples flips bytes of a file whose size, time and header stay. Of a small file all count; of a large one the
// samples, which reach from the first byte behind the header to the last one and leave no gap of more than a 63rd.
func TestFingerprintSamples(t *testing.T) {
	const head = 100
	sum := func(data []byte) [32]byte { return Fingerprint([]*File{{Name: "a", Data: data}}, []int{head}) }
	for _, size := range []int{head + 1, head + sampleBytes, head + 1<<20, head + 9<<20 + 5} {
		data := make([]byte, size)
		base := sum(data)
		flipped := func(at int) bool {
			data[at] ^= 1
			defer func() { data[at] ^= 1 }()
			return sum(data) != base
		}
		for _, at := range []int{0, head - 1, head, size - 1} {
			require.True(t, flipped(at), "byte %d of %d", at, size)
		}
		for unseen, at := 0, head; at < size; at += sampleBytes {
			if unseen += sampleBytes; flipped(at) {
				unseen = 0
			}
			require.LessOrEqual(t, unseen, (size-head)/(samples-1)+sampleBytes, "before byte %d of %d", at, size)
		}
	}
}

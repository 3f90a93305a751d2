package kvcache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// countdown is a context that ends when it has been asked n times.
type countdown struct {
	context.Context
	n int
}

func (c *countdown) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestLeavingWhileAFileIsReadOrWritten ends the context before every piece of a file: reading stops, and writing leaves the
// file that was there and no other.
func TestLeavingWhileAFileIsReadOrWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seq.kv")
	ids, other := tokens(0, 16*1000), tokens(7, 40)
	c := small(t, Config{Blocks: 1003})
	m, o := filled(t, c, ids), filled(t, c, other)
	image, err := Saved{m.seq, testPrint, ids}.Image()
	require.NoError(t, err)
	long := &Image{IDs: image.IDs, seal: image.seal, firsts: image.firsts, blocks: make([]byte, 3<<20)} // so that there are pieces
	require.NoError(t, Save(path, Saved{o.seq, testPrint, other}))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	pieces := 0
	for ; ; pieces++ {
		err := Write(&countdown{t.Context(), pieces}, path, long)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, path)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after)
		files, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, files, 1, "no temporary file stays")
	}
	require.Greater(t, pieces, 3)
	for pieces = 0; ; pieces++ {
		_, err := Load(&countdown{t.Context(), pieces}, path)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Greater(t, pieces, 3)
}

// TestSavesToOnePath has eight goroutines save different sequences to one path over and over, while it is read: it is always
// one of them as a whole, and one file is left.
func TestSavesToOnePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seq.kv")
	c := small(t, Config{Blocks: 200})
	var all []*model
	var images []*Image
	for i := range 8 {
		all = append(all, filled(t, c, tokens(int32(100*i), 100+40*i)))
		m, err := Saved{all[i].seq, testPrint, all[i].ids}.Image()
		require.NoError(t, err)
		images = append(images, m)
	}
	require.NoError(t, Write(t.Context(), path, images[0]))
	var writers sync.WaitGroup
	for _, m := range images {
		writers.Go(func() {
			for range 10 {
				if err := Write(t.Context(), path, m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for again := true; again; {
		select {
		case <-done:
			again = false
		default:
		}
		into := small(t, Config{Blocks: 200})
		s, ids, err := into.Restore(path, testPrint)
		require.NoError(t, err)
		of := all[ids[0]/100]
		require.Equal(t, of.ids, ids)
		(&model{seq: s, ids: ids, rows: of.rows}).check(t, nil)
		into.Close()
	}
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// TestLengthsAreNotBelieved has files with a right checksum and absurd numbers: they are refused, and little memory is taken.
func TestLengthsAreNotBelieved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seq.kv")
	cfg := Config{Blocks: 4, Windows: []int{0, 20}}
	c := small(t, cfg)
	ids := tokens(0, 40)
	require.NoError(t, Save(path, Saved{filled(t, c, ids).seq, testPrint, ids}))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	const length, nTokens = 12, 12 + 8 + 32
	firsts := nTokens + 4 + 4*len(ids)
	restore := func(data []byte) error {
		sum := sha256.Sum256(data[:len(data)-sha256.Size])
		require.NoError(t, os.WriteFile(path, append(data[:len(data)-sha256.Size:len(data)-sha256.Size], sum[:]...), 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := c.Restore(path, testPrint)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20), "a buffer of 1 MiB and little else")
		return err
	}
	c = small(t, cfg)
	require.NoError(t, restore(good))
	c = small(t, cfg)
	for _, n := range []uint32{0, 1, 39, 41, 64, 65, 1 << 20, 1 << 30, math.MaxInt32, math.MaxUint32} {
		for _, at := range []int{8, nTokens, firsts, firsts + 4} {
			data := append([]byte(nil), good...)
			if binary.LittleEndian.PutUint32(data[at:], n); at == 8 && n == 1 || at >= firsts && n == 0 {
				continue // as it is
			}
			require.Error(t, restore(data), "%d at %d", n, at)
			require.Equal(t, 4, c.FreeBlocks())
		}
	}
	for _, n := range []uint64{0, 1, 35, 36, 1 << 20, 1 << 40, math.MaxInt64, math.MaxUint64 - 36, math.MaxUint64} {
		data := append([]byte(nil), good...)
		binary.LittleEndian.PutUint64(data[length:], n)
		require.ErrorIs(t, restore(data), ErrDamaged, "%d", n)
	}
	require.NoError(t, os.WriteFile(path, good, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40), "a file with nothing in it that claims a terabyte")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Load(ctx, path, Place{c, testPrint})
	require.ErrorIs(t, err, context.Canceled)
}

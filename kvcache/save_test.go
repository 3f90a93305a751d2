package kvcache

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testPrint = sha256.Sum256([]byte("a model"))

func TestSaveAndRestore(t *testing.T) {
	for name, cfg := range map[string]Config{
		"float16": {Blocks: 40}, "float32": {Blocks: 40, F32: true}, "8 bits": {Blocks: 40, K8: true, V8: true}, "windows": {Blocks: 40, Windows: []int{0, 20}, WindowBlocks: 40},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "seq.kv")
			ids := tokens(0, 333)
			m := filled(t, small(t, cfg), ids)
			require.NoError(t, Save(path, Saved{m.seq, testPrint, ids}))
			require.Error(t, Save(path, Saved{m.seq, testPrint, ids[:10]}))
			require.Error(t, Save(filepath.Join(path, "x"), Saved{m.seq, testPrint, ids}))

			c := small(t, cfg)
			s, got, err := c.Restore(path, testPrint)
			require.NoError(t, err)
			require.Equal(t, ids, got)
			(&model{seq: s, ids: ids, rows: m.rows}).check(t, nil)
			require.NoError(t, c.CheckIntegrity())
			s.Release(ids)
			require.Equal(t, 333, c.NewSeq().Adopt(ids))
			files, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, files, 1, "no temporary file stays")
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seq.kv")
	ids := tokens(0, 40)
	m := filled(t, small(t, Config{Blocks: 4}), ids)
	require.NoError(t, Save(path, Saved{m.seq, testPrint, ids}))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	c := small(t, Config{Blocks: 4})
	refuse := func(c *Cache, data []byte, print [sha256.Size]byte, want error) {
		t.Helper()
		free := c.FreeBlocks()
		require.NoError(t, os.WriteFile(path, data, 0o600))
		_, _, err := c.Restore(path, print)
		require.Error(t, err)
		if want != nil {
			require.ErrorIs(t, err, want)
		}
		require.ErrorContains(t, err, path)
		require.Equal(t, free, c.FreeBlocks())
		require.NoError(t, c.CheckIntegrity())
	}
	refuse(c, good, sha256.Sum256([]byte("another model")), ErrForeign)
	refuse(small(t, Config{Blocks: 4, F32: true}), good, testPrint, ErrForeign)
	refuse(small(t, Config{Blocks: 4, K8: true}), good, testPrint, ErrForeign)
	refuse(small(t, Config{Blocks: 4, Windows: []int{0, 20}}), good, testPrint, ErrForeign)
	refuse(small(t, Config{Blocks: 2}), good, testPrint, nil)
	for n := range good {
		if n < 200 || n%16 == 0 {
			refuse(c, good[:n], testPrint, ErrDamaged)
		}
		want := ErrDamaged
		if n == len(saveMagic)-1 {
			want = ErrForeign // another version of the layout
		}
		changed := append([]byte(nil), good...)
		changed[n] ^= 0x41
		refuse(c, changed, testPrint, want)
	}
	refuse(c, append(append([]byte(nil), good...), 0), testPrint, ErrDamaged)
	_, _, err = c.Restore(filepath.Join(t.TempDir(), "none"), testPrint)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestSaveSurvivesKill kills processes that save over and over: the file is always one of the two that they write, and both come.
func TestSaveSurvivesKill(t *testing.T) {
	ids := [2][]int32{tokens(0, 500), tokens(900, 300)}
	if path := os.Getenv("KVCACHE_SAVE_FOREVER"); path != "" {
		c := small(t, Config{Blocks: 60})
		two := [2]Saved{{filled(t, c, ids[0]).seq, testPrint, ids[0]}, {filled(t, c, ids[1]).seq, testPrint, ids[1]}}
		for i, told := 0, make([]byte, 1); ; i++ { // when it is told to, and once there is nobody to tell it, again and again
			_, _ = os.Stdin.Read(told)
			require.NoError(t, Save(path, two[i%2]))
			_, _ = os.Stdout.Write(told)
		}
	}
	path := filepath.Join(t.TempDir(), "seq.kv")
	for i := range 16 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSaveSurvivesKill$")
		cmd.Env = append(os.Environ(), "KVCACHE_SAVE_FOREVER="+path)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		for range 1 + i%2 {
			_, err = in.Write([]byte{1})
			require.NoError(t, err)
			_, err = out.Read(make([]byte, 1))
			require.NoError(t, err)
		}
		if i >= 2 {
			require.NoError(t, in.Close())
			time.Sleep(time.Duration(7*i) * time.Millisecond)
		}
		require.NoError(t, cmd.Process.Kill(), "it saves until it is killed")
		require.Error(t, cmd.Wait())
		require.Equal(t, -1, cmd.ProcessState.ExitCode(), "it saves until it is killed")
		_, got, err := small(t, Config{Blocks: 60}).Restore(path, testPrint)
		require.NoError(t, err)
		if require.Contains(t, ids, got); i < 2 {
			require.Equal(t, ids[i], got, "what was saved last")
		}
	}
}

// TestSeveralSequencesInAFile saves those of two models together: each cache finds its own, wherever it stands.
func TestSeveralSequencesInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seq.kv")
	other := sha256.Sum256([]byte("a draft"))
	ids, draftIDs := tokens(0, 40), tokens(7, 33)
	big, small8 := small(t, Config{Blocks: 4}), small(t, Config{Blocks: 4, K8: true})
	m, d := filled(t, big, ids), filled(t, small8, draftIDs)
	require.NoError(t, Save(path, Saved{m.seq, testPrint, ids}, Saved{d.seq, other, draftIDs}))
	for _, c := range []struct {
		cfg   Config
		print [sha256.Size]byte
		want  *model
	}{{Config{Blocks: 4}, testPrint, m}, {Config{Blocks: 4, K8: true}, other, d}} {
		s, got, err := small(t, c.cfg).Restore(path, c.print)
		require.NoError(t, err)
		require.Equal(t, c.want.ids, got)
		(&model{seq: s, ids: got, rows: c.want.rows}).check(t, nil)
	}
	_, _, err := small(t, Config{Blocks: 4}).Restore(path, other)
	require.ErrorIs(t, err, ErrForeign)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := 1; cut < len(good); cut += 97 { // whichever part is cut, no cache takes anything from the file
		require.NoError(t, os.WriteFile(path, good[:len(good)-cut], 0o600))
		_, _, err := small(t, Config{Blocks: 4}).Restore(path, testPrint)
		require.ErrorIs(t, err, ErrDamaged, "%d bytes cut", cut)
	}
	for n := range good { // whichever part is changed
		changed := append([]byte(nil), good...)
		changed[n] ^= 0x10
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		_, _, err := small(t, Config{Blocks: 4}).Restore(path, testPrint)
		require.Error(t, err, "byte %d of %d", n, len(good))
	}
	require.Error(t, Save(path, Saved{m.seq, testPrint, ids}, Saved{big.NewSeq(), testPrint, nil}))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotEmpty(t, after, "a save that fails leaves the file alone")
}

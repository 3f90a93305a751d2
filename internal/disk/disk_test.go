package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder is the system with a record of what is asked of it; call number fail does not happen and returns errInjected.
type recorder struct {
	osFiles
	calls []string
	fail  int
}

var errInjected = errors.New("injected")

func (r *recorder) call(name string) error {
	r.calls = append(r.calls, name)
	if len(r.calls)-1 == r.fail {
		return &fs.PathError{Op: name, Path: "/some/.temporary.tmp", Err: errInjected}
	}
	return nil
}

func (r *recorder) create(dir, base string) (handle, error) {
	if err := r.call("create"); err != nil {
		return nil, err
	}
	h, err := r.osFiles.create(dir, base)
	return &recorded{h, r}, err
}

func (r *recorder) rename(from, to string) error {
	if err := r.call("rename"); err != nil {
		return err
	}
	return r.osFiles.rename(from, to)
}

func (r *recorder) syncDir(dir string) error {
	if err := r.call("sync folder"); err != nil {
		return err
	}
	return r.osFiles.syncDir(dir)
}

type recorded struct {
	handle
	r *recorder
}

func (h *recorded) Write(b []byte) (int, error) {
	if err := h.r.call("write"); err != nil {
		return 0, err
	}
	return h.handle.Write(b)
}

func (h *recorded) WriteAt(b []byte, off int64) (int, error) {
	if err := h.r.call("write at"); err != nil {
		return 0, err
	}
	return h.handle.WriteAt(b, off)
}

func (h *recorded) Chmod(mode fs.FileMode) error {
	if err := h.r.call("chmod"); err != nil {
		return err
	}
	return h.handle.Chmod(mode)
}

func (h *recorded) Sync() error {
	if err := h.r.call("sync"); err != nil {
		return err
	}
	return h.handle.Sync()
}

func (h *recorded) Close() error {
	err := h.handle.Close()
	if injected := h.r.call("close"); injected != nil {
		return injected
	}
	return err
}

// make writes "new" to path.
func (r *recorder) make(path string, sync bool) error {
	f, err := create(path, r)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write([]byte("ne")); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := f.WriteAt([]byte("w"), 2); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.commit(sync)
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The order is what makes a file whole after a power failure: content before name, name before success is reported.
func TestOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	all := []string{"create", "write", "write at", "sync", "close", "rename", "sync folder"}
	r := &recorder{fail: -1}
	require.NoError(t, r.make(path, true))
	require.Equal(t, all, r.calls)
	r = &recorder{fail: -1}
	require.NoError(t, r.make(path, false))
	require.Equal(t, []string{"create", "write", "write at", "chmod", "close", "rename"}, r.calls)
}

// Whatever call fails, there is the old file or the new one and nothing else, and the error names the file and no temporary one.
func TestEveryCallFails(t *testing.T) {
	steps := []string{"create", "write", "write at", "chmod", "sync", "close", "rename", "sync folder"}
	for fail, step := range steps {
		for _, old := range []bool{true, false} {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			want, left := "", []string(nil)
			if old {
				require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
				want, left = "old", []string{"out"}
			} else if step == "chmod" { // there is no mode to keep
				continue
			} else if fail > 3 {
				fail--
			}
			r := &recorder{fail: fail}
			err := r.make(path, true)
			require.ErrorIs(t, err, errInjected, step)
			require.Equal(t, step, r.calls[fail])
			require.True(t, strings.HasPrefix(err.Error(), path+": "), err)
			require.NotContains(t, err.Error(), ".tmp", step)
			if step == "sync folder" {
				want, left = "new", []string{"out"}
			}
			require.Equal(t, left, names(t, dir), step)
			if want != "" {
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, want, string(data), step)
			}
		}
	}
	require.Empty(t, live.files)
}

func TestModes(t *testing.T) {
	dir := t.TempDir()
	kept, fresh := filepath.Join(dir, "kept"), filepath.Join(dir, "fresh")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	require.NoError(t, os.Chmod(kept, 0o604))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o666)) // as the umask has it
	for _, path := range []string{kept, fresh} {
		require.NoError(t, (&recorder{fail: -1}).make(path, true))
	}
	mode := func(name string) fs.FileMode {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		return info.Mode()
	}
	require.Equal(t, fs.FileMode(0o604), mode("kept"))
	require.Equal(t, mode("plain"), mode("fresh"))
}

func TestLinksStay(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	real, link := filepath.Join(other, "real"), filepath.Join(dir, "link")
	for range 2 { // first the link dangles
		_ = os.Remove(link)
		require.NoError(t, os.Symlink(real, link))
		require.NoError(t, (&recorder{fail: -1}).make(link, true))
		data, err := os.ReadFile(real)
		require.NoError(t, err)
		require.Equal(t, "new", string(data))
		info, err := os.Lstat(link)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&fs.ModeSymlink)
	}
	require.Equal(t, []string{"link"}, names(t, dir))
	require.Equal(t, []string{"real"}, names(t, other))
}

func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("ä", 127)) // 254 bytes
	require.NoError(t, Check(path))
	require.NoError(t, (&recorder{fail: -1}).make(path, true))
	require.ErrorContains(t, Check(path+"xx"), "too long")
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	in, part := filepath.Join(dir, "in"), filepath.Join(dir, "model", "part")
	require.NoError(t, os.Mkdir(filepath.Dir(part), 0o755))
	for _, path := range []string{in, part} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	link, hard := filepath.Join(dir, "link"), filepath.Join(dir, "hard")
	require.NoError(t, os.Symlink(in, link))
	require.NoError(t, os.Link(part, hard))
	for path, want := range map[string]string{
		"": "want the name of a file", dir: "is a folder", dir + "/out/": "is the name of a folder", "/dev/null": "is a device",
		in: "is read too", link: "is read too", part: "is read too", hard: "is read too", filepath.Join(in, "out"): "not a directory",
		filepath.Join(dir, "none", "out"): "there is no folder " + filepath.Join(dir, "none"),
	} {
		err := Check(path, in, filepath.Dir(part))
		require.ErrorContains(t, err, want, path)
		require.ErrorContains(t, err, path)
		require.NotContains(t, err.Error(), ".tmp")
		if want != "is read too" {
			_, err = Create(path)
			require.Error(t, err, path)
		}
	}
	before := names(t, dir)
	require.NoError(t, Check(filepath.Join(dir, "out"), in, filepath.Dir(part), filepath.Join(dir, "absent")))
	require.NoError(t, Check(filepath.Join(dir, "model", "out"), filepath.Dir(part)))
	require.Equal(t, before, names(t, dir))
}

func TestCheckRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	require.NoError(t, CheckRoom(path, 1))
	free, ok := Free(filepath.Dir(path))
	require.True(t, ok)
	require.Positive(t, free)
	require.ErrorContains(t, CheckRoom(path, 1<<62), path+": takes 4611686018427387904 bytes, but the disk of ")
}

func TestLeftoversOfKilledProcesses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out[*].gguf") // which no pattern may take for more than a name
	running, err := Create(path)
	require.NoError(t, err)
	prefix, suffix := temporary(filepath.Base(path))
	old, fresh, other := filepath.Join(dir, prefix+"1"+suffix), filepath.Join(dir, prefix+"2"+suffix), filepath.Join(dir, ".other.1.tmp")
	for _, name := range []string{old, fresh, other} {
		require.NoError(t, os.WriteFile(name, []byte("half"), 0o600))
	}
	ago := time.Now().Add(-2 * unlockedAge)
	for _, name := range []string{old, other, running.tmp.Name()} {
		require.NoError(t, os.Chtimes(name, ago, ago))
	}
	f, err := Create(path)
	require.NoError(t, err)
	require.NoFileExists(t, old)
	require.FileExists(t, fresh, "another process may be about to lock it")
	require.FileExists(t, other)
	require.FileExists(t, running.tmp.Name(), "another writer holds its lock")
	require.NoError(t, f.Commit())
	require.NoError(t, running.Commit())
	require.ErrorContains(t, running.Commit(), path)
	require.NoError(t, running.Abort())
	require.FileExists(t, path)
}

const helperVariable = "DISK_TEST_WRITES"

// TestKilledWriter kills processes in the middle: whatever lies under the name is complete, and the next writer tidies up.
func TestKilledWriter(t *testing.T) {
	const size = 8 << 20
	if path := os.Getenv(helperVariable); path != "" {
		for round := byte(1); ; round++ {
			f, err := Create(path)
			require.NoError(t, err)
			for chunk := range size >> 16 {
				if chunk == size>>17 { // it says so, and waits, until there is nobody to wait for
					_, _ = os.Stdout.WriteString("h")
					_, _ = os.Stdin.Read(make([]byte, 1))
				}
				_, err = f.Write([]byte(strings.Repeat(string(rune('a'+round%26)), 1<<16)))
				require.NoError(t, err)
			}
			require.NoError(t, f.Commit())
			_, _ = os.Stdout.WriteString("w")
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	exe, err := os.Executable()
	require.NoError(t, err)
	for i := range 12 {
		cmd := exec.Command(exe, "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), helperVariable+"="+path)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		for k, want := range "hwh"[:1+i%3] { // in the middle of the first file, some time after it, or in the middle of the second
			said := make([]byte, 1)
			_, err = io.ReadFull(out, said)
			require.NoError(t, err)
			require.Equal(t, string(want), string(said))
			if k == 0 && i%3 > 0 {
				_, err = in.Write(said)
				require.NoError(t, err)
			}
		}
		if i%3 == 1 {
			require.NoError(t, in.Close())
			time.Sleep(time.Duration(7*i) * time.Millisecond)
		}
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		halves := 0
		for _, name := range names(t, dir) {
			if name != "out" {
				halves++
				ago := time.Now().Add(-2 * unlockedAge)
				require.NoError(t, os.Chtimes(filepath.Join(dir, name), ago, ago))
			}
		}
		require.LessOrEqual(t, halves, 1, "the next writer tidies up")
		if i%3 != 1 {
			require.Equal(t, 1, halves, "it was killed in the middle")
		}
		data, err := os.ReadFile(path)
		if i == 0 {
			require.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		require.Len(t, data, size)
		require.Equal(t, strings.Repeat(string(data[:1]), size), string(data))
	}
	require.NoError(t, Check(path))
	require.Equal(t, []string{"out"}, names(t, dir))
}

// TestAbandonAll ends a process whose writers go on.
func TestAbandonAll(t *testing.T) {
	if path := os.Getenv(helperVariable); path != "" {
		f, err := Create(path)
		require.NoError(t, err)
		AbandonAll()
		require.ErrorContains(t, f.Commit(), path)
		_, err = Create(path)
		require.ErrorContains(t, err, path)
		return
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run=^TestAbandonAll$", "-test.v")
	cmd.Env = append(os.Environ(), helperVariable+"="+filepath.Join(dir, "out"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, names(t, dir))
}

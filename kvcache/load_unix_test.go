//go:build unix

package kvcache

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsNoFileIsRefusedAtOnce has pipes without a writer, devices, sockets and folders at the path, to read from and to write to.
func TestWhatIsNoFileIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	c := small(t, Config{Blocks: 4})
	ids := tokens(0, 40)
	m := filled(t, c, ids)
	for path, text := range map[string]string{
		dir: "is a folder, want a file", pipe: "is a pipe, want a file", socket: socket, "/dev/zero": "is a device, want a file", "/dev/null": "is a device, want a file",
	} {
		_, err := Load(t.Context(), path, Place{c, testPrint})
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, Save(path, Saved{m.seq, testPrint, ids}), path)
	}
}

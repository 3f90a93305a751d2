//go:build linux || darwin || freebsd || netbsd || openbsd

package mapfile

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A pipe without a writer would block an open for ever.
func TestOpenRefusesPipesAndDevices(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	_, err := Open(pipe)
	require.EqualError(t, err, pipe+": is a pipe, want a regular file")
	_, err = Open("/dev/zero")
	require.EqualError(t, err, "/dev/zero: is a device, want a regular file")
}

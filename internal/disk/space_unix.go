//go:build linux || darwin

package disk

import (
	"math"

	"golang.org/x/sys/unix"
)

// Free returns the bytes that this user may still write to the disk of a folder; false: that is not known.
func Free(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Bsize <= 0 {
		return 0, false
	}
	if blocks, size := uint64(st.Bavail), uint64(st.Bsize); blocks < math.MaxInt64/size {
		return int64(blocks * size), true
	}
	return math.MaxInt64, true
}

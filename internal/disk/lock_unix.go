//go:build unix

package disk

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TryLock takes an exclusive lock of a file unless another process or open file holds it; closing the file releases it.
func TryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// IsFull reports whether an error of writing says that there is no more room.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// fileLimit is the length in bytes that this process's files may have.
func fileLimit() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(limit.Cur)
}

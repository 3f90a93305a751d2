//go:build linux || darwin || freebsd || netbsd || openbsd

package mapfile

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func mapBytes(f *os.File, size int) ([]byte, bool, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	return data, err == nil, err
}

func unmapBytes(data []byte) error { return unix.Munmap(data) }

// releasePages rounds inwards to whole pages, so that neighbours keep theirs.
func releasePages(part []byte) {
	page := os.Getpagesize()
	start := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	skip := int(-start & uintptr(page-1))
	if skip >= len(part) {
		return
	}
	whole := (len(part) - skip) / page * page
	if whole > 0 {
		// The advice is about memory use only: a refusal changes nothing that callers rely on.
		_ = unix.Madvise(part[skip:skip+whole], unix.MADV_DONTNEED)
	}
}

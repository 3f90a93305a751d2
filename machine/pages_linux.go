package machine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func mapPages(n int, huge bool) (Pages, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return Pages{}, fmt.Errorf("no memory for %d bytes: %w", n, err)
	}
	if huge {
		// A kernel without transparent huge pages answers EINVAL; small pages serve as well, only slower.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return Pages{Data: mem, mapped: mem}, nil
}

// Free gives the memory back; Data must not be used afterwards. Calling it twice is harmless.
func (p *Pages) Free() {
	if p.mapped != nil {
		_ = unix.Munmap(p.mapped)
	}
	*p = Pages{}
}

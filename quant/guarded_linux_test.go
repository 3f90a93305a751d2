package quant

import "golang.org/x/sys/unix"

// newPaged returns a buffer with unreadable memory right behind it.
func newPaged(size int) *guarded {
	page := unix.Getpagesize()
	readable := (size + page - 1) / page * page
	whole, err := unix.Mmap(-1, 0, readable+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	if err := unix.Mprotect(whole[readable:], unix.PROT_NONE); err != nil {
		panic(err)
	}
	return &guarded{data: whole[readable-size:][:size:size], unmap: func() {
		if err := unix.Munmap(whole); err != nil {
			panic(err)
		}
	}}
}

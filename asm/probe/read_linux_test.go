package probe

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// faults reports whether a function reads what must not be read.
func faults(f func()) (bad bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { bad = recover() != nil }()
	f()
	return false
}

// TestReadStaysInside reads beside pages that must not be read. What ends where one begins, or begins where one ends, is read
// without a fault, and so is a last line that is not full and lies in one; a first or last full line in one is not left out.
func TestReadStaysInside(t *testing.T) {
	page := unix.Getpagesize()
	all, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(all)) }()
	protect := func(prots ...int) {
		for i, prot := range prots {
			require.NoError(t, unix.Mprotect(all[i*page:][:page], prot))
		}
	}
	const most = 20 // lines
	for name, read := range map[string]func([]byte){"the level's": Read, "Go's": func(b []byte) { readGo(&b[0], len(b)/lineBytes) }} {
		protect(unix.PROT_NONE, unix.PROT_READ, unix.PROT_NONE)
		for n := 1; n < (most+1)*lineBytes; n++ {
			require.False(t, faults(func() { read(all[2*page-n : 2*page]) }), "%s: %d bytes before a page", name, n)
			require.False(t, faults(func() { read(all[page : page+n]) }), "%s: %d bytes behind a page", name, n)
		}
		protect(unix.PROT_READ, unix.PROT_NONE, unix.PROT_READ)
		for n := lineBytes; n <= most*lineBytes; n += lineBytes {
			require.False(t, faults(func() { read(all[page-n:][:n+lineBytes-1]) }), "%s: what is no full line after %d bytes", name, n)
			require.True(t, faults(func() { read(all[page-n+lineBytes:][:n]) }), "%s: the last line of %d bytes", name, n)
			require.True(t, faults(func() { read(all[2*page-lineBytes:][:n]) }), "%s: the first line of %d bytes", name, n)
		}
	}
}

// Package probe measures the limits that kernels run into: int8 products on registers, and reading memory.
package probe

import "unsafe"

// lineBytes is the size of a cache line.
const lineBytes = 64

// Read loads every full cache line of b, with the widest loads of the active level.
func Read(b []byte) {
	if n := len(b) / lineBytes; n > 0 {
		read(unsafe.SliceData(b), n)
	}
}

// Int8Peak runs rounds of independent int8 products in the best active level's dot product instructions and returns the
// number of multiply-adds done, 0 without a kernel. Their time is the roofline of matrix products.
func Int8Peak(rounds int) int64 { return peak(rounds) }

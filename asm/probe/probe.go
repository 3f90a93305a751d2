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
// number of multiply-adds done, 0 without a kernel. At the level with AMX these are VPDPBUSD too. Their time is the roofline of matrix products.
func Int8Peak(rounds int) int64 { return peak(rounds) }

// Int8Instructions names those that Int8Peak repeats. Without VPDPBUSD, sums stay in 16 bits: exact dot products add a VPMADDWD
// now and then, in the place of a VPADDW, and cannot be faster.
func Int8Instructions() string { return instructions() }

// MatrixPeak is Int8Peak in instructions on matrix registers, 0 where no active level has them. Matrix products need other
// instructions in between, so that it is a figure to compare kernels with and not the roofline.
func MatrixPeak(rounds int) int64 { return matrixPeak(rounds) }

package kvcache

import "unsafe"

// halves views memory that is aligned to a page as 16-bit values.
func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

package kvcache

import (
	"unsafe"

	"quickdraft/quant"
)

// store holds one layer's keys or values; one of the two is nil.
type store struct {
	half []uint16
	full []float32
}

// newStore views memory that is aligned to a page.
func newStore(b []byte, f32 bool) store {
	p := unsafe.SliceData(b)
	if f32 {
		return store{full: unsafe.Slice((*float32)(unsafe.Pointer(p)), len(b)/4)}
	}
	return store{half: unsafe.Slice((*uint16)(unsafe.Pointer(p)), len(b)/2)}
}

func (s store) put(at int, x float32) {
	if s.full != nil {
		s.full[at] = x
		return
	}
	s.half[at] = quant.FloatToHalf(x)
}

// move copies n values.
func (s store) move(to, from, n int) {
	if s.full != nil {
		copy(s.full[to:to+n], s.full[from:from+n])
		return
	}
	copy(s.half[to:to+n], s.half[from:from+n])
}

// putKeys writes one token's keys to their lane of the block at a place, (KVHeads*HeadDim, 16).
func (s store) putKeys(at int, k []float32, lane int) {
	for i, x := range k {
		s.put(at+i*BlockTokens+lane, x)
	}
}

// putValues writes one token's values to the block at a place, (KVHeads, 16, HeadDim).
func (s store) putValues(at int, v []float32, lane, headDim int) {
	for ; len(v) > 0; v, at = v[headDim:], at+headDim*BlockTokens {
		for d, x := range v[:headDim] {
			s.put(at+lane*headDim+d, x)
		}
	}
}

// memory is a block as bytes.
func (s store) memory(block int, cfg *Config) [][]byte {
	n := cfg.blockSize()
	if s.full != nil {
		return [][]byte{bytesOf(s.full[block*n : (block+1)*n])}
	}
	return [][]byte{bytesOf(s.half[block*n : (block+1)*n])}
}

// bytesOf views values as the bytes they consist of.
func bytesOf[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

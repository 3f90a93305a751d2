package quant

import (
	"fmt"
	"unsafe"

	"quickdraft/asm/cpu"
	"quickdraft/modelfile/gguf"
)

const (
	MaxM  = 8  // every level has kernels for exactly 1..MaxM activation rows
	WideM = 16 // and for the wide tile of prefill; between them some have, others take two
)

// DotFunc is Format.DotRef for a fixed number of activation rows, with pointers instead of slices.
type DotFunc func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int)

// Candidate is one implementation of a format's dot product for m activation rows.
type Candidate struct {
	Level cpu.Level
	Name  string // package.Function of a kernel, Functionx<m>+<n> of two, "go.Dot<format>" for the reference
	Dot   DotFunc
}

// candidates holds the implementations by type and number of activation rows.
var candidates = func() (table [len(byType)][WideM + 1][]Candidate) {
	for _, f := range formats {
		for m := 1; m <= WideM; m++ {
			table[f.Type][m] = append(kernels(f, m), reference(f, m))
		}
	}
	return table
}()

// Candidates returns the implementations for a format and m activation rows (1..WideM), best level first, the Go
// reference last. The slice is shared: do not change it.
func Candidates(t gguf.Type, m int) []Candidate {
	if m < 1 || m > WideM {
		panic(fmt.Sprintf("quant: no candidates for %d activation rows; there are 1..%d", m, WideM))
	}
	return candidates[mustGet(t).Type][m]
}

// Pick returns the first candidate that may run here.
func Pick(t gguf.Type, m int) Candidate {
	all := Candidates(t, m)
	for _, c := range all {
		if cpu.Active(c.Level) {
			return c
		}
	}
	return all[len(all)-1]
}

// reference wraps DotRef. The slices reach exactly as far as DotRef reads and writes.
func reference(f *Format, m int) Candidate {
	dot := func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int) {
		if nTiles == 0 {
			return
		}
		f.DotRef(unsafe.Slice(dst, (m-1)*dstStride+nTiles*TileRows), dstStride,
			unsafe.Slice(tiles, nTiles*nBlocks*f.TileBytes), nTiles,
			unsafe.Slice(act, f.actSize(m, nBlocks*f.BlockSize, actStride)), actStride, nBlocks, m)
	}
	return Candidate{Level: cpu.Go, Name: "go.Dot" + f.Name, Dot: dot}
}

// twice multiplies m activation rows with two kernels, for (m+1)/2 rows and for the others, tile by tile: the second finds the
// tile in the cache.
func twice(f *Format, m int, low, high DotFunc) DotFunc {
	first := (m + 1) / 2
	return func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int) {
		rest := unsafe.Add(unsafe.Pointer(act), first*ActBlockBytes)
		if f.Float {
			rest = unsafe.Add(unsafe.Pointer(act), first*actStride)
		}
		for i := range nTiles {
			tile := (*byte)(unsafe.Add(unsafe.Pointer(tiles), i*nBlocks*f.TileBytes))
			at := unsafe.Add(unsafe.Pointer(dst), i*TileRows*4)
			low((*float32)(at), dstStride, tile, 1, act, actStride, nBlocks)
			high((*float32)(unsafe.Add(at, first*dstStride*4)), dstStride, tile, 1, (*byte)(rest), actStride, nBlocks)
		}
	}
}

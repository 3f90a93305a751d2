package quant

import (
	"fmt"
	"unsafe"

	"quickdraft/asm/cpu"
	"quickdraft/modelfile/gguf"
)

const (
	MaxM  = 8  // kernels exist for exactly 1..MaxM activation rows
	WideM = 16 // and for the wide tile of prefill
)

// DotFunc is Format.DotRef for a fixed number of activation rows, with pointers instead of slices.
type DotFunc func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int)

// Candidate is one implementation of a format's dot product for m activation rows.
type Candidate struct {
	Level cpu.Level
	Name  string // package.Function of a kernel, "go.Dot<format>" for the reference
	Dot   DotFunc
}

// candidates holds the implementations by type and number of activation rows.
var candidates = func() (table [len(byType)][WideM + 1][]Candidate) {
	for _, f := range formats {
		for m := 1; m <= WideM; m++ {
			if m <= MaxM || m == WideM {
				table[f.Type][m] = append(kernels(f, m), reference(f, m))
			}
		}
	}
	return table
}()

// Candidates returns the implementations for a format and m activation rows (1..MaxM or WideM), best level first, the Go
// reference last. The slice is shared: do not change it.
func Candidates(t gguf.Type, m int) []Candidate {
	if m < 1 || m > MaxM && m != WideM {
		panic(fmt.Sprintf("quant: no candidates for %d activation rows; there are 1..%d and %d", m, MaxM, WideM))
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

package tensor

import (
	"fmt"
	"unsafe"

	"quickdraft/machine"
)

// lineBytes is the alignment of everything an Arena hands out: one cache line, one AVX-512 register.
const lineBytes = 64

// Arena is a bump allocator over one run of huge-paged memory outside the garbage collector's heap. It is not safe for
// concurrent use.
type Arena struct {
	pages machine.Pages
	used  int
}

// NewArena returns an arena of at least the given bytes, or an error naming the size when there is no such memory.
func NewArena(bytes int) (*Arena, error) {
	pages, err := machine.MapPages(bytes, true)
	if err != nil {
		return nil, fmt.Errorf("tensor: arena: %w", err)
	}
	return &Arena{pages: pages}, nil
}

// F32Bytes is what a matrix of this shape takes from an arena.
func F32Bytes(rows, cols int) int { return roundUp(rows*cols*4, lineBytes) }

// F32 takes a matrix from the arena. Its content is undefined after a Reset. It panics when the arena is used up: its
// owner knows what the pass needs.
func (a *Arena) F32(rows, cols int) F32 {
	b := a.Bytes(rows * cols * 4)
	return F32{Data: float32s(b), Rows: rows, Cols: cols}
}

// Bytes takes n bytes, aligned to a cache line, from the arena. It panics when the arena is used up.
func (a *Arena) Bytes(n int) []byte {
	end := a.used + roundUp(n, lineBytes)
	if n < 0 || end > roundUp(len(a.pages.Data), lineBytes) || a.used+n > len(a.pages.Data) {
		panic(fmt.Sprintf("tensor: arena of %d bytes cannot give %d more after %d", len(a.pages.Data), n, a.used))
	}
	b := a.pages.Data[a.used : a.used+n : a.used+n]
	a.used = end
	return b
}

// Reset makes the whole arena free again; matrices taken before must not be used any more.
func (a *Arena) Reset() { a.used = 0 }

// Free returns the memory to the system; nothing taken from the arena may be used afterwards.
func (a *Arena) Free() {
	a.pages.Free()
	a.used = 0
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// float32s views bytes as float32; b must be aligned to 4.
func float32s(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// bytesOf views float32 as bytes.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*4)
}

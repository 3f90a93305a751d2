package quant

import "unsafe"

// atPageEnd asks for a buffer that ends where an unreadable page begins (linux).
const atPageEnd = -1

// guardBytes lie before and after a buffer.
const guardBytes = 256

// guarded is a buffer between guard bytes, at an address that is shift bytes past a multiple of 64.
type guarded struct {
	data   []byte
	whole  []byte
	before int
	unmap  func()
}

func newGuarded(size, shift int) *guarded {
	if shift == atPageEnd {
		if g := newPaged(size); g != nil {
			return g
		}
		shift = 1
	}
	whole := make([]byte, size+2*guardBytes+64)
	before := guardBytes
	for uintptr(unsafe.Pointer(&whole[before]))%64 != 0 {
		before++
	}
	g := &guarded{whole: whole, before: before + shift}
	g.data = whole[g.before:][:size:size]
	for i := range whole {
		whole[i] = guardByte(i)
	}
	clear(g.data)
	return g
}

func guardByte(i int) byte { return byte(i*7 + 1) }

// intact reports whether the guard bytes are as they were.
func (g *guarded) intact() bool {
	for i, b := range g.whole {
		if (i < g.before || i >= g.before+len(g.data)) && b != guardByte(i) {
			return false
		}
	}
	return true
}

func (g *guarded) fill(v byte) {
	for i := range g.data {
		g.data[i] = v
	}
}

func (g *guarded) first() *byte     { return unsafe.SliceData(g.data) }
func (g *guarded) floats() *float32 { return (*float32)(unsafe.Pointer(g.first())) }

func (g *guarded) free() {
	if g.unmap != nil {
		g.unmap()
	}
}

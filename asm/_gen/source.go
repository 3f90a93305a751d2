package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// source is one generated .s file: the avo context and the constants that its functions share.
type source struct {
	*build.Context
	data map[string]operand.Mem
}

func newSource() *source {
	return &source{Context: build.NewContext(), data: map[string]operand.Mem{}}
}

// bytes returns the address of read-only bytes, written once a file.
func (s *source) bytes(name string, b []byte) operand.Mem {
	if m, ok := s.data[name]; ok {
		return m
	}
	m := s.StaticGlobal(name)
	s.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := 0; i < len(b); i += 8 {
		s.AppendDatum(operand.U64(binary.LittleEndian.Uint64(b[i:])))
	}
	s.data[name] = m
	return m
}

// splat is 64 bytes of a repeated 32-bit value.
func (s *source) splat(v uint32) operand.Mem {
	b := make([]byte, 64)
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], v)
	}
	return s.bytes(fmt.Sprintf("splat%08x", v), b)
}

// table is 16 bytes: the entries plus a bias.
func (s *source) table(entries []int8, bias int) operand.Mem {
	b := make([]byte, 16)
	for i, e := range entries {
		b[i] = byte(int(e) + bias)
	}
	return s.bytes(fmt.Sprintf("table%d", bias), b)
}

// vectors is how many vector registers a kernel needs beside constants and sums.
func (k *kernel) vectors() int {
	n := 8 + k.f.factors() // codes and scales
	if k.f.mins {
		n += k.f.factors()
	}
	if k.usesSplit() {
		n += 8
	}
	if k.keepsFloats() {
		n++
		if k.f.mins {
			n++
		}
	}
	switch {
	case k.lv.amx: // scaled, dot
		n += 2
	case k.lv.unroll: // scaled, dots
		n += 1 + k.m
	case k.f.halves || k.usesSplit(): // the sums stay while the second half is multiplied
		n += 4
	default:
		n += 3
	}
	return n
}

// keepsFloats reports whether the float scales of a block of 256 columns stay in registers.
func (k *kernel) keepsFloats() bool {
	return k.f.super && k.lv.bits == 512 && (k.m <= maxTokens || k.lv.amx)
}

// constantsWanted lists the constants of the inner loops, the most used first.
func (k *kernel) constantsWanted() []uint32 {
	var out []uint32
	if !k.lv.vnni {
		out = append(out, 0x00010001)
	}
	for _, p := range k.f.planes {
		switch p.kind {
		case nibbles:
			out = append(out, 0x0f0f0f0f)
		case bits1:
			out = append(out, 0x01010101<<p.bit)
		case bits2:
			out = append(out, 0x03030303<<p.bit)
		}
	}
	if k.lv.amx && k.f.offset > 0 && k.f.table == nil {
		out = append(out, uint32(k.f.offset)*0x01010101)
	}
	if k.f.flip && !k.usesSign() && !k.lv.amx {
		out = append(out, 0x80808080)
	}
	if k.usesSplit() && k.f.table == nil {
		out = append(out, 0x0f0f0f0f)
	}
	return out
}

// loadConstants fills the registers that are left with constants; the others are used from memory.
func (k *kernel) loadConstants() {
	free := 16
	if k.lv.bits == 512 {
		free = 32
	}
	free -= k.vectors() + len(k.sums)
	for _, c := range k.constantsWanted() {
		if free <= 0 {
			return
		}
		free--
		v := k.vec(fmt.Sprint("constant", c))
		k.load(k.splat(c), v)
		k.consts[c] = v
	}
}

// constant is a register or 64 bytes of memory with the repeated value.
func (k *kernel) constant(v uint32) operand.Op {
	if r, ok := k.consts[v]; ok {
		return r
	}
	return k.splat(v)
}

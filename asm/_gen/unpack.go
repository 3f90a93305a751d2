package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpack fills k.w with the codes of the 8 groups of the part, from its planes, and applies the table.
func (k *kernel) unpack() {
	for g := range k.w {
		k.w[g] = k.vec(fmt.Sprint("w", g))
	}
	at := 0
	for i, p := range k.f.planes {
		switch p.kind {
		case nibbles:
			k.unpackNibbles(at)
		case bits1:
			line := k.vec("dot0")
			k.load(k.inHalf(k.part, at, 4), line)
			for g := range k.w {
				k.field(line, g, p.bit, 0x01010101<<p.bit, k.w[g], i > 0)
			}
		case bits2:
			k.unpackPairs(at, p.bit, i > 0)
		case bytes8:
			k.unpackBytes(at)
		}
		at += p.kind.size()
	}
	if k.f.table != nil {
		k.lookUp()
	}
	if k.usesSplit() {
		k.split()
	}
}

func (k *kernel) unpackNibbles(at int) {
	const low = 0x0f0f0f0f
	for p := range 4 {
		line := k.vec("dot0")
		k.load(k.inHalf(k.part, at+64*p, 4), line)
		k.and(k.constant(low), line, k.w[p])
		k.VPSRLD(operand.U8(4), line, line)
		k.and(k.constant(low), line, k.w[4+p])
	}
}

func (k *kernel) unpackPairs(at, bit int, or bool) {
	for h := range 2 {
		line := k.vec("dot0")
		k.load(k.inHalf(k.part, at+64*h, 4), line)
		for j := range 4 {
			k.field(line, 2*j, bit, 0x03030303<<bit, k.w[4*h+j], or)
		}
	}
}

// unpackBytes loads whole codes; unsigned where a level needs that, absolute where it takes signs from memory.
func (k *kernel) unpackBytes(at int) {
	for g := range k.w {
		line := k.inHalf(k.part, at+64*g, 4)
		switch {
		case k.usesSign():
			k.VPABSB(line, k.w[g])
		case k.f.flip:
			k.load(line, k.w[g])
			k.xor(k.constant(0x80808080), k.w[g], k.w[g])
		default:
			k.load(line, k.w[g])
		}
	}
}

// field moves the bits of line at bit from to bit to, keeps those of mask, and sets or ors them into dst.
func (k *kernel) field(line reg.VecVirtual, from, to int, mask uint32, dst reg.VecVirtual, or bool) {
	moved := line
	if from != to {
		if moved = dst; or {
			moved = k.vec("scaled")
		}
	}
	switch {
	case from > to:
		k.VPSRLD(operand.U8(from-to), line, moved)
	case from < to:
		k.VPSLLD(operand.U8(to-from), line, moved)
	}
	c := k.constant(mask)
	switch {
	case !or:
		k.and(c, moved, dst)
	case k.lv.bits == 512:
		const orAnd = 0xf8 // dst | moved & mask
		k.VPTERNLOGD(operand.U8(orAnd), c, moved, dst)
	default:
		both := k.vec("scaled")
		k.VPAND(c, moved, both)
		k.VPOR(both, dst, dst)
	}
}

// lookUp replaces 4-bit codes by the entries of the format's table: unsigned (plus the offset), signed for matrix registers, or
// the signed weights to the scratch and their absolute values to k.w.
func (k *kernel) lookUp() {
	table, bias := k.vec("dot0"), k.f.offset
	if k.usesSign() || k.lv.amx {
		bias = 0
	}
	k.broadcastTable(k.table(k.f.table, bias), table)
	for g, w := range k.w {
		k.VPSHUFB(w, table, w)
		if k.usesSign() {
			k.VMOVDQU(w, k.scratch.Offset(32*g))
			k.VPABSB(w, w)
		}
	}
}

func (k *kernel) broadcastTable(t operand.Mem, dst reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VBROADCASTI32X4(t, dst)
		return
	}
	k.VBROADCASTI128(t, dst)
}

// split leaves the low nibbles of the codes in k.w and the high ones in k.hi.
func (k *kernel) split() {
	const low = 0x0f0f0f0f
	for g, w := range k.w {
		k.hi[g] = k.vec(fmt.Sprint("hi", g))
		k.VPSRLD(operand.U8(4), w, k.hi[g])
		k.and(k.constant(low), k.hi[g], k.hi[g])
		k.and(k.constant(low), w, w)
	}
}

// load, and, xor, zero choose the VEX or EVEX mnemonic.
func (k *kernel) load(src operand.Op, dst reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VMOVDQU32(src, dst)
		return
	}
	k.VMOVDQU(src, dst)
}

func (k *kernel) and(a, b operand.Op, dst reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VPANDD(a, b, dst)
		return
	}
	k.VPAND(a, b, dst)
}

func (k *kernel) xor(a, b operand.Op, dst reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VPXORD(a, b, dst)
		return
	}
	k.VPXOR(a, b, dst)
}

func (k *kernel) zero(v reg.VecVirtual) { k.xor(v, v, v) }

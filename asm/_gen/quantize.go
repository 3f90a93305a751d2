package main

import (
	"encoding/binary"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bit patterns of the largest magnitude of an activation block (quant/act.go).
const (
	actMinBits = 0x0f800000 // smaller blocks are zero
	actInfBits = 0x7f800000
	actNaNBits = 0x7fc00000
)

// words is 16 bytes of four 32-bit values.
func (k *kernel) words(name string, v ...uint32) operand.Mem {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return k.bytes(name, b)
}

// emitQuantize writes activation blocks; quant/act.go draws them.
func emitQuantize(k *kernel) {
	dst, step, x, n := k.param("dst"), k.param("dstStride"), k.param("x"), k.count()
	vectors := 2 * k.halves()
	v := func(i int) reg.VecVirtual { return k.partOf("x", i) }
	k.Label("block")
	for i := range vectors {
		k.VMOVUPS(mem(x, i*k.step()), v(i))
	}
	bits := k.maxBits(v, vectors)
	k.maxAbsAndInverse(bits)
	k.codes(dst, v, vectors)
	k.blockSums(dst)
	k.Label("next")
	k.ADDQ(step, dst)
	k.ADDQ(operand.I32(128), x)
	k.DECQ(n)
	k.JNE(operand.LabelRef("block"))
	k.JMP(operand.LabelRef("done"))
	k.specialBlock(dst, bits)
	k.JMP(operand.LabelRef("next"))
	k.Label("done")
}

// maxBits leaves the largest magnitude, as bits, in all lanes of the xmm register "max"; it goes to "special" when that is
// too small or not finite, with the bits in the returned register.
func (k *kernel) maxBits(v func(int) reg.VecVirtual, vectors int) reg.GPVirtual {
	mask, biggest, t := k.splat(signBit-1), k.vec("max"), k.vec("t")
	for i := range vectors {
		if i == 0 {
			k.VANDPS(mask, v(i), biggest)
			continue
		}
		k.VANDPS(mask, v(i), t)
		k.VPMAXUD(t, biggest, biggest)
	}
	if k.lv.bits == 512 {
		k.VEXTRACTI64X4(operand.U8(1), biggest, t.AsY())
		k.VPMAXUD(t.AsY(), biggest.AsY(), biggest.AsY())
	}
	k.VEXTRACTI128(operand.U8(1), biggest.AsY(), t.AsX())
	k.VPMAXUD(t.AsX(), biggest.AsX(), biggest.AsX())
	k.VPSHUFD(operand.U8(0x4e), biggest.AsX(), t.AsX())
	k.VPMAXUD(t.AsX(), biggest.AsX(), biggest.AsX())
	k.VPSHUFD(operand.U8(0xb1), biggest.AsX(), t.AsX())
	k.VPMAXUD(t.AsX(), biggest.AsX(), biggest.AsX())
	bits, above := k.GP32(), k.GP32()
	k.VMOVD(biggest.AsX(), bits)
	k.LEAL(operand.Mem{Base: bits.As64(), Disp: -actMinBits}, above)
	k.CMPL(above, operand.U32(actInfBits-actMinBits))
	k.JCC(operand.LabelRef("special"))
	return bits
}

// maxAbsAndInverse sets all lanes of "inv" to 127/max, and those of the xmm register "scale" to max/127.
func (k *kernel) maxAbsAndInverse(reg.GPVirtual) {
	biggest, inv, scale := k.vec("max"), k.vec("inv"), k.vec("scale")
	k.VMOVUPS(operand.Mem(k.float(127)), inv.AsX())
	k.VDIVPS(k.float(127), biggest.AsX(), scale.AsX())
	k.VDIVPS(biggest.AsX(), inv.AsX(), inv.AsX())
	k.VBROADCASTSS(inv.AsX(), inv)
}

// codes writes the 32 codes and leaves them in the ymm register "codes". VCVTPS2DQ rounds to nearest, ties to even.
func (k *kernel) codes(dst reg.Register, v func(int) reg.VecVirtual, vectors int) {
	inv, codes := k.vec("inv"), k.vec("codes")
	for i := range vectors {
		k.VMULPS(inv, v(i), v(i))
		k.VCVTPS2DQ(v(i), v(i))
	}
	if k.lv.bits == 512 {
		k.VPMOVDB(v(0), codes.AsX())
		k.VPMOVDB(v(1), k.vec("t").AsX())
		k.VINSERTI128(operand.U8(1), k.vec("t").AsX(), codes.AsY(), codes.AsY())
	} else {
		k.VPACKSSDW(v(1), v(0), v(0))
		k.VPACKSSDW(v(3), v(2), v(2))
		k.VPACKSSWB(v(2), v(0), v(0))
		order := make([]byte, 32) // the packs work on 128-bit halves: 0 8 16 24 4 12 20 28
		for i, d := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
			binary.LittleEndian.PutUint32(order[4*i:], d)
		}
		k.VMOVDQU(k.bytes("order", order), k.vec("t"))
		k.VPERMD(v(0), k.vec("t"), codes)
	}
	k.VMOVDQU(codes.AsY(), mem(dst, 0))
}

// blockSums writes the scale, the scaled sums and the negated sums of the codes.
func (k *kernel) blockSums(dst reg.Register) {
	sums, t, scale := k.vec("codes").AsY(), k.vec("t").AsY(), k.vec("scale").AsX()
	k.VMOVDQU(k.splat(0x01010101), t)
	k.VPMADDUBSW(sums, t, sums) // unsigned ones times signed codes
	k.VPMADDWD(k.splat(0x00010001), sums, sums)
	for _, shuffle := range []uint8{0x4e, 0xb1} {
		k.VPSHUFD(operand.U8(shuffle), sums, t)
		k.VPADDD(t, sums, sums)
	}
	lo, hi, all := k.vec("codes").AsX(), k.vec("t").AsX(), k.vec("max").AsX()
	k.VEXTRACTI128(operand.U8(1), sums, hi)
	k.VPADDD(hi, lo, all)
	// all lanes of each are equal: floats (1, all, lo, hi) times the scale; integers -(all, lo, hi, 8*all)
	order := k.vec("x-0").AsX()
	k.VPBLENDD(operand.U8(0b0100), lo, all, order)
	k.VPBLENDD(operand.U8(0b1000), hi, order, order)
	k.VCVTDQ2PS(order, order)
	k.VBLENDPS(operand.U8(0b0001), k.float(1), order, order)
	k.VMULPS(scale, order, order)
	k.VMOVUPS(order, mem(dst, actScale))
	k.VPBLENDD(operand.U8(0b0010), lo, all, all)
	k.VPBLENDD(operand.U8(0b0100), hi, all, all)
	k.VPSLLVD(k.words("shift8", 0, 0, 0, 3), all, all)
	k.VPXOR(lo, lo, lo)
	k.VPSUBD(all, lo, all)
	k.VMOVDQU(all, mem(dst, actNegSum))
}

// specialBlock writes a block of zeros, with NaN for the floats when the largest magnitude is not finite.
func (k *kernel) specialBlock(dst reg.Register, bits reg.GPVirtual) {
	k.Label("special")
	zero := k.vec("t").AsY()
	k.VPXOR(zero, zero, zero)
	k.VMOVDQU(zero, mem(dst, 0))
	k.VMOVDQU(zero, mem(dst, actScale))
	k.CMPL(bits, operand.U32(actInfBits))
	k.JCS(operand.LabelRef("next"))
	k.VMOVDQU(k.splat(actNaNBits), k.vec("t").AsX())
	k.VMOVDQU(k.vec("t").AsX(), mem(dst, actScale))
}

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// block emits one tile block: one part of 32 columns, or a head and 8 parts.
func (k *kernel) block() {
	f := k.f
	if !f.super {
		k.prefetch(k.part, f.tileBytes(), 8*f.tileBytes())
		k.onePart()
		k.ADDQ(operand.I32(f.tileBytes()), k.part)
		k.nextAct()
		return
	}
	k.head, k.sub = k.GP64(), k.GP64()
	k.MOVQ(k.part, k.head)
	k.LEAQ(mem(k.part, f.floatBytes()), k.sub)
	k.ADDQ(operand.I32(f.headBytes()), k.part)
	k.prefetch(k.head, f.headBytes(), f.tileBytes())
	if k.keepsFloats() {
		k.d = k.half16(k.head, 0, "d")
		if f.mins {
			k.dm = k.half16(k.head, 32, "dm")
		}
	}
	parts := k.GP64()
	k.MOVQ(operand.U32(8), parts)
	k.Label("part")
	k.prefetch(k.part, f.partBytes(), f.tileBytes())
	k.onePart()
	k.ADDQ(operand.I32(f.partBytes()), k.part)
	k.ADDQ(operand.U8(f.subBytes()), k.sub)
	k.nextAct()
	k.DECQ(parts)
	k.JNE(operand.LabelRef("part"))
}

func (k *kernel) nextAct() {
	k.ADDQ(k.stride, k.act)
}

// prefetch asks for size bytes at base of the tiles to come: near bytes ahead for the first cache, and 8 times as far for the second.
// One thread read 11.2 GB/s of Q4_K with both at one token instead of 10.0 with the first (Emerald Rapids); there the second brings
// nothing from 5 tokens on, while on Zen 4 passes over 5 to 12 tokens take 0.7 to 0.9 of the time with it. Kernels on matrix registers
// are for processors of the first kind.
func (k *kernel) prefetch(base reg.Register, size, near int) {
	for at := 0; at < size; at += 64 {
		k.PREFETCHT0(mem(base, near+at))
		if !k.lv.amx {
			k.PREFETCHT1(mem(base, 8*near+at))
		}
	}
}

// onePart multiplies 32 columns of 16 rows with all tokens.
func (k *kernel) onePart() {
	k.rows("rows", func() {
		k.explain("Unsigned codes of the part's 8 groups of 4 columns.")
		k.unpack()
		k.explain("Scales (and mins) of the part's rows.")
		k.factors()
		k.explain("Integer products, scale times activation scale, multiply-add; then mins.")
		if k.rolled() {
			k.tokenLoop()
			return
		}
		k.allTokens()
	})
}

// explain comments a stage in the first function of a file; the others have the same stages.
func (k *kernel) explain(stage string) {
	if k.m <= 1 {
		k.Comment(stage)
	}
}

// act addresses the activation block of a token at a byte offset.
type act func(disp int) operand.Mem

// allTokens adds the products of a part to the sums of all tokens (unrolled), in the order of law 1: for each factor one
// fused multiply-add of the integer dot product, then one of the min. The tokens' dot products are computed side by side: a
// product waits 5 cycles for the one before it in its sum, and with one token after the other M = 8 reached 0.45 of the
// VPDPBUSD peak.
func (k *kernel) allTokens() {
	var a []act
	for m := range k.m {
		a = append(a, func(disp int) operand.Mem { return mem(k.act, m*actBytes+disp) })
	}
	for h := range k.f.factors() {
		dots := k.dotsVNNI(a, h, 8/k.f.factors())
		for m, dot := range dots {
			k.addScaled(a[m], h, dot, k.sums[m])
		}
	}
}

// addScaled adds the dot product of half h, in a register or in memory, times its factor, and the half's min.
func (k *kernel) addScaled(a act, h int, dot operand.Op, sum reg.VecVirtual) {
	scaled := k.vec("scaled")
	k.mulByFloat(a(actScale), k.factor[h], scaled)
	float, ok := dot.(reg.VecVirtual)
	if !ok {
		float = k.vec("dot0")
	}
	k.VCVTDQ2PS(dot, float)
	k.VFMADD231PS(scaled, float, sum)
	if !k.f.mins {
		return
	}
	disp := actSum
	if k.f.halves {
		disp += 4 + 4*h
	}
	k.addMin(a(disp), k.min[h], sum)
}

// mulByFloat sets dst = v * the float at a.
func (k *kernel) mulByFloat(a operand.Mem, v, dst reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VMULPS_BCST(a, v, dst)
		return
	}
	k.VBROADCASTSS(a, dst)
	k.VMULPS(v, dst, dst)
}

// addMin adds min * the float at a (f16 mins) or subtracts it (sub-block mins).
func (k *kernel) addMin(a operand.Mem, min, sum reg.VecVirtual) {
	add := k.f.scale != scaleSub
	switch {
	case k.lv.bits == 512 && add:
		k.VFMADD231PS_BCST(a, min, sum)
	case k.lv.bits == 512:
		k.VFNMADD231PS_BCST(a, min, sum)
	default:
		t := k.vec("scaled")
		k.VBROADCASTSS(a, t)
		if add {
			k.VFMADD231PS(t, min, sum)
		} else {
			k.VFNMADD231PS(t, min, sum)
		}
	}
}

// factors finds the scales and mins of the part: k.factor and k.min, one vector for each half of 16 columns or one in all.
func (k *kernel) factors() {
	f := k.f
	k.factor, k.min = nil, nil
	switch f.scale {
	case scaleF16:
		k.factor = append(k.factor, k.half16(k.part, f.partBytes(), "factor0"))
		if f.mins {
			k.min = append(k.min, k.half16(k.part, f.partBytes()+32, "min0"))
		}
	case scaleE8M0:
		k.factor = append(k.factor, k.exponents())
	case scaleSub:
		k.subFactors()
	}
}

// subFactors multiplies the sub-block scales and mins of the part with those of the block.
func (k *kernel) subFactors() {
	d, dm := k.d, k.dm
	if !k.keepsFloats() {
		d = k.half16(k.head, 0, "scaled")
	}
	for h := range k.f.factors() {
		k.factor = append(k.factor, k.subScale(16*h, d, fmt.Sprint("factor", h), false))
	}
	if !k.f.mins {
		return
	}
	if !k.keepsFloats() {
		dm = k.half16(k.head, 32, "scaled")
	}
	first := 16 * k.f.factors()
	if k.f.packed {
		first = 0
	}
	for h := range k.f.factors() {
		k.min = append(k.min, k.subScale(first+16*h, dm, fmt.Sprint("min", h), k.f.packed))
	}
}

// half16 loads f16 values as f32.
func (k *kernel) half16(base reg.Register, disp int, role string) reg.VecVirtual {
	v := k.vec(role)
	k.VCVTPH2PS(k.inHalf(base, disp, 2), v)
	return v
}

// subScale is the byte of each row at sub+disp as a float, times d; of packed bytes it takes the high or the low nibble.
func (k *kernel) subScale(disp int, d reg.VecVirtual, role string, high bool) reg.VecVirtual {
	v := k.vec(role)
	if k.f.signed {
		k.VPMOVSXBD(k.inHalf(k.sub, disp, 1), v)
	} else {
		k.VPMOVZXBD(k.inHalf(k.sub, disp, 1), v)
	}
	switch {
	case high:
		k.VPSRLD(operand.U8(4), v, v)
	case k.f.packed:
		k.and(k.constant(15), v, v)
	}
	k.VCVTDQ2PS(v, v)
	k.VMULPS(d, v, v)
	return v
}

// exponents is 2^(e-128) of each row's exponent byte: (e-1)<<23 as float bits, and for e = 0 and 1, where that is no
// denormal, 0x00200000<<e. The larger of both as signed integers is right for every e.
func (k *kernel) exponents() reg.VecVirtual {
	e, shift, tiny := k.vec("factor0"), k.vec("scaled"), k.vec("dot0")
	k.VPMOVZXBD(k.inHalf(k.part, k.f.partBytes(), 1), e)
	k.VPMINUD(k.constant(1), e, shift)
	k.VPSUBD(k.constant(1), e, e)
	k.load(k.constant(0x00200000), tiny)
	k.VPSLLVD(shift, tiny, tiny)
	k.VPSLLD(operand.U8(23), e, e)
	k.VPMAXSD(tiny, e, e)
	return e
}

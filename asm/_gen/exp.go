package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Constants of tensor.Exp32.
const (
	expLog2E = 1.44269504088896341
	expLn2Hi = 0.693359375
	expLn2Lo = -2.12194440054690583e-4
	expRound = 12582912
	expMin   = -87.33
	expMax   = 88.72283
	expC2    = 0.5
	expC3    = 1.6666665459e-1
	expC4    = 4.1665795894e-2
	expC5    = 8.3334519073e-3
	expC6    = 1.3981999507e-3
	expC7    = 1.9875691500e-4
	expBias  = 23

	geluScale = -1.5957691216057308
	geluCubic = 0.044715

	signBit = 0x80000000
)

// Predicates of VCMPPS, quiet. Unordered and those with not are true for NaN, the others false.
const (
	cmpUnordered       = 3
	cmpNotLess         = 21
	cmpNotGreaterEqual = 25
	cmpGreaterEqual    = 29
	cmpGreater         = 30
)

// float is 64 bytes of memory with a repeated float.
func (k *kernel) float(v float32) operand.Mem { return k.splat(math.Float32bits(v)) }

// exp sets x to Exp32(x), in the order of operations of tensor.Exp32.
func (k *kernel) exp(x reg.VecVirtual, h int) {
	p, t := k.partOf("exp-p", h), k.partOf("exp-t", h)
	k.expBody(x, h)
	k.expEnds(x, p, t)
}

// expBody sets the p of exp to Exp32(x) for an x that neither underflows nor overflows; NaN stays.
func (k *kernel) expBody(x reg.VecVirtual, h int) {
	n, r, p, t := k.partOf("exp-n", h), k.partOf("exp-r", h), k.partOf("exp-p", h), k.partOf("exp-t", h)
	k.VMULPS(k.float(expLog2E), x, n)
	k.VADDPS(k.float(expRound), n, n)
	k.VSUBPS(k.float(expRound), n, n)
	k.VMULPS(k.float(expLn2Hi), n, t)
	k.VSUBPS(t, x, r)
	k.VMULPS(k.float(expLn2Lo), n, t)
	k.VSUBPS(t, r, r)
	k.VMULPS(k.float(expC7), r, p)
	k.VADDPS(k.float(expC6), p, p)
	for _, c := range []float32{expC5, expC4, expC3, expC2} {
		k.VMULPS(r, p, p)
		k.VADDPS(k.float(c), p, p)
	}
	k.VMULPS(r, r, t)
	k.VMULPS(t, p, p)
	k.VADDPS(r, p, p)
	k.VADDPS(k.float(1), p, p)
	k.VCVTTPS2DQ(n, n) // NaN becomes 2^31, of which the shift leaves nothing
	k.VPSLLD(operand.U8(expBias), n, n)
	k.VPADDD(n, p, p)
}

// expOfNegative is exp for x that are 0 or less, or NaN.
func (k *kernel) expOfNegative(x reg.VecVirtual, h int) {
	k.expBody(x, h)
	p := k.partOf("exp-p", h)
	if k.lv.bits == 512 {
		k.VCMPPS(operand.U8(cmpNotLess), k.float(expMin), x, reg.K1)
		k.VMOVAPS_Z(p, reg.K1, x)
		return
	}
	k.VCMPPS(operand.U8(cmpNotLess), k.float(expMin), x, x)
	k.VANDPS(x, p, x)
}

// expEnds sets x to p, or to 0 below the smallest argument, +Inf above the largest, and to x itself when that is NaN.
func (k *kernel) expEnds(x, p, t reg.VecVirtual) {
	inf := k.float(float32(math.Inf(1)))
	if k.lv.bits == 512 {
		k.VCMPPS(operand.U8(cmpGreaterEqual), k.float(expMin), x, reg.K1)
		k.VCMPPS(operand.U8(cmpGreater), k.float(expMax), x, reg.K2)
		k.VCMPPS(operand.U8(cmpUnordered), x, x, reg.K3)
		k.VMOVAPS_Z(p, reg.K1, p)
		k.VBLENDMPS(inf, p, reg.K2, p)
		k.VBLENDMPS(x, p, reg.K3, x)
		return
	}
	k.VCMPPS(operand.U8(cmpGreaterEqual), k.float(expMin), x, t)
	k.VANDPS(t, p, p)
	k.VCMPPS(operand.U8(cmpGreater), k.float(expMax), x, t)
	k.VBLENDVPS(t, inf, p, p)
	k.VCMPPS(operand.U8(cmpUnordered), x, x, t)
	k.VBLENDVPS(t, x, p, x)
}

// gate emits dst = g/(1+Exp32(arg(g))) * up.
func (k *kernel) gate(arg func(g, x reg.VecVirtual, h int)) {
	dst, gate, up, n := k.param("dst"), k.param("gate"), k.param("up"), k.count()
	k.loop(n, []reg.Register{dst, gate, up}, func() {
		k.eachHalf(func(h, at int) {
			g, x := k.partOf("g", h), k.partOf("x", h)
			k.VMOVUPS(mem(gate, at), g)
			arg(g, x, h)
			k.exp(x, h)
			k.VADDPS(k.float(1), x, x)
			k.VDIVPS(x, g, g)
			k.VMULPS(mem(up, at), g, g)
			k.VMOVUPS(g, mem(dst, at))
		})
	})
}

func emitSiLU(k *kernel) {
	k.gate(func(g, x reg.VecVirtual, _ int) { k.VXORPS(k.splat(signBit), g, x) })
}

func emitGELU(k *kernel) {
	k.gate(func(g, x reg.VecVirtual, _ int) {
		k.VMULPS(g, g, x)
		k.VMULPS(g, x, x)
		k.VMULPS(k.float(geluCubic), x, x)
		k.VADDPS(g, x, x)
		k.VMULPS(k.float(geluScale), x, x)
	})
}

// emitSoftcap is cap*(1-e)/(1+e) with e = Exp32(-2|x/cap|), and the sign of x: tensor.tanh32.
func emitSoftcap(k *kernel) {
	dst, limit, n := k.param("dst"), k.broadcast("cap"), k.count()
	k.loop(n, []reg.Register{dst}, func() {
		k.eachHalf(func(h, at int) {
			x, sign, y := k.partOf("x", h), k.partOf("sign", h), k.partOf("y", h)
			k.VMOVUPS(mem(dst, at), x)
			k.VDIVPS(limit, x, x)
			k.VANDPS(k.splat(signBit), x, sign)
			k.VANDPS(k.splat(signBit-1), x, x)
			k.VMULPS(k.float(-2), x, x)
			k.exp(x, h)
			one := k.partOf("one", h)
			k.VMOVUPS(k.float(1), one)
			k.VSUBPS(x, one, y)
			k.VADDPS(x, one, x)
			k.VDIVPS(x, y, y)
			k.VORPS(sign, y, y)
			k.VMULPS(limit, y, y)
			k.VMOVUPS(y, mem(dst, at))
		})
	})
}

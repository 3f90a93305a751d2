package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The trips of typical-p, of which top-p has the last one too.

var typicalScans = []op{
	{"Surprise", "adds w[i]*((x[i]-top)*inv) to lanes[i%4] where w[i] is above 0, for 128*n floats.",
		"(lanes *float64, x *float32, w *float64, n int, top float64, inv float64)", func(k *kernel) { emitSurprise(k, single) }},
	{"Surprise64", "is Surprise of float64.",
		"(lanes *float64, x *float64, w *float64, n int, top float64, inv float64)", func(k *kernel) { emitSurprise(k, double) }},
	{"Nearness", "sets keys[i] to -|logSum-(x[i]-top)*inv-entropy| for 128*n floats and returns the lowest finite one or 0.",
		"(keys *float64, x *float64, n int, top float64, inv float64, logSum float64, entropy float64) float64", emitNearness},
	{"Forbid", "sets logit[i] to -Inf and w[i] to 0 where keys[i] is not low or more, for 128*n floats.",
		"(logit *float64, w *float64, keys *float64, n int, low float64)", emitForbid},
}

// emitSurprise repeats sample.goSurprise, whose 4 lanes are one vector of 256 bits at every level.
func emitSurprise(k *kernel, size width) {
	lanes, x, w := k.param("lanes"), k.param("x"), k.param("w")
	top, inv, zero, sum, v, weight, above := k.YMM(), k.YMM(), k.YMM(), k.YMM(), k.YMM(), k.YMM(), k.YMM()
	k.VBROADCASTSD(k.paramMem("top"), top)
	k.VBROADCASTSD(k.paramMem("inv"), inv)
	k.VXORPD(zero, zero, zero)
	n, left := k.count(), k.GP64()
	k.VMOVUPD(mem(lanes, 0), sum)
	k.Label("block")
	k.MOVQ(operand.U32(scanBlock/laneCount), left)
	k.Label("lanes")
	const each = 4
	for i := range laneCount / each {
		if size == single {
			k.VCVTPS2PD(mem(x, i*each*int(size)), v)
		} else {
			k.VMOVUPD(mem(x, i*each*int(size)), v)
		}
		k.VMOVUPD(mem(w, i*each*int(double)), weight)
		k.VSUBPD(top, v, v)
		k.VMULPD(inv, v, v)
		k.VMULPD(v, weight, v)
		k.VCMPPD(operand.U8(cmpGreater), zero, weight, above)
		k.VANDPD(above, v, v)
		k.VADDPD(v, sum, sum)
	}
	k.ADDQ(operand.I32(int(size)*laneCount), x)
	k.SUBQ(operand.I8(-8*laneCount), w)
	k.DECQ(left)
	k.JNE(operand.LabelRef("lanes"))
	k.DECQ(n)
	k.JNE(operand.LabelRef("block"))
	k.VMOVUPD(sum, mem(lanes, 0))
	k.Label("done")
}

// emitNearness repeats sample.goNearness.
func emitNearness(k *kernel) {
	keys, x := k.param("keys"), k.param("x")
	top, inv, logSum, entropy, least, farthest := k.vec("top"), k.vec("inv"), k.vec("logSum"), k.vec("entropy"), k.vec("least"), k.vec("farthest")
	v, finite := k.vec("v"), k.vec("finite")
	k.VBROADCASTSD(k.paramMem("top"), top)
	k.VBROADCASTSD(k.paramMem("inv"), inv)
	k.VBROADCASTSD(k.paramMem("logSum"), logSum)
	k.VBROADCASTSD(k.paramMem("entropy"), entropy)
	k.VMOVUPD(k.double(math.Inf(-1)), least)
	k.VXORPD(farthest.AsY(), farthest.AsY(), farthest.AsY())
	n, left := k.count(), k.GP64()
	k.Label("block")
	k.MOVQ(operand.U32(scanBlock/laneCount), left)
	k.Label("lanes")
	for at := 0; at < 8*laneCount; at += k.step() {
		k.VMOVUPD(mem(x, at), v)
		k.VSUBPD(top, v, v)
		k.VMULPD(inv, v, v)
		k.VSUBPD(v, logSum, v)
		k.VSUBPD(entropy, v, v)
		k.VORPD(k.splat64(1<<63), v, v)
		k.VMOVUPD(v, mem(keys, at))
		if k.lv.bits == 512 {
			k.VCMPPD(operand.U8(cmpGreater), least, v, reg.K1)
			k.VMINPD(v, farthest, reg.K1, farthest)
			continue
		}
		k.VCMPPD(operand.U8(cmpGreater), least, v, finite)
		k.VANDPD(finite, v, v)
		k.VMINPD(v, farthest, farthest)
	}
	k.SUBQ(operand.I8(-8*laneCount), x)
	k.SUBQ(operand.I8(-8*laneCount), keys)
	k.DECQ(left)
	k.JNE(operand.LabelRef("lanes"))
	k.DECQ(n)
	k.JNE(operand.LabelRef("block"))
	k.Label("done")
	k.foldHalves(farthest, v, func(a, b operand.Op) { k.VMINPD(a, b, b) })
	k.VPERMILPD(operand.U8(1), farthest.AsX(), v.AsX())
	k.VMINPD(v.AsX(), farthest.AsX(), farthest.AsX())
	result, err := k.ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	k.VMOVSD(farthest.AsX(), result.Addr) // Store would take an instruction of SSE2
}

// emitForbid repeats the loop of sample's forbidden.
func emitForbid(k *kernel) {
	logit, w, keys := k.param("logit"), k.param("w"), k.param("keys")
	low, least, zero, v, keep := k.vec("low"), k.vec("least"), k.vec("zero"), k.vec("v"), k.vec("keep")
	k.VBROADCASTSD(k.paramMem("low"), low)
	k.VMOVUPD(k.double(math.Inf(-1)), least)
	k.VXORPD(zero.AsY(), zero.AsY(), zero.AsY())
	n, left := k.count(), k.GP64()
	k.Label("block")
	k.MOVQ(operand.U32(scanBlock/laneCount), left)
	k.Label("lanes")
	for at := 0; at < 8*laneCount; at += k.step() {
		k.VMOVUPD(mem(keys, at), v)
		if k.lv.bits == 512 {
			k.VCMPPD(operand.U8(cmpNotGreaterEqual), low, v, reg.K1)
			k.VMOVUPD(least, reg.K1, mem(logit, at))
			k.VMOVUPD(zero, reg.K1, mem(w, at))
			continue
		}
		k.VCMPPD(operand.U8(cmpGreaterEqual), low, v, keep)
		k.VBLENDVPD(keep, mem(logit, at), least, v)
		k.VMOVUPD(v, mem(logit, at))
		k.VANDPD(mem(w, at), keep, v)
		k.VMOVUPD(v, mem(w, at))
	}
	for _, p := range []reg.Register{logit, w, keys} {
		k.SUBQ(operand.I8(-8*laneCount), p)
	}
	k.DECQ(left)
	k.JNE(operand.LabelRef("lanes"))
	k.DECQ(n)
	k.JNE(operand.LabelRef("block"))
	k.Label("done")
}

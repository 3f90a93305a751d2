package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Kernels that measure the machine: the rate of integer products without memory, and of reads without arithmetic.

// peakSums is the number of independent sums, enough to hide the latency of a product.
const peakSums = 12

// peakMACs is the number of multiply-adds of a round of Peak.
func peakMACs(lv *level) int {
	if lv.amx {
		return peakMatrices * 16 * 16 * 64
	}
	return peakSums * lv.bits / 8
}

// emitPeak writes rounds of products, each added to one of peakSums sums, in the instructions of the level's dot products.
func emitPeak(s *source, lv *level) {
	k := &kernel{source: s, lv: lv, f: &format{}, roles: map[string]reg.VecVirtual{}, consts: map[uint32]reg.VecVirtual{}}
	k.Function("Peak")
	k.Attributes(attr.NOSPLIT)
	k.SignatureExpr("func(rounds int)")
	rounds := k.param("rounds")
	x, w := k.vec("x"), k.vec("w")
	k.zero(x)
	k.zero(w)
	for i := range peakSums {
		k.zero(k.vec(fmt.Sprint("sum", i)))
	}
	k.TESTQ(rounds, rounds)
	k.JE(operand.LabelRef("done"))
	k.Label("round")
	for i := range peakSums {
		sum := k.vec(fmt.Sprint("sum", i))
		switch {
		case lv.vnni && lv.bits == 512:
			k.VPDPBUSD(x, w, sum)
		case lv.vnni:
			k.vexDot(x, w, sum)
		default:
			k.VPMADDUBSW(x, w, k.vec("product"))
			k.VPADDW(k.vec("product"), sum, sum)
		}
	}
	k.DECQ(rounds)
	k.JNE(operand.LabelRef("round"))
	k.Label("done")
	k.VZEROUPPER()
	k.RET()
}

// emitRead writes a loop that loads 64-byte lines, four at a time, and prefetches as dot products do.
func emitRead(s *source, lv *level) {
	const linesAtOnce, lineBytes, ahead = 4, 64, 2304
	k := &kernel{source: s, lv: lv, f: &format{}, roles: map[string]reg.VecVirtual{}}
	k.Function("Read")
	k.Attributes(attr.NOSPLIT)
	k.SignatureExpr("func(src *byte, nLines int)")
	src, n := k.param("src"), k.param("nLines")
	line := func(i int) {
		for at := 0; at < lineBytes; at += lv.bits / 8 {
			k.load(mem(src, i*lineBytes+at), k.vec(fmt.Sprint("line", i)))
		}
	}
	k.SUBQ(operand.U8(linesAtOnce), n)
	k.JL(operand.LabelRef("rest"))
	k.Label("lines")
	for i := range linesAtOnce {
		k.PREFETCHT0(mem(src, ahead+i*lineBytes))
		line(i)
	}
	k.ADDQ(operand.I32(linesAtOnce*lineBytes), src)
	k.SUBQ(operand.U8(linesAtOnce), n)
	k.JGE(operand.LabelRef("lines"))
	k.Label("rest")
	k.ADDQ(operand.U8(linesAtOnce), n)
	k.JE(operand.LabelRef("done"))
	k.Label("line")
	line(0)
	k.ADDQ(operand.U8(lineBytes), src)
	k.DECQ(n)
	k.JNE(operand.LabelRef("line"))
	k.Label("done")
	k.VZEROUPPER()
	k.RET()
}

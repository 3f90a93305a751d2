package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AMX has registers of 16 rows of 64 bytes, called tiles in its manuals and matrices here, where tiles are 16 rows of weights.
//
// At the level with AMX a kernel is one stream over all parts of all its tiles, in three stages a part: unpack writes the
// signed codes to a slot of a ring on the stack, multiply has the processor load them and the tokens' codes into matrix
// registers and stores the integer products to the same slot, and scale does with them what other levels do with theirs.
// Stages work on different parts at a time: a matrix load waits until stores before it are in the cache, and stores leave
// in order, behind the product that was stored last. With one part of lead a part of Q4_K took 44 ns, with two 22, with
// three 16; the products of a part are stored in the next round, when they are done.
const (
	unpackLead = 3 // parts that unpack is ahead of multiply
	scaleLag   = 2 // parts that scale is behind multiply
	ringSlots  = unpackLead + scaleLag
)

// matrixKernel emits the dot product of a format for fewestOnMatrix to wideTokens tokens on matrix registers. One function serves
// all: the configuration has as many rows, and scale jumps to the last token and works down to the first.
type matrixKernel struct {
	*kernel
	round   reg.Register // rounds left; the stages of a round are those of parts that exist
	line    reg.Register // 64, the stride of the rows of all matrices
	unpackT reg.Register // slot that unpack writes
	slot    reg.Register // slot that multiply works on
	scaleT  reg.Register // slot that scale reads
	dotAct  reg.Register // activations of the part in multiply; scale has act
	floats  reg.Register // codes of the part in scale, behind which its scales lie (32 columns)

	parts, partsAndLag   operand.Mem // of all tiles, and scaleLag more
	tileParts            operand.Mem // of one tile
	dotLeft, scaleLeft   operand.Mem // parts of the tile that multiply, scale have still to do
	unpackBlk, scaleBlk  operand.Mem // parts of the tile block that unpack, scale have still to do (256 columns)
	ring, ringEnd, dotsT operand.Mem // first slot, end of the last, where the last products go
}

// direct reports whether the tile's bytes are the signed codes as a matrix register takes them.
func (k *matrixKernel) direct() bool { return k.f.planes[0].kind == bytes8 }

// lead is the number of parts that unpack is ahead.
func (k *matrixKernel) lead() int {
	if k.direct() {
		return 0
	}
	return unpackLead
}

// codeBytes is where the products lie in a slot, behind the codes.
func (k *matrixKernel) codeBytes() int {
	if k.direct() {
		return 0
	}
	return 512
}

// slotBytes has a line more than codes and products, lest a load waits for stores to an address a multiple of 4096 away.
func (k *matrixKernel) slotBytes() int { return k.codeBytes() + 64*wideTokens + 64 }

// Matrix registers. Peak has peakMatrices registers of products, a kernel one.
const (
	regDots    = 0
	regTokens  = 4
	regWeights = 5
)

// matrixConfig is the operand of LDTILECFG: palette, at 16 the bytes of a row of each register, at 48 its rows.
func matrixConfig(m, columns int) []byte {
	b := make([]byte, 64)
	b[0] = 1
	set := func(r, rows, rowBytes int) {
		binary.LittleEndian.PutUint16(b[16+2*r:], uint16(rowBytes))
		b[48+r] = byte(rows)
	}
	for i := range peakMatrices {
		set(regDots+i, m, 64)
	}
	set(regTokens, m, columns)
	set(regWeights, columns/4, 64)
	return b
}

func emitMatrix(c *source, lv *level, f *format) {
	k := &matrixKernel{kernel: &kernel{source: c, lv: lv, f: f, m: wideTokens, roles: map[string]reg.VecVirtual{}, consts: map[uint32]reg.VecVirtual{}}}
	k.Function(f.rolled())
	k.SignatureExpr(fmt.Sprintf(signature, ", m int"))
	k.prepare()
	k.Label("round")
	k.Comment("Products of the last round's part; then a part's matrices.")
	k.multiply()
	if !k.direct() {
		k.Comment("Signed codes of a part for later rounds.")
		k.unpackAhead()
	}
	k.Comment("Scale times activation scale, multiply-add; then mins.")
	k.scaleBehind()
	k.DECQ(k.round)
	k.JNE(operand.LabelRef("round"))
	k.matrix("TILERELEASE")
	k.Label("done")
	k.VZEROUPPER()
	k.RET()
}

// local is eight bytes of the frame.
func (k *matrixKernel) local(v reg.Register) operand.Mem {
	m := k.AllocLocal(8)
	if v != nil {
		k.MOVQ(v, m)
	}
	return m
}

func (k *matrixKernel) prepare() {
	for range k.m {
		k.sums = append(k.sums, k.ZMM())
	}
	k.loadConstants()
	k.zeroSums()
	k.dst = k.param("dst")
	k.round = k.param("nTiles")
	k.TESTQ(k.round, k.round)
	k.JE(operand.LabelRef("done"))
	perTile := k.param("nBlocks")
	if k.f.super {
		k.SHLQ(operand.U8(3), perTile)
	}
	k.TESTQ(perTile, perTile)
	k.JNE(operand.LabelRef("some"))
	k.Label("nothing")
	k.storeTile("zero")
	k.DECQ(k.round)
	k.JNE(operand.LabelRef("nothing"))
	k.JMP(operand.LabelRef("done"))
	k.Label("some")
	k.tileParts, k.dotLeft, k.scaleLeft = k.local(perTile), k.local(perTile), k.local(perTile)
	k.IMULQ(perTile, k.round)
	k.parts = k.local(k.round)
	k.ADDQ(operand.U8(scaleLag), k.round)
	k.partsAndLag = k.local(k.round)
	k.ADDQ(operand.U8(k.lead()), k.round)
	k.prepareRing()
	k.part = k.param("tiles")
	k.act, k.dotAct = k.param("act"), k.param("act")
	if !k.f.super {
		k.floats = k.param("tiles")
		return
	}
	k.unpackBlk, k.scaleBlk = k.local(nil), k.local(nil)
	k.MOVQ(operand.U32(8), k.unpackBlk)
	k.MOVQ(operand.U32(8), k.scaleBlk)
	k.sub = k.GP64()
	k.MOVQ(k.part, k.sub)
	k.nextHead()
	k.ADDQ(operand.I32(k.f.headBytes()), k.part)
}

// prepareRing sets the slots and configures the matrix registers.
func (k *matrixKernel) prepareRing() {
	var configs []byte
	for m := fewestOnMatrix; m <= wideTokens; m++ {
		configs = append(configs, matrixConfig(m, 32)...)
	}
	t, m := k.GP64(), k.param("m")
	k.LEAQ(k.bytes("configs", configs), t)
	k.SHLQ(operand.U8(6), m)
	k.LEAQ(operand.Mem{Base: t, Index: m, Scale: 1, Disp: -64 * fewestOnMatrix}, t)
	k.matrix("LDTILECFG", t)
	k.LEAQ(k.AllocLocal(ringSlots*k.slotBytes()+64), t)
	k.ADDQ(operand.U8(63), t)
	k.ANDQ(operand.I8(-64), t)
	k.slot, k.unpackT, k.scaleT = k.GP64(), k.GP64(), k.GP64()
	k.MOVQ(t, k.slot)
	k.MOVQ(t, k.unpackT)
	k.MOVQ(t, k.scaleT)
	k.ring = k.local(t)
	end := k.GP64()
	k.LEAQ(mem(t, ringSlots*k.slotBytes()), end)
	k.ringEnd = k.local(end)
	k.LEAQ(mem(t, k.codeBytes()), end)
	k.dotsT = k.local(end)
	k.line = k.GP64()
	k.MOVQ(operand.U32(64), k.line)
}

// advance moves on to the next slot.
func (k *matrixKernel) advance(slot reg.Register) {
	k.ADDQ(operand.I32(k.slotBytes()), slot)
	k.CMPQ(slot, k.ringEnd)
	k.CMOVQEQ(k.ring, slot)
}

// multiply stores the last products and starts those of the next part.
func (k *matrixKernel) multiply() {
	dots := k.GP64()
	k.MOVQ(k.dotsT, dots)
	k.matrix("TILESTORED", dots, k.line, operand.U8(regDots))
	k.CMPQ(k.round, operand.U8(scaleLag))
	k.JLE(operand.LabelRef("multiplied"))
	k.CMPQ(k.round, k.partsAndLag)
	k.JGT(operand.LabelRef("multiplied"))
	codes := k.slot
	if k.direct() {
		codes = k.part
	}
	k.matrix("TILEZERO", operand.U8(regDots))
	k.matrix("TILELOADD", k.dotAct, k.line, operand.U8(regTokens))
	k.matrix("TILELOADD", codes, k.line, operand.U8(regWeights))
	k.matrix("TDPBSSD", operand.U8(regWeights), operand.U8(regTokens), operand.U8(regDots))
	if k.direct() {
		k.prefetch(k.part, k.f.tileBytes(), 8*k.f.tileBytes())
		k.ADDQ(operand.I32(k.f.tileBytes()), k.part)
	}
	k.LEAQ(mem(k.slot, k.codeBytes()), dots)
	k.MOVQ(dots, k.dotsT)
	k.advance(k.slot)
	k.nextOf(k.dotAct, k.dotLeft, "multiplied", nil)
	k.Label("multiplied")
}

// nextOf moves activations on by a part, and back to the first after the last part of a tile, when then runs too.
func (k *matrixKernel) nextOf(act reg.Register, left operand.Mem, label string, then func()) {
	stride := k.paramMem("actStride")
	k.ADDQ(stride, act)
	k.DECQ(left)
	k.JNE(operand.LabelRef(label))
	first := k.GP64()
	k.MOVQ(k.tileParts, first)
	k.MOVQ(first, left)
	k.Load(k.Param("act"), act)
	if then != nil {
		then()
	}
}

// unpackAhead writes the signed codes of a part to a slot.
func (k *matrixKernel) unpackAhead() {
	k.CMPQ(k.round, operand.U8(unpackLead+scaleLag))
	k.JLE(operand.LabelRef("unpacked"))
	if k.f.super {
		k.prefetch(k.part, k.f.partBytes(), k.f.tileBytes())
	} else {
		k.prefetch(k.part, k.f.tileBytes(), 8*k.f.tileBytes())
	}
	k.unpack()
	for g, w := range k.w {
		if k.f.offset > 0 && k.f.table == nil {
			k.VPSUBB(k.constant(uint32(k.f.offset)*0x01010101), w, w)
		}
		k.VMOVDQA32(w, mem(k.unpackT, 64*g))
	}
	k.advance(k.unpackT)
	if !k.f.super {
		k.ADDQ(operand.I32(k.f.tileBytes()), k.part)
		k.Label("unpacked")
		return
	}
	k.ADDQ(operand.I32(k.f.partBytes()), k.part)
	k.DECQ(k.unpackBlk)
	k.JNE(operand.LabelRef("unpacked"))
	k.MOVQ(operand.U32(8), k.unpackBlk)
	k.prefetch(k.part, k.f.headBytes(), k.f.tileBytes())
	k.ADDQ(operand.I32(k.f.headBytes()), k.part)
	k.Label("unpacked")
}

// nextHead loads the scales of the tile block at sub and moves sub to the first sub-block scales.
func (k *matrixKernel) nextHead() {
	k.d = k.half16(k.sub, 0, "d")
	if k.f.mins {
		k.dm = k.half16(k.sub, 32, "dm")
	}
	k.ADDQ(operand.I32(k.f.floatBytes()), k.sub)
}

// scaleBehind adds the products of a part to the sums of all tokens, and stores the sums after the last part of a tile.
func (k *matrixKernel) scaleBehind() {
	k.CMPQ(k.round, k.parts)
	k.JGT(operand.LabelRef("scaled"))
	part := k.part
	k.part = k.floats
	k.kernel.factors()
	k.part = part
	k.fromLast("add", func(m int) {
		a := func(disp int) operand.Mem { return mem(k.act, m*actBytes+disp) }
		k.addScaled(a, 0, mem(k.scaleT, k.codeBytes()+64*m), k.sums[m])
	})
	k.advance(k.scaleT)
	if !k.f.super {
		k.ADDQ(operand.I32(k.f.tileBytes()), k.floats)
		k.nextOf(k.act, k.scaleLeft, "scaled", k.endTile)
		k.Label("scaled")
		return
	}
	k.ADDQ(operand.U8(k.f.subBytes()), k.sub)
	k.DECQ(k.scaleBlk)
	k.JNE(operand.LabelRef("sameHead"))
	k.MOVQ(operand.U32(8), k.scaleBlk)
	k.ADDQ(operand.I32(8*k.f.partBytes()), k.sub)
	k.CMPQ(k.round, operand.U8(1))
	k.JE(operand.LabelRef("sameHead"))
	k.nextHead()
	k.Label("sameHead")
	k.nextOf(k.act, k.scaleLeft, "scaled", k.endTile)
	k.Label("scaled")
}

// endTile stores the sums of a tile and begins the next.
func (k *matrixKernel) endTile() {
	k.storeTile("store")
	k.zeroSums()
}

func (k *matrixKernel) storeTile(label string) {
	step, row := k.param("dstStride"), k.param("m")
	k.SHLQ(operand.U8(2), step)
	k.DECQ(row)
	k.IMULQ(step, row)
	k.ADDQ(k.dst, row)
	k.fromLast(label, func(m int) {
		k.VMOVUPS(k.sums[m], mem(row, 0))
		if m > 0 {
			k.SUBQ(step, row)
		}
	})
	k.ADDQ(operand.U8(64), k.dst)
}

// fromLast runs body for the last token down to the first. All of a call branch alike.
func (k *matrixKernel) fromLast(label string, body func(m int)) {
	entry := func(m int) operand.LabelRef { return operand.LabelRef(fmt.Sprint(label, m)) }
	tokens := k.paramMem("m")
	for m := wideTokens; m > fewestOnMatrix; m-- {
		k.CMPQ(tokens, operand.U8(m))
		k.JE(entry(m))
	}
	k.JMP(entry(fewestOnMatrix))
	for m := wideTokens; m > 0; m-- {
		if m >= fewestOnMatrix {
			k.Label(string(entry(m)))
		}
		body(m - 1)
	}
}

// emitMatrixPeak writes rounds of products of full matrix registers.
func emitMatrixPeak(s *source, lv *level) {
	k := &matrixKernel{kernel: &kernel{source: s, lv: lv, f: &format{}, roles: map[string]reg.VecVirtual{}}}
	k.Function("Peak")
	k.Attributes(attr.NOSPLIT)
	k.SignatureExpr("func(rounds int)")
	rounds, t := k.param("rounds"), k.GP64()
	k.TESTQ(rounds, rounds)
	k.JE(operand.LabelRef("done"))
	k.LEAQ(k.bytes("config", matrixConfig(16, 64)), t)
	k.matrix("LDTILECFG", t)
	k.Label("round")
	for i := range peakMatrices {
		k.matrix("TDPBSSD", operand.U8(regWeights), operand.U8(regTokens), operand.U8(regDots+i))
	}
	k.DECQ(rounds)
	k.JNE(operand.LabelRef("round"))
	k.matrix("TILERELEASE")
	k.Label("done")
	k.RET()
}

// peakMatrices is the number of independent sums: a product takes 52 cycles and 16 until the next can start.
const peakMatrices = 4

package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Attention over float16 or float32 keys and values. A key block is (dim, 16) and a value block (16, dim), 16 positions each; queries
// of one KV head share every load and conversion. Products are rounded before they are added, in one order.

// queryStride is the bytes from one dimension to the next of the queries: 8 floats, one for each query. Keys in float16 move on
// by as much.
const queryStride = 32

// kvType is the type of stored keys and values.
type kvType struct {
	suffix string // of function names
	goType string
	shift  uint8 // log2 of the bytes
}

var (
	kvHalf   = kvType{"", "uint16", 1}
	kvSingle = kvType{"F32", "float32", 2}
)

func (t kvType) scoreSignature() string {
	return fmt.Sprintf("(dst *float32, q *float32, k *%s, blocks *int32, nBlocks int, nStored int, blockStride int, dim int)", t.goType)
}

func (t kvType) addRowsSignature() string {
	return fmt.Sprintf("(dst *float32, dstStride int, e *float32, eStep int, lane int, v *%s, ahead *%s, vStride int, nRows int, n int)", t.goType, t.goType)
}

// load emits the load of the vector of half h, of 16 values at an address, as floats.
func (t kvType) load(k *kernel, m operand.Mem, h int, dst reg.VecVirtual) {
	m.Disp += h * k.step() / 4 << t.shift
	if t == kvSingle {
		k.VMOVUPS(m, dst)
		return
	}
	k.VCVTPH2PS(m, dst)
}

// maxQueries is the number of queries whose sums fit the registers beside a block's keys.
func maxQueries(lv *level) int {
	if lv.bits == 512 {
		return 8
	}
	return 6
}

// attendOps are the kernels for each number of queries.
func attendOps(lv *level) []op {
	var out []op
	for _, t := range []kvType{kvHalf, kvSingle} {
		for n := 1; n <= maxQueries(lv); n++ {
			out = append(out, op{fmt.Sprintf("Score%sx%d", t.suffix, n),
				"sets dst[(b*N+i)*16+lane], for its N queries i and nBlocks blocks b, to the sum over d of q[8*d+i]*key; nStored blocks may be requested ahead.",
				t.scoreSignature(), func(k *kernel) { k.score(n, t) }})
		}
		for n := 1; n <= maxQueries(lv); n++ {
			out = append(out, op{fmt.Sprintf("AddRows%sx%d", t.suffix, n),
				"adds e*v[r*vStride+d] to dst[i*dstStride+d], for its queries i, r < nRows in order, 16*n columns d, and requests the same places of ahead. The first row is that of a lane; the e of a query are 16 lanes, those of the next query follow, and the next 16 rows' are eStep floats on.",
				t.addRowsSignature(), func(k *kernel) { k.addRows(n, t) }})
		}
	}
	return append(out,
		op{"Halves", "converts 16*n halves to floats.", "(dst *float32, src *uint16, n int)", emitHalves},
		op{"ToHalves", "rounds 16*n floats to halves, ties to even.", "(dst *uint16, src *float32, n int)", emitToHalves},
		op{"DecodeKeys8", "decodes a block of 8-bit keys, (dim, 16), whose scales are (dim/32, 16) float16.",
			"(dst *float32, codes *int8, scales *uint16, dim int)", emitDecodeKeys8},
		op{"DecodeValues8", "decodes a block of 8-bit values, (16, dim), whose scales are (dim/32, 16) float16; dim is a multiple of 16.",
			"(dst *float32, codes *int8, scales *uint16, dim int)", emitDecodeValues8})
}

// atOnce is the number of key blocks, or runs of 16 columns of values, worked on side by side, so that a few queries have
// enough independent sums to hide the latency of an addition (4 cycles, two a cycle).
func (k *kernel) atOnce(queries int) int {
	switch sums := queries * k.halves(); {
	case sums == 1:
		return 4
	case sums <= 4:
		return 2
	}
	return 1
}

// inGroups emits body for runs of the given size while so many are left of the count, then for runs of half the size, down
// to 1. It falls through to "done".
func (k *kernel) inGroups(size int, count operand.Op, body func(size int)) {
	for ; size > 0; size /= 2 {
		loop, next := fmt.Sprint("group", size), fmt.Sprint("group", size/2)
		if size == 1 {
			next = "done"
		}
		k.Label(loop)
		k.CMPQ(count, operand.U8(uint8(size)))
		k.JL(operand.LabelRef(next))
		body(size)
		k.SUBQ(operand.U8(uint8(size)), count)
		k.JMP(operand.LabelRef(loop))
	}
	k.Label("done")
}

// score emits the scores of n queries.
func (k *kernel) score(n int, t kvType) {
	dst, blocks, stored, size := k.param("dst"), k.param("blocks"), k.param("nStored"), k.param("dim")
	k.SHLQ(operand.U8(5), size) // counts in the bytes of a dimension's queries
	k.TESTQ(size, size)
	k.JE(operand.LabelRef("done"))
	k.inGroups(k.atOnce(n), k.paramMem("nBlocks"), func(group int) {
		k.scoreBlocks(n, group, scoreRegisters{dst, blocks, stored, size}, t)
		k.SUBQ(operand.U8(uint8(group)), stored)
		k.ADDQ(operand.U8(uint8(4*group)), blocks)
		k.ADDQ(operand.I32(int32(64*group*n)), dst)
	})
}

// scoreRegisters has in stored the number of blocks from blocks on that may be requested.
type scoreRegisters struct{ dst, blocks, stored, size reg.Register }

// scoreBlocks emits the sums of n queries over some blocks. One register moves through the queries; those of the keys hold
// the distance from it, so that no product needs an index.
func (k *kernel) scoreBlocks(n, group int, r scoreRegisters, t kvType) {
	at, end := k.GP64(), k.GP64()
	k.Load(k.Param("q"), at)
	key := func(b, from int) reg.Register {
		p := k.GP64()
		k.MOVLQSX(mem(r.blocks, 4*from), p)
		k.IMULQ(k.paramMem("blockStride"), p)
		k.SHLQ(operand.U8(t.shift), p)
		k.ADDQ(k.paramMem("k"), p)
		for range t.shift {
			k.SUBQ(at, p)
		}
		return p
	}
	var keys, next []reg.Register
	for b := range group {
		keys = append(keys, key(b, b))
	}
	label := fmt.Sprint("dim", group)
	if t == kvHalf {
		for _, p := range keys { // the last blocks request themselves
			next = append(next, k.GP64())
			k.MOVQ(p, next[len(next)-1])
		}
		for b := range group {
			k.CMPQ(r.stored, operand.U8(uint8(group+b+1)))
			k.JL(operand.LabelRef(label + "start"))
			k.MOVQ(key(b, group+b), next[b])
		}
	}
	k.Label(label + "start")
	k.LEAQ(operand.Mem{Base: at, Index: r.size, Scale: 1}, end)
	sum := func(i, b, h int) reg.VecVirtual { return k.partOf(fmt.Sprint("sum", i*group+b), h) }
	for i := range n * group {
		k.eachHalf(func(h, _ int) {
			s := sum(i/group, i%group, h)
			k.VXORPS(s, s, s)
		})
	}
	k.Label(label)
	for b, p := range keys {
		k.eachHalf(func(h, _ int) {
			t.load(k, operand.Mem{Base: p, Index: at, Scale: t.shift}, h, k.partOf(fmt.Sprint("key", b), h))
		})
	}
	for _, p := range next {
		k.PREFETCHT0(operand.Mem{Base: p, Index: at, Scale: t.shift})
	}
	for i := range n {
		for b := range group {
			k.addProducts(mem(at, 4*i), b == 0, fmt.Sprint("key", b), func(h int) reg.VecVirtual { return sum(i, b, h) })
		}
	}
	k.ADDQ(operand.U8(queryStride), at)
	k.CMPQ(at, end)
	k.JNE(operand.LabelRef(label))
	for i := range n {
		for b := range group {
			k.eachHalf(func(h, at int) { k.VMOVUPS(sum(i, b, h), mem(r.dst, 64*(b*n+i)+at)) })
		}
	}
}

// addProducts adds the float at m times the vectors of a role to sums. load says that the float is not in its register yet.
func (k *kernel) addProducts(m operand.Mem, load bool, role string, sum func(h int) reg.VecVirtual) {
	t := k.vec("product")
	if k.lv.bits == 512 {
		k.VMULPS_BCST(m, k.partOf(role, 0), t)
		k.VADDPS(t, sum(0), sum(0))
		return
	}
	factor := k.vec("factor")
	if load {
		k.VBROADCASTSS(m, factor)
	}
	k.eachHalf(func(h, _ int) {
		k.VMULPS(k.partOf(role, h), factor, t)
		k.VADDPS(t, sum(h), sum(h))
	})
}

// addRows emits the weighted sum of rows for n queries: some columns stay in registers over all rows.
func (k *kernel) addRows(n int, t kvType) {
	r := rowRegisters{dst: k.param("dst"), step: k.param("dstStride"), rowStep: k.param("vStride"), ahead: k.param("ahead"), e: k.param("e"), eStep: k.param("eStep")}
	k.SHLQ(operand.U8(2), r.step)
	k.SHLQ(operand.U8(2), r.eStep)
	k.SUBQ(operand.U8(4*laneCount), r.eStep) // from behind one run of lanes to the next
	k.SHLQ(operand.U8(t.shift), r.rowStep)
	v := k.paramMem("v")
	k.SUBQ(v, r.ahead)
	k.CMPQ(k.paramMem("nRows"), operand.U8(0))
	k.JE(operand.LabelRef("done"))
	k.inGroups(k.atOnce(n), k.paramMem("n"), func(group int) {
		k.addColumns(n, group, r, t)
		k.ADDQ(operand.I32(int32(64*group)), r.dst)
		k.ADDQ(operand.I32(int32(group*laneCount<<t.shift)), v)
	})
}

type rowRegisters struct{ dst, step, rowStep, ahead, e, eStep reg.Register }

// addColumns emits the weighted sum for some runs of 16 columns.
func (k *kernel) addColumns(n, group int, r rowRegisters, t kvType) {
	row, value, rows, left, e := k.GP64(), k.GP64(), k.GP64(), k.GP64(), k.GP64()
	sum := func(i, c, h int) reg.VecVirtual { return k.partOf(fmt.Sprint("sum", i*group+c), h) }
	each := func(body func(s reg.VecVirtual, m operand.Mem)) {
		k.MOVQ(r.dst, row)
		for i := range n {
			for c := range group {
				k.eachHalf(func(h, at int) { body(sum(i, c, h), mem(row, 64*c+at)) })
			}
			if i+1 < n {
				k.ADDQ(r.step, row)
			}
		}
	}
	label := func(name string) string { return fmt.Sprint(name, group) }
	each(func(s reg.VecVirtual, m operand.Mem) { k.VMOVUPS(m, s) })
	k.MOVQ(r.e, e)
	k.Load(k.Param("nRows"), left)
	k.Load(k.Param("v"), value)
	k.MOVQ(operand.U32(laneCount), rows)
	k.SUBQ(k.paramMem("lane"), rows)
	k.Label(label("lanes"))
	k.CMPQ(rows, left)
	k.CMOVQGT(left, rows)
	k.SUBQ(rows, left)
	k.Label(label("rows"))
	for c := range group {
		k.eachHalf(func(h, _ int) {
			t.load(k, mem(value, c*laneCount<<t.shift), h, k.partOf(fmt.Sprint("value", c), h))
		})
	}
	for at := 0; at < group*laneCount<<t.shift; at += 64 {
		k.PREFETCHT0(operand.Mem{Base: value, Index: r.ahead, Scale: 1, Disp: at})
	}
	for i := range n {
		for c := range group {
			k.addProducts(mem(e, 64*i), c == 0, fmt.Sprint("value", c), func(h int) reg.VecVirtual { return sum(i, c, h) })
		}
	}
	k.ADDQ(operand.U8(4), e)
	k.ADDQ(r.rowStep, value)
	k.DECQ(rows)
	k.JNE(operand.LabelRef(label("rows")))
	k.ADDQ(r.eStep, e)
	k.MOVQ(operand.U32(laneCount), rows)
	k.TESTQ(left, left)
	k.JNE(operand.LabelRef(label("lanes")))
	each(func(s reg.VecVirtual, m operand.Mem) { k.VMOVUPS(s, m) })
}

// emitSoftmax makes two trips over the scores: scale and find the largest, then the exponentials and their sums. NaN does not
// pass through VMAXPS; it makes its own exponential NaN, and so the sum.
func emitSoftmax(k *kernel) {
	scores, lanes, scale, n, step := k.param("scores"), k.param("lanes"), k.broadcast("scale"), k.param("n"), k.param("step")
	k.SHLQ(operand.U8(2), step)
	at, count := k.GP64(), k.GP64()
	k.eachHalf(func(h, _ int) {
		k.VMOVUPS(k.float(float32(math.Inf(-1))), k.partOf("max", h))
		k.VXORPS(k.partOf("sum", h), k.partOf("sum", h), k.partOf("sum", h))
	})
	k.TESTQ(n, n)
	k.JE(operand.LabelRef("done"))
	k.MOVQ(scores, at)
	k.MOVQ(n, count)
	k.Label("scale")
	k.eachHalf(func(h, disp int) {
		x, biggest := k.partOf("x", h), k.partOf("max", h)
		k.VMULPS(mem(at, disp), scale, x)
		k.VMOVUPS(x, mem(at, disp))
		k.VMAXPS(biggest, x, biggest) // the second operand, biggest, if x is NaN
	})
	k.ADDQ(step, at)
	k.DECQ(count)
	k.JNE(operand.LabelRef("scale"))
	biggest := k.partOf("max", 0)
	if k.halves() == 2 {
		k.VMAXPS(k.partOf("max", 1), biggest, biggest)
	}
	k.maxOfLanes(biggest)
	k.Label("exp")
	k.eachHalf(func(h, disp int) {
		x, sum := k.partOf("x", h), k.partOf("sum", h)
		k.VMOVUPS(mem(scores, disp), x)
		k.VSUBPS(biggest, x, x)
		k.expOfNegative(x, h)
		k.VMOVUPS(x, mem(scores, disp))
		k.VADDPS(x, sum, sum)
	})
	k.ADDQ(step, scores)
	k.DECQ(n)
	k.JNE(operand.LabelRef("exp"))
	k.Label("done")
	k.eachHalf(func(h, disp int) { k.VMOVUPS(k.partOf("sum", h), mem(lanes, disp)) })
}

// maxOfLanes sets all lanes of v to the largest.
func (k *kernel) maxOfLanes(v reg.VecVirtual) {
	t := k.vec("t")
	if k.lv.bits == 512 {
		k.VSHUFF32X4(operand.U8(0x4e), v, v, t)
		k.VMAXPS(t, v, v)
		k.VSHUFF32X4(operand.U8(0xb1), v, v, t)
	} else {
		k.VPERM2F128(operand.U8(1), v, v, t)
	}
	k.VMAXPS(t, v, v)
	k.VPERMILPS(operand.U8(0x4e), v, t)
	k.VMAXPS(t, v, v)
	k.VPERMILPS(operand.U8(0xb1), v, t)
	k.VMAXPS(t, v, v)
}

func emitHalves(k *kernel) {
	dst, src, n := k.param("dst"), k.param("src"), k.param("n")
	k.inGroups(4, n, func(group int) {
		for i := range group {
			k.eachHalf(func(h, at int) {
				x := k.partOf("x", h)
				kvHalf.load(k, mem(src, 2*laneCount*i), h, x)
				k.VMOVUPS(x, mem(dst, 4*laneCount*i+at))
			})
		}
		k.ADDQ(operand.I32(int32(2*laneCount*group)), src)
		k.ADDQ(operand.I32(int32(4*laneCount*group)), dst)
	})
}

func emitToHalves(k *kernel) {
	dst, src, n := k.param("dst"), k.param("src"), k.param("n")
	k.inGroups(4, n, func(group int) {
		for i := range group {
			k.eachHalf(func(h, at int) {
				x := k.partOf("x", h)
				k.VMOVUPS(mem(src, 4*laneCount*i+at), x)
				k.VCVTPS2PH(operand.U8(0), x, mem(dst, 2*laneCount*i+at/2))
			})
		}
		k.ADDQ(operand.I32(int32(4*laneCount*group)), src)
		k.ADDQ(operand.I32(int32(2*laneCount*group)), dst)
	})
}

// kvGroup is the number of dimensions that share a scale in 8 bits.
const kvGroup = 32

func emitDecodeKeys8(k *kernel) {
	dst, codes, scales, dim := k.param("dst"), k.param("codes"), k.param("scales"), k.param("dim")
	k.TESTQ(dim, dim)
	k.JE(operand.LabelRef("done"))
	left := k.GP64()
	k.Label("group")
	k.eachHalf(func(h, at int) { k.VCVTPH2PS(mem(scales, at/2), k.partOf("scale", h)) })
	k.ADDQ(operand.U8(2*laneCount), scales)
	k.MOVQ(operand.U32(kvGroup), left)
	k.Label("dim")
	k.decode8(dst, codes, 0, 0)
	k.ADDQ(operand.U8(4*laneCount), dst)
	k.ADDQ(operand.U8(laneCount), codes)
	k.DECQ(dim)
	k.JE(operand.LabelRef("done"))
	k.DECQ(left)
	k.JNE(operand.LabelRef("dim"))
	k.JMP(operand.LabelRef("group"))
	k.Label("done")
}

// decode8 multiplies 16 codes with the vectors of scales.
func (k *kernel) decode8(dst, codes reg.Register, dstAt, codesAt int) {
	k.eachHalf(func(h, at int) {
		x := k.partOf("x", h)
		k.VPMOVSXBD(mem(codes, codesAt+at/4), x)
		k.VCVTDQ2PS(x, x)
		k.VMULPS(k.partOf("scale", h), x, x)
		k.VMOVUPS(x, mem(dst, dstAt+at))
	})
}

func emitDecodeValues8(k *kernel) {
	dst, codes, scales, dim := k.param("dst"), k.param("codes"), k.param("scales"), k.param("dim")
	row, left, scale, half := k.GP64(), k.GP64(), k.GP64(), k.GP64()
	k.MOVQ(operand.U32(laneCount), row)
	k.Label("row")
	k.MOVQ(dim, left)
	k.MOVQ(scales, scale)
	k.Label("group")
	k.SUBQ(operand.U8(laneCount), left)
	k.JL(operand.LabelRef("next"))
	k.MOVWLZX(mem(scale, 0), half.As32())
	k.VMOVD(half.As32(), k.vec("half").AsX())
	if k.lv.bits == 512 {
		k.VCVTPH2PS(k.vec("half").AsY(), k.vec("half"))
	} else {
		k.VCVTPH2PS(k.vec("half").AsX(), k.vec("half"))
	}
	k.eachHalf(func(h, _ int) { k.VBROADCASTSS(k.vec("half").AsX(), k.partOf("scale", h)) })
	k.decode8(dst, codes, 0, 0)
	k.ADDQ(operand.U8(4*laneCount), dst)
	k.ADDQ(operand.U8(laneCount), codes)
	k.ADDQ(operand.U8(2*laneCount), scale)
	k.SUBQ(operand.U8(laneCount), left)
	k.JL(operand.LabelRef("next"))
	k.decode8(dst, codes, 0, 0)
	k.ADDQ(operand.U8(4*laneCount), dst)
	k.ADDQ(operand.U8(laneCount), codes)
	k.JMP(operand.LabelRef("group"))
	k.Label("next")
	k.ADDQ(operand.U8(2), scales)
	k.DECQ(row)
	k.JNE(operand.LabelRef("row"))
}

package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Attention over float16 or float32 keys and values. A key block is (dim, 16) and a value block (16, dim), 16 positions each; queries
// of one KV head share every load and conversion. Products are rounded before they are added, in one order.

// queryStride is the bytes from one dimension to the next of the queries: 16 floats, one for each query.
const queryStride = 64

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
	return fmt.Sprintf("(dst *float32, dstStride int, q *float32, k *%s, blocks *int32, nBlocks int, blockStride int, dim int)", t.goType)
}

func (t kvType) addRowsSignature() string {
	return fmt.Sprintf("(dst *float32, dstStride int, e *float32, eStride int, v *%s, vStride int, nRows int, n int)", t.goType)
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
				"sets dst[i*dstStride+16*b+lane], for its queries i and nBlocks blocks, to the sum over d of q[16*d+i]*key.",
				t.scoreSignature(), func(k *kernel) { k.score(n, t) }})
		}
		for n := 1; n <= maxQueries(lv); n++ {
			out = append(out, op{fmt.Sprintf("AddRows%sx%d", t.suffix, n),
				"adds e[i*eStride+r]*v[r*vStride+d] to dst[i*dstStride+d], for its queries i, r < nRows in order, 16*n columns d.",
				t.addRowsSignature(), func(k *kernel) { k.addRows(n, t) }})
		}
	}
	return append(out,
		op{"DecodeKeys8", "decodes a block of 8-bit keys, (dim, 16), whose scales are (dim/32, 16) float16.",
			"(dst *float32, codes *int8, scales *uint16, dim int)", emitDecodeKeys8},
		op{"DecodeValues8", "decodes a block of 8-bit values, (16, dim), whose scales are (dim/32, 16) float16; dim is a multiple of 16.",
			"(dst *float32, codes *int8, scales *uint16, dim int)", emitDecodeValues8})
}

// blocksAtOnce is the number of key blocks worked on side by side, so that a few queries have enough independent sums to
// hide the latency of an addition (4 cycles, two a cycle).
func (k *kernel) blocksAtOnce(queries int) int {
	switch sums := queries * k.halves(); {
	case sums == 1:
		return 4
	case sums <= 4:
		return 2
	}
	return 1
}

// score emits the scores of n queries.
func (k *kernel) score(n int, t kvType) {
	dst, step, q := k.param("dst"), k.param("dstStride"), k.param("q")
	keys, blocks, count := k.param("k"), k.param("blocks"), k.param("nBlocks")
	stride, size := k.param("blockStride"), k.param("dim")
	k.SHLQ(operand.U8(2), step)
	k.SHLQ(operand.U8(t.shift), stride)
	k.SHLQ(operand.U8(5), size) // counts in half the bytes of a dimension's queries
	k.TESTQ(size, size)
	k.JE(operand.LabelRef("done"))
	group := k.blocksAtOnce(n)
	for ; group > 0; group /= 2 {
		loop, next := fmt.Sprint("blocks", group), fmt.Sprint("blocks", group/2)
		if group == 1 {
			next = "done"
		}
		k.Label(loop)
		k.CMPQ(count, operand.U8(uint8(group)))
		k.JL(operand.LabelRef(next))
		k.scoreBlocks(n, group, scoreRegisters{dst, step, q, keys, blocks, stride, size}, t)
		k.ADDQ(operand.U8(uint8(4*group)), blocks)
		k.ADDQ(operand.I32(int32(64*group)), dst)
		k.SUBQ(operand.U8(uint8(group)), count)
		k.JMP(operand.LabelRef(loop))
	}
	k.Label("done")
}

type scoreRegisters struct{ dst, step, q, keys, blocks, stride, size reg.Register }

// scoreBlocks emits the sums of n queries over some blocks.
func (k *kernel) scoreBlocks(n, group int, r scoreRegisters, t kvType) {
	at := k.GP64()
	var key []reg.Register
	for b := range group {
		p := k.GP64()
		k.MOVLQSX(mem(r.blocks, 4*b), p)
		k.IMULQ(r.stride, p)
		k.ADDQ(r.keys, p)
		key = append(key, p)
	}
	sum := func(i, b, h int) reg.VecVirtual { return k.partOf(fmt.Sprint("sum", i*group+b), h) }
	for i := range n * group {
		k.eachHalf(func(h, _ int) {
			s := sum(i/group, i%group, h)
			k.VXORPS(s, s, s)
		})
	}
	k.XORQ(at, at)
	label := fmt.Sprint("dim", group)
	k.Label(label)
	for b, p := range key {
		k.eachHalf(func(h, _ int) {
			t.load(k, operand.Mem{Base: p, Index: at, Scale: t.shift}, h, k.partOf(fmt.Sprint("key", b), h))
		})
	}
	for i := range n {
		query := operand.Mem{Base: r.q, Index: at, Scale: 2, Disp: 4 * i}
		for b := range group {
			k.addProducts(query, b == 0, fmt.Sprint("key", b), func(h int) reg.VecVirtual { return sum(i, b, h) })
		}
	}
	k.ADDQ(operand.U8(queryStride/2), at)
	k.CMPQ(at, r.size)
	k.JNE(operand.LabelRef(label))
	row := k.GP64()
	k.MOVQ(r.dst, row)
	for i := range n {
		for b := range group {
			k.eachHalf(func(h, at int) { k.VMOVUPS(sum(i, b, h), mem(row, 64*b+at)) })
		}
		if i+1 < n {
			k.ADDQ(r.step, row)
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

// addRows emits the weighted sum of rows for n queries: 16 columns at a time stay in registers over all rows.
func (k *kernel) addRows(n int, t kvType) {
	dst, step, stride := k.param("dst"), k.param("dstStride"), k.param("eStride")
	k.SHLQ(operand.U8(2), step)
	k.SHLQ(operand.U8(2), stride)
	rowStep := k.param("vStride")
	k.SHLQ(operand.U8(t.shift), rowStep)
	k.stride = stride
	k.loadStrides(n)
	v, columns := k.paramMem("v"), k.paramMem("n")
	for _, empty := range []string{"n", "nRows"} {
		k.CMPQ(k.paramMem(empty), operand.U8(0))
		k.JE(operand.LabelRef("done"))
	}
	row, value, rows := k.GP64(), k.GP64(), k.GP64()
	k.act = k.GP64()
	sum := func(i, h int) reg.VecVirtual { return k.partOf(fmt.Sprint("sum", i), h) }
	k.Label("columns")
	k.MOVQ(dst, row)
	k.eachQuery(n, row, step, func(i int) {
		k.eachHalf(func(h, at int) { k.VMOVUPS(mem(row, at), sum(i, h)) })
	})
	k.Load(k.Param("e"), k.act)
	k.Load(k.Param("nRows"), rows)
	k.MOVQ(v, value)
	k.Label("rows")
	k.eachHalf(func(h, _ int) { t.load(k, mem(value, 0), h, k.partOf("value", h)) })
	for i := range n {
		k.addProducts(k.tokenRow(i, 0), true, "value", func(h int) reg.VecVirtual { return sum(i, h) })
	}
	k.ADDQ(operand.U8(4), k.act)
	k.ADDQ(rowStep, value)
	k.DECQ(rows)
	k.JNE(operand.LabelRef("rows"))
	k.MOVQ(dst, row)
	k.eachQuery(n, row, step, func(i int) {
		k.eachHalf(func(h, at int) { k.VMOVUPS(sum(i, h), mem(row, at)) })
	})
	k.ADDQ(operand.U8(64), dst)
	k.ADDQ(operand.U8(laneCount<<t.shift), v)
	k.DECQ(columns)
	k.JNE(operand.LabelRef("columns"))
	k.Label("done")
}

// eachQuery runs body for each query with row moving on by step.
func (k *kernel) eachQuery(n int, row, step reg.Register, body func(i int)) {
	for i := range n {
		body(i)
		if i+1 < n {
			k.ADDQ(step, row)
		}
	}
}

// emitSoftmax makes two trips over the scores: scale and find the largest, then the exponentials and their sums. NaN does
// not pass through VMAXPS, so NaN lanes are noted beside it and make the maximum NaN.
func emitSoftmax(k *kernel) {
	scores, lanes, scale, n := k.param("scores"), k.param("lanes"), k.broadcast("scale"), k.param("n")
	at, count := k.GP64(), k.GP64()
	k.eachHalf(func(h, _ int) {
		k.VMOVUPS(k.float(float32(math.Inf(-1))), k.partOf("max", h))
		k.VXORPS(k.partOf("sum", h), k.partOf("sum", h), k.partOf("sum", h))
	})
	nan := k.vec("nan")
	k.VXORPS(nan, nan, nan)
	k.TESTQ(n, n)
	k.JE(operand.LabelRef("done"))
	k.MOVQ(scores, at)
	k.MOVQ(n, count)
	k.Label("scale")
	k.eachHalf(func(h, disp int) {
		x, biggest := k.partOf("x", h), k.partOf("max", h)
		k.VMULPS(mem(at, disp), scale, x)
		k.VMOVUPS(x, mem(at, disp))
		k.VMAXPS(x, biggest, biggest)
		k.noteNaN(x, nan)
	})
	k.ADDQ(operand.U8(64), at)
	k.DECQ(count)
	k.JNE(operand.LabelRef("scale"))
	biggest := k.partOf("max", 0)
	if k.halves() == 2 {
		k.VMAXPS(k.partOf("max", 1), biggest, biggest)
	}
	k.maxOfLanes(biggest, nan)
	k.Label("exp")
	k.eachHalf(func(h, disp int) {
		x, sum := k.partOf("x", h), k.partOf("sum", h)
		k.VMOVUPS(mem(scores, disp), x)
		k.VSUBPS(biggest, x, x)
		k.exp(x, h)
		k.VMOVUPS(x, mem(scores, disp))
		k.VADDPS(x, sum, sum)
	})
	k.ADDQ(operand.U8(64), scores)
	k.DECQ(n)
	k.JNE(operand.LabelRef("exp"))
	k.Label("done")
	k.eachHalf(func(h, disp int) { k.VMOVUPS(k.partOf("sum", h), mem(lanes, disp)) })
}

// noteNaN sets the lanes of nan to ones where x is NaN.
func (k *kernel) noteNaN(x, nan reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VCMPPS(operand.U8(cmpUnordered), x, x, reg.K1)
		k.VPTERNLOGD_Z(operand.U8(0xff), x, x, reg.K1, k.vec("ones"))
		k.VORPS(k.vec("ones"), nan, nan)
		return
	}
	t := k.vec("unordered")
	k.VCMPPS(operand.U8(cmpUnordered), x, x, t)
	k.VORPS(t, nan, nan)
}

// maxOfLanes sets all lanes of v to the largest, and all to NaN when a lane of nan is ones.
func (k *kernel) maxOfLanes(v, nan reg.VecVirtual) {
	t := k.vec("t")
	both := func(shuffle func(src, dst reg.VecVirtual)) {
		shuffle(v, t)
		k.VMAXPS(t, v, v)
		shuffle(nan, t)
		k.VORPS(t, nan, nan)
	}
	if k.lv.bits == 512 {
		both(func(src, dst reg.VecVirtual) { k.VSHUFF32X4(operand.U8(0x4e), src, src, dst) })
		both(func(src, dst reg.VecVirtual) { k.VSHUFF32X4(operand.U8(0xb1), src, src, dst) })
	} else {
		both(func(src, dst reg.VecVirtual) { k.VPERM2F128(operand.U8(1), src, src, dst) })
	}
	both(func(src, dst reg.VecVirtual) { k.VPERMILPS(operand.U8(0x4e), src, dst) })
	both(func(src, dst reg.VecVirtual) { k.VPERMILPS(operand.U8(0xb1), src, dst) })
	k.VORPS(nan, v, v)
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

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weightBytes is the size of one weight in a tile of 16 float weights a column.
func (f *format) weightBytes() int {
	if f.float == float32Weights {
		return 4
	}
	return 2
}

// emitFloat writes the dot product of float weights with float32 activations: each row adds its products column after
// column, each product rounded before it is added. A lane is a row, so one token has one chain of additions; at 256 bits
// groups of 4 tokens fill the registers, and each group reads the tile again.
func (k *kernel) emitFloat() {
	group := k.m
	if k.lv.bits == 256 {
		group = min(4, k.m)
	}
	k.part, k.dst, k.dstStep, k.stride = k.param("tiles"), k.param("dst"), k.param("dstStride"), k.param("actStride")
	k.SHLQ(operand.U8(2), k.dstStep)
	k.loadStrides(group)
	k.act = k.GP64()
	tiles := k.paramMem("nTiles")
	k.CMPQ(tiles, operand.U8(0))
	k.JE(operand.LabelRef("done"))
	k.Label("tile")
	row, first := k.GP64(), k.GP64()
	k.MOVQ(k.dst, row)
	k.MOVQ(k.part, first)
	k.Load(k.Param("act"), k.act)
	for at := 0; at < k.m; at += group {
		k.MOVQ(first, k.part)
		k.floatGroup(at, min(group, k.m-at), row)
	}
	k.ADDQ(operand.U8(64), k.dst)
	k.DECQ(tiles)
	k.JNE(operand.LabelRef("tile"))
	k.Label("done")
}

// floatGroup multiplies a tile with n tokens from token first on, whose sums go to row and the rows behind it.
func (k *kernel) floatGroup(first, n int, row reg.Register) {
	if first > 0 {
		k.act = k.param("act")
		for range first {
			k.ADDQ(k.stride, k.act)
		}
	}
	if n > 8 {
		k.act8 = k.GP64()
		k.LEAQ(operand.Mem{Base: k.act, Index: k.stride, Scale: 8}, k.act8)
	}
	vectors := 512 / k.lv.bits
	sum := func(m, v int) reg.VecVirtual { return k.vec(fmt.Sprint("sum", m*vectors+v)) }
	for i := range n * vectors {
		k.zero(sum(i/vectors, i%vectors))
	}
	columns, loop, store := k.param("nBlocks"), fmt.Sprint("column", first), fmt.Sprint("store", first)
	k.TESTQ(columns, columns)
	k.JE(operand.LabelRef(store))
	k.Label(loop)
	if first == 0 {
		k.PREFETCHT0(mem(k.part, 2048))
	}
	for v := range vectors {
		k.loadWeights(v, k.vec(fmt.Sprint("weight", v)))
	}
	for m := range n {
		k.addProduct(k.tokenRow(m, 0), sum(m, 0), sum(m, vectors-1))
	}
	k.ADDQ(operand.U8(16*k.f.weightBytes()), k.part)
	k.ADDQ(operand.U8(4), k.act)
	if n > 8 {
		k.ADDQ(operand.U8(4), k.act8)
	}
	k.DECQ(columns)
	k.JNE(operand.LabelRef(loop))
	k.Label(store)
	for m := range n {
		for v := range vectors {
			k.VMOVUPS(sum(m, v), mem(row, v*32))
		}
		if first+m+1 < k.m {
			k.ADDQ(k.dstStep, row)
		}
	}
}

// addProduct adds the column's weights times the float at x to the sums of the rows (low and high half at 256 bits).
func (k *kernel) addProduct(x operand.Mem, low, high reg.VecVirtual) {
	w, p := k.vec("weight0"), k.vec("product")
	if k.lv.bits == 512 {
		k.VMULPS_BCST(x, w, p)
		k.VADDPS(p, low, low)
		return
	}
	value := k.vec("x")
	k.VBROADCASTSS(x, value)
	k.VMULPS(value, w, p)
	k.VADDPS(p, low, low)
	k.VMULPS(value, k.vec("weight1"), value)
	k.VADDPS(value, high, high)
}

// loadWeights loads vector v of a column as float32.
func (k *kernel) loadWeights(v int, dst reg.VecVirtual) {
	at := mem(k.part, v*8*k.f.weightBytes())
	switch k.f.float {
	case float32Weights:
		k.VMOVUPS(at, dst)
	case float16Weights:
		k.VCVTPH2PS(at, dst)
	case bfloat16Weights:
		k.VPMOVZXWD(at, dst)
		k.VPSLLD(operand.U8(16), dst, dst)
	}
}

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of an activation block, 64 bytes for 32 columns (quant/act.go).
const (
	actBytes   = 64
	actScale   = 32 // f32 a
	actSum     = 36 // f32 a * sum of the codes; then the same of columns 0..15 and 16..31
	actNegSum  = 48 // int32 minus the sum; then the same of columns 0..15 and 16..31
	actNeg8Sum = 60 // int32 minus 8 times the sum
)

// kernel emits one function. The body is the same for all levels: for each tile, for each part of 32 columns, unpack the
// codes of 8 groups into w[0..7], find the factors, and for each token add one product to its sums.
type kernel struct {
	*source
	lv *level
	f  *format
	m  int // tokens; 0 means the argument m

	// general registers
	part    reg.Register // codes of the current part
	head    reg.Register // f16 scales of the current tile block
	sub     reg.Register // sub-block scales of the current part
	act     reg.Register // activation block of token 0; those of the other tokens follow it
	act8    reg.Register // activations of token 8 (float weights)
	token   reg.Register // activation block of the token in work (rolled)
	stride  reg.Register // actStride; for float weights 3, 5 and 7 times of it
	strides map[int]reg.Register
	half    reg.Register // 0 or 8: first row of the half in work (256 bits)
	dst     reg.Register // sums of token 0, current tile
	dstStep reg.Register // dstStride in bytes

	roles   map[string]reg.VecVirtual // vector registers by role
	consts  map[uint32]reg.VecVirtual // constants in registers
	scratch operand.Mem               // signed weights of the part (sign trick)

	w      [8]reg.VecVirtual // unsigned codes, or absolute weights
	hi     [8]reg.VecVirtual // high nibbles of split codes
	d, dm  reg.VecVirtual    // scales and min scales of a tile block (512 bits)
	factor []reg.VecVirtual  // scale of each half
	min    []reg.VecVirtual  // min of each half
	sums   []reg.VecVirtual  // one for each token (unrolled)
}

const signature = "func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int%s)"

// emitDot writes the dot product of a format for m tokens, or for any number of tokens if m is 0.
func emitDot(c *source, lv *level, f *format, name string, m int) {
	k := &kernel{source: c, lv: lv, f: f, m: m, roles: map[string]reg.VecVirtual{}, consts: map[uint32]reg.VecVirtual{}}
	k.Function(name)
	k.Attributes(attr.NOSPLIT)
	extra := ""
	if m == 0 {
		extra = ", m int"
	}
	k.SignatureExpr(fmt.Sprintf(signature, extra))
	if f.float != notFloat {
		k.emitFloat()
	} else {
		k.loadArguments()
		k.tileLoop()
	}
	k.VZEROUPPER()
	k.RET()
}

// vec returns the vector register of a role, always the same one: the allocator then colours a few long ranges instead of
// hundreds of short ones, which it cannot do with no register to spare.
func (k *kernel) vec(role string) reg.VecVirtual {
	v, ok := k.roles[role]
	if ok {
		return v
	}
	v = k.YMM()
	if k.lv.bits == 512 {
		v = k.ZMM()
	}
	k.roles[role] = v
	return v
}

// rolled reports whether tokens are a loop with the sums in dst.
func (k *kernel) rolled() bool { return !k.lv.unroll }

func (k *kernel) param(name string) reg.Register { return k.Load(k.Param(name), k.GP64()) }

func (k *kernel) paramMem(name string) operand.Mem {
	b, err := k.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func mem(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

func (k *kernel) loadArguments() {
	k.part = k.param("tiles")
	k.dst = k.param("dst")
	k.dstStep = k.param("dstStride")
	k.SHLQ(operand.U8(2), k.dstStep)
	k.stride = k.param("actStride")
	k.act = k.GP64()
	if !k.rolled() {
		for range k.m {
			k.sums = append(k.sums, k.ZMM())
		}
	}
	if k.lv.bits == 256 {
		k.half = k.GP64()
	}
	if k.usesSign() && k.f.table != nil {
		k.scratch = k.AllocLocal(256)
	}
	k.loadConstants()
}

// loadStrides prepares the multiples of actStride that tokenRow needs for m tokens.
func (k *kernel) loadStrides(m int) {
	k.strides = map[int]reg.Register{1: k.stride}
	for _, n := range []int{3, 5, 7} {
		if m <= n {
			continue
		}
		k.strides[n] = k.GP64()
		base, scale := k.stride, uint8(n-1)
		if n == 7 {
			base, scale = k.strides[3], 4
		}
		k.LEAQ(operand.Mem{Base: base, Index: k.stride, Scale: scale}, k.strides[n])
	}
}

// tokenRow addresses the float activations of token m at a byte offset.
func (k *kernel) tokenRow(m, disp int) operand.Mem {
	a := operand.Mem{Base: k.act, Disp: disp}
	if m >= 8 {
		a.Base = k.act8
		m -= 8
	}
	switch m {
	case 0:
	case 1, 2, 4:
		a.Index, a.Scale = k.stride, uint8(m)
	case 3, 5, 7:
		a.Index, a.Scale = k.strides[m], 1
	case 6:
		a.Index, a.Scale = k.strides[3], 2
	}
	return a
}

// tileLoop runs over nTiles tiles; part moves through all of them, as tiles follow each other in memory.
func (k *kernel) tileLoop() {
	tiles := k.paramMem("nTiles")
	k.CMPQ(tiles, operand.U8(0))
	k.JE(operand.LabelRef("done"))
	k.Label("tile")
	k.Comment("One tile of 16 rows: sums start at zero, activations at the first block.")
	k.Load(k.Param("act"), k.act)
	k.zeroSums()
	blocks := k.param("nBlocks")
	k.TESTQ(blocks, blocks)
	k.JE(operand.LabelRef("store"))
	k.Label("block")
	k.block()
	k.DECQ(blocks)
	k.JNE(operand.LabelRef("block"))
	k.Label("store")
	k.storeSums()
	k.ADDQ(operand.U8(64), k.dst)
	k.DECQ(tiles)
	k.JNE(operand.LabelRef("tile"))
	k.Label("done")
}

// rows runs body for both halves of the rows at 256 bits, and once at 512.
func (k *kernel) rows(label string, body func()) {
	if k.half == nil {
		body()
		return
	}
	k.XORL(k.half.(reg.GPVirtual).As32(), k.half.(reg.GPVirtual).As32())
	k.Label(label)
	body()
	k.ADDQ(operand.U8(8), k.half)
	k.CMPQ(k.half, operand.U8(16))
	k.JNE(operand.LabelRef(label))
}

// inHalf addresses a line of 16 entries of size bytes at base+disp, from the row of the current half on.
func (k *kernel) inHalf(base reg.Register, disp, size int) operand.Mem {
	a := operand.Mem{Base: base, Disp: disp}
	if k.half != nil {
		a.Index, a.Scale = k.half, uint8(size)
	}
	return a
}

// tokenLoop adds the products of a part to the sums of each token in dst (rolled).
func (k *kernel) tokenLoop() {
	token := k.act
	k.eachRow("token", func(at operand.Mem) {
		if k.m != 1 {
			token = k.token
		}
		a := func(disp int) operand.Mem { return mem(token, disp) }
		sum := k.vec("sum")
		for h := range k.f.factors() {
			dot := k.integerDot(a, h, 8/k.f.factors())
			if h == 0 {
				k.VMOVUPS(at, sum)
			}
			k.addScaled(a, h, dot, sum)
		}
		k.VMOVUPS(sum, at)
	})
}

func (k *kernel) zeroSums() {
	if !k.rolled() {
		for _, s := range k.sums {
			k.VPXORD(s, s, s)
		}
		return
	}
	k.rows("zero", func() {
		k.eachRow("zeroToken", func(at operand.Mem) {
			zero := k.YMM()
			k.VPXOR(zero, zero, zero)
			k.VMOVUPS(zero, at)
			if k.half == nil {
				at.Disp += 32
				k.VMOVUPS(zero, at)
			}
		})
	})
}

// eachRow runs body with the address of each token's sums, and k.token at its activation block (rolled).
func (k *kernel) eachRow(label string, body func(at operand.Mem)) {
	at := k.inHalf(k.dst, 0, 4)
	if k.m == 1 {
		body(at)
		return
	}
	at.Base, k.token = k.GP64(), k.GP64()
	k.MOVQ(k.dst, at.Base)
	k.MOVQ(k.act, k.token)
	count := k.param("m")
	k.Label(label)
	body(at)
	k.ADDQ(operand.U8(actBytes), k.token)
	k.ADDQ(k.dstStep, at.Base)
	k.DECQ(count)
	k.JNE(operand.LabelRef(label))
}

func (k *kernel) storeSums() {
	if k.rolled() {
		return
	}
	row := k.GP64()
	k.MOVQ(k.dst, row)
	for m, s := range k.sums {
		k.VMOVUPS(s, mem(row, 0))
		if m+1 < k.m {
			k.ADDQ(k.dstStep, row)
		}
	}
}

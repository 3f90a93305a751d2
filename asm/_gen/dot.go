package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Without VPDPBUSD, 8-bit codes do not fit VPMADDUBSW: two products of unsigned 255 and signed 127 saturate 16 bits.
// usesSign is the way out at 256 bits: |weight| times the activation with the weight's sign (VPSIGNB; 128*127*2 fits).
func (k *kernel) usesSign() bool { return !k.lv.vnni && k.f.chain() == 0 && k.lv.bits == 256 }

// usesSplit is the way out at 512 bits, where VPSIGNB does not exist: code = 16*high + low, and both chains of 8 fit.
func (k *kernel) usesSplit() bool { return !k.lv.vnni && k.f.chain() == 0 && k.lv.bits == 512 }

// integerDot is the exact dot product of n groups with one token, half h of the part.
func (k *kernel) integerDot(a act, h, n int) reg.VecVirtual {
	switch {
	case k.lv.vnni:
		return k.dotVEX(a, h, n)
	case k.usesSign():
		return k.dotSign(a, n)
	case k.usesSplit():
		return k.dotSplit(a, h, n)
	}
	dot := k.offsetSum(a, h, k.vec("dot0"))
	for g := h * n; g < h*n+n; g += min(n, k.f.chain()) {
		dot = k.addPairs(k.chain(a, k.w[:], g, min(n, k.f.chain())), dot)
	}
	return dot
}

// offsetSum sets dot to minus the offset times the sum of the token's codes, where dot products start; nil is zero.
func (k *kernel) offsetSum(a act, h int, dot reg.VecVirtual) reg.VecVirtual {
	if k.f.offset == 0 {
		return nil
	}
	disp := actNegSum
	if k.f.halves {
		disp += 4 + 4*h
	}
	shift, rest := 0, k.f.offset
	switch {
	case rest == 8:
		k.VPBROADCASTD(a(actNeg8Sum), dot)
		return dot
	case rest == 12: // 8 + 4
		eight := k.vec("x")
		k.shiftedSum(a(disp), 2, dot)
		k.VPBROADCASTD(a(actNeg8Sum), eight)
		k.VPADDD(eight, dot, dot)
		return dot
	}
	for ; rest > 1; rest /= 2 {
		shift++
	}
	k.shiftedSum(a(disp), shift, dot)
	return dot
}

func (k *kernel) shiftedSum(a operand.Mem, shift int, dst reg.VecVirtual) {
	if k.lv.bits == 512 {
		k.VPSLLD_BCST(operand.U8(shift), a, dst)
		return
	}
	k.VPBROADCASTD(a, dst)
	k.VPSLLD(operand.U8(shift), dst, dst)
}

// startDot is the sum that a dot product with VPDPBUSD starts from.
func (k *kernel) startDot(a act, h int, role string) reg.VecVirtual {
	dot := k.vec(role)
	if k.offsetSum(a, h, dot) == nil {
		k.zero(dot)
	}
	return dot
}

// dotsVNNI are the dot products of n groups with several tokens, side by side.
func (k *kernel) dotsVNNI(a []act, h, n int) []reg.VecVirtual {
	var dots []reg.VecVirtual
	for i := range a {
		dots = append(dots, k.startDot(a[i], h, fmt.Sprint("dot", i)))
	}
	for g := h * n; g < h*n+n; g++ {
		for i, dot := range dots {
			k.VPDPBUSD_BCST(a[i](4*g), k.w[g], dot)
		}
	}
	return dots
}

// dotVEX is the dot product of n groups with one token; 8 groups go to two sums, half as many products in a row.
func (k *kernel) dotVEX(a act, h, n int) reg.VecVirtual {
	sums := []reg.VecVirtual{k.startDot(a, h, "dot0")}
	if n == 8 {
		second := k.vec("dot1")
		k.zero(second)
		sums = append(sums, second)
	}
	for i := range n {
		x := k.vec("x")
		k.VPBROADCASTD(a(4*(h*n+i)), x)
		k.vexDot(x, k.w[h*n+i], sums[i%len(sums)])
	}
	if len(sums) > 1 {
		k.VPADDD(sums[1], sums[0], sums[0])
	}
	return sums[0]
}

// chain adds the 16-bit pair products of n groups from g on.
func (k *kernel) chain(a act, w []reg.VecVirtual, g, n int) reg.VecVirtual {
	sum := k.vec("pairs")
	for i := range n {
		x := k.vec("x")
		k.VPBROADCASTD(a(4*(g+i)), x)
		if i == 0 {
			k.VPMADDUBSW(x, w[g], sum)
			continue
		}
		k.VPMADDUBSW(x, w[g+i], x)
		k.VPADDW(x, sum, sum)
	}
	return sum
}

// addPairs adds 16-bit pairs to dot; nil is zero.
func (k *kernel) addPairs(pairs, dot reg.VecVirtual) reg.VecVirtual {
	if dot == nil {
		dot = k.vec("dot0")
		k.VPMADDWD(k.constant(0x00010001), pairs, dot)
		return dot
	}
	k.VPMADDWD(k.constant(0x00010001), pairs, pairs)
	k.VPADDD(pairs, dot, dot)
	return dot
}

// dotSign multiplies absolute weights with activations that carry the weights' signs.
func (k *kernel) dotSign(a act, n int) reg.VecVirtual {
	var dot reg.VecVirtual
	for g := range n {
		x := k.vec("x")
		k.VPBROADCASTD(a(4*g), x)
		k.VPSIGNB(k.signedGroup(g), x, x)
		k.VPMADDUBSW(x, k.w[g], x)
		dot = k.addPairs(x, dot)
	}
	return dot
}

// signedGroup addresses the signed weights of a group: the tile itself, or the scratch that unpack filled.
func (k *kernel) signedGroup(g int) operand.Mem {
	if k.f.table == nil {
		return k.inHalf(k.part, 64*g, 4)
	}
	return k.scratch.Offset(32 * g)
}

// dotSplit multiplies the low and the high nibbles of the codes.
func (k *kernel) dotSplit(a act, h, n int) reg.VecVirtual {
	low := k.chain(a, k.w[:], h*n, n)
	dot := k.addPairs(low, k.offsetSum(a, h, k.vec("dot0")))
	high := k.chain(a, k.hi[:], h*n, n)
	k.VPMADDWD(k.constant(0x00010001), high, high)
	k.VPSLLD(operand.U8(4), high, high)
	k.VPADDD(high, dot, dot)
	return dot
}

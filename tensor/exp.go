package tensor

import "math"

// Constants of Exp32. expLn2Hi has 9 significant bits, so k*expLn2Hi is exact for every |k| < 2^15.
const (
	expLog2E  = 1.44269504088896341
	expLn2Hi  = 0.693359375
	expLn2Lo  = -2.12194440054690583e-4
	expRound  = 12582912 // 1.5*2^23: adding it and taking it away rounds to the nearest integer, ties to even
	expMin    = -87.33   // below, the result would be subnormal: 0
	expMax    = 88.72283 // above, the result overflows: +Inf
	expC2     = 0.5
	expC3     = 1.6666665459e-1
	expC4     = 4.1665795894e-2
	expC5     = 8.3334519073e-3
	expC6     = 1.3981999507e-3
	expC7     = 1.9875691500e-4
	expBias   = 23
	absMask32 = 0x7fffffff
)

// Exp32 is e^x for the forward pass: a degree-7 polynomial after reduction by powers of two, built from float32
// multiplications and additions in one order and one integer addition, so that a SIMD lane can repeat it bit for bit.
// The relative error is below 1e-7 (measured: 7.9e-8); results below 2^-126 are 0, NaN gives NaN, 0 gives
// exactly 1.
//
//	k = round(x*log2(e)); r = x - k*ln2 in two parts
//	p = ((((((C7*r + C6)*r + C5)*r + C4)*r + C3)*r + C2)*(r*r) + r) + 1
//	result = p with k added to its exponent
func Exp32(x float32) float32 {
	if !(x >= expMin) { // also NaN
		if x != x {
			return x
		}
		return 0
	}
	if x > expMax {
		return float32(math.Inf(1))
	}
	k := float32(float32(x*expLog2E)+expRound) - expRound
	r := x - float32(k*expLn2Hi)
	r -= float32(k * expLn2Lo)
	p := float32(expC7*r) + expC6
	p = float32(p*r) + expC5
	p = float32(p*r) + expC4
	p = float32(p*r) + expC3
	p = float32(p*r) + expC2
	p = float32(p*float32(r*r)) + r
	p += 1
	return math.Float32frombits(math.Float32bits(p) + uint32(int32(k))<<expBias)
}

// tanh32 is (1-e)/(1+e) with e = e^(-2|x|), with the sign of x. The absolute error is below 1e-7.
func tanh32(x float32) float32 {
	a := math.Float32frombits(math.Float32bits(x) & absMask32)
	e := Exp32(float32(-2 * a))
	y := (1 - e) / (1 + e)
	return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&^absMask32)
}

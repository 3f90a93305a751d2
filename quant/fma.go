package quant

import "math"

// x*y + z rounded once to float32, ties to even, has the bits of a hardware float32 fused multiply-add (a NaN result may
// differ in its payload). It is s := fmaSum(x, y, z) rounded to float32, or fmaTie(x, y, z) if mayTie(s); loops spell this
// out, for they cannot afford the call.
//
// Proof. The product of two float32 has at most 48 bits and an exponent far inside float64's range, so p is exact. Let
// v = p + z be the exact sum and s its rounding to float64. A float32 result can only differ between v and s when s is a
// midpoint of two neighbouring float32 values: midpoints are float64 values and rounding is monotonic, so if v lies on
// one side of a midpoint then s lies on the same side or on the midpoint itself. A midpoint has at most 25 significant
// bits (fewer where float32 is subnormal), so its lower 28 mantissa bits are zero; any other s is rounded directly. That
// test also lets infinities, NaN and zero through to the second part. There the error e = v - s is computed exactly by
// TwoSum, and if it is not zero, s moves by one unit of its last place towards v. As s ends in zeros the moved value is
// odd (round to odd): it is no midpoint, lies on v's side of s with no midpoint in between, and so rounds as v does. For
// infinite or NaN s the error is NaN, all comparisons fail, and s passes through. float64 subnormals cannot occur: p and
// z are multiples of 2^-298.
//
// Multiplying and adding with two roundings would spare the Go path this step (mulAdd is 27 % of the time of Q4_K with 4
// rows, by profile) but cost every kernel one more instruction a row and scale, and the kernels are the product.

// fmaSum returns x*y + z rounded to float64.
func fmaSum(x, y, z float32) float64 { return float64(float64(x)*float64(y)) + float64(z) }

// mayTie reports whether s may be a midpoint of float32 values.
func mayTie(s float64) bool { return math.Float64bits(s)<<36 == 0 }

// fmaTie returns x*y + z rounded once, whatever its sum is.
func fmaTie(x, y, z float32) float32 {
	p, c := float64(float64(x)*float64(y)), float64(z)
	s := p + c
	pPart := s - c
	cPart := s - pPart
	e := (p - pPart) + (c - cPart)
	bits := math.Float64bits(s)
	switch {
	case e > 0 && s > 0, e < 0 && s < 0: // v is farther from zero: the next value outwards is odd
		bits++
	case e > 0 && s < 0, e < 0 && s > 0: // v is nearer to zero
		bits--
	}
	return float32(math.Float64frombits(bits))
}

package detmath

import (
	"math"
	"math/bits"
)

const (
	pio2A = 0x1.921fb544p+0 // pi/2 in parts of 33 bits: their product with a quadrant below 2^20 is exact
	pio2B = 0x1.0b4611a6p-34
	pio2C = 0x1.3198a2ep-69
	pio2D = 0x1.b839a252049c1p-104

	pio2Hi    = 0x1.921fb54442d18p+0
	pio2Lo    = 0x1.1a62633145c07p-54
	twoByPi   = 0x1.45f306dc9c883p-1
	maxCody   = 1.6e6 // below it the quadrant has at most 20 bits
	fracScale = 0x1p-64
)

// Sin returns the sine of x radians; Sin(±Inf) = NaN.
func Sin(x float64) float64 {
	s, _ := Sincos(x)
	return s
}

// Cos returns the cosine of x radians; Cos(±Inf) = NaN.
func Cos(x float64) float64 {
	_, c := Sincos(x)
	return c
}

// Sincos returns the sine and the cosine of x radians.
func Sincos(x float64) (sin, cos float64) {
	a := math.Abs(x)
	if !(a <= math.MaxFloat64) {
		return math.NaN(), math.NaN()
	}
	var q int
	r, lo := a, 0.0
	switch {
	case a <= math.Pi/4:
	case a < maxCody:
		q, r, lo = reduceCody(a)
	default:
		q, r, lo = reduceBits(a)
	}
	s, c := sinKernel(r, lo), cosKernel(r, lo)
	switch q & 3 {
	case 1:
		s, c = c, -s
	case 2:
		s, c = -s, -c
	case 3:
		s, c = -c, s
	}
	if math.Signbit(x) {
		s = -s
	}
	return s, c
}

// twoSum returns a + b rounded, and what the rounding lost.
func twoSum(a, b float64) (s, e float64) {
	s = a + b
	v := s - a
	return s, (a - (s - v)) + (b - v)
}

// reduceCody returns q and r + lo with x = q pi/2 + r + lo and |r| <= pi/4, for pi/4 < x < maxCody.
func reduceCody(x float64) (q int, r, lo float64) {
	n := (float64(x*twoByPi) + toInteger) - toInteger
	t := x - float64(n*pio2A)
	t, e1 := twoSum(t, -float64(n*pio2B))
	t, e2 := twoSum(t, -float64(n*pio2C))
	r, lo = twoSum(t, (e1+e2)-float64(n*pio2D))
	return int(n), r, lo
}

// reduceBits does the same for large x with integer arithmetic: x = m 2^e with m of 53 bits, and m times 192 bits of 2/pi, from
// the bit of weight 4/2^e on, is x 2/pi modulo 4 in units of 2^-190.
func reduceBits(x float64) (q int, r, lo float64) {
	b := math.Float64bits(x)
	m := b&(1<<52-1) | 1<<52
	start := int(b>>52) - 1075 - 2
	w0, w1, w2 := windowBits(start), windowBits(start+64), windowBits(start+128)
	c2, p2 := bits.Mul64(m, w2)
	h1, l1 := bits.Mul64(m, w1)
	p1, carry := bits.Add64(l1, c2, 0)
	p0 := m*w0 + h1 + carry
	q = int(p0 >> 62)
	f0, f1, f2 := p0<<2|p1>>62, p1<<2|p2>>62, p2<<2 // the fraction, 190 bits
	neg := f0>>63 == 1
	if neg { // nearest quadrant: f - 1
		q++
		var borrow uint64
		f2, borrow = bits.Sub64(0, f2, 0)
		f1, borrow = bits.Sub64(0, f1, borrow)
		f0, _ = bits.Sub64(0, f0, borrow)
	}
	unit := fracScale
	if f0 == 0 {
		f0, f1, f2 = f1, f2, 0
		unit *= fracScale
	}
	if z := uint(bits.LeadingZeros64(f0)); z > 0 {
		f0 = f0<<z | f1>>(64-z)
		f1 = f1<<z | f2>>(64-z)
		unit *= pow2(-int(z))
	}
	hi := float64(f0>>11) * 2048 * unit
	tail := (float64(f0&2047) + float64(float64(f1>>11)*0x1p-53)) * unit
	p := float64(hi * pio2Hi)
	e := math.FMA(hi, pio2Hi, -p)
	r, lo = twoSum(p, e+float64(hi*pio2Lo)+float64(tail*pio2Hi))
	if neg {
		r, lo = -r, -lo
	}
	return q, r, lo
}

// windowBits returns the 64 fractional bits of 2/pi from bit i on (bit 0 has the weight 1/2); bits before it are 0.
func windowBits(i int) uint64 {
	if i < 0 {
		if i <= -64 {
			return 0
		}
		return twoOverPi[0] >> uint(-i)
	}
	w, s := i/64, uint(i%64)
	v := twoOverPi[w] << s
	if s > 0 {
		v |= twoOverPi[w+1] >> (64 - s)
	}
	return v
}

// sinKernel returns sin(r + lo) for |r| <= pi/4.
func sinKernel(r, lo float64) float64 {
	z := float64(r * r)
	p := 1.0 / 355687428096000
	for _, c := range [...]float64{-1. / 1307674368000, 1. / 6227020800, -1. / 39916800, 1. / 362880, -1. / 5040, 1. / 120} {
		p = float64(p*z) + c
	}
	v := float64(z * r)
	// r - r³/6 + r⁵p + lo (1 - r²/2)
	return r - ((float64(z*(float64(0.5*lo)-float64(v*p))) - lo) + float64(v*(1.0/6)))
}

// cosKernel returns cos(r + lo) for |r| <= pi/4.
func cosKernel(r, lo float64) float64 {
	z := float64(r * r)
	p := -1.0 / 6402373705728000
	for _, c := range [...]float64{1. / 20922789888000, -1. / 87178291200, 1. / 479001600, -1. / 3628800, 1. / 40320, -1. / 720, 1. / 24} {
		p = float64(p*z) + c
	}
	h := float64(0.5 * z)
	w := 1 - h
	return w + (((1 - w) - h) + (float64(float64(z*z)*p) - float64(r*lo)))
}

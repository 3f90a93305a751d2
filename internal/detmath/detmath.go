// Package detmath computes elementary functions in float64 with the same bits on every CPU, operating system and GOAMD64 level.
//
// math.Exp and its neighbours use assembly or fused operations where a CPU has them, so their last bit differs between machines.
// Here every product that is added to something is rounded first by an explicit conversion, which forbids fusing, and only
// operations that IEEE 754 defines exactly are used. All functions stay within one unit in the last place of the true value.
package detmath

import "math"

const (
	ln2Hi      = 0x1.62e42feep-1 // ln 2, first 32 bits: its product with an exponent is exact
	ln2Lo      = 0x1.a39ef35793c76p-33
	ln2Lo2     = 0x1.cc01f97b57a08p-87
	ln2Over32A = 0x1.62e42feep-6 // ln 2 / 32, first 32 bits
	ln2Over32B = 0x1.a39ef35793c76p-38
	inv32Ln2   = 0x1.71547652b82fep+5
	toInteger  = 0x1.8p52 // adding and subtracting it rounds |x| < 2^51 to the nearest integer, ties to even

	maxExp = 0x1.62e42fefa39efp+9  // above it Exp overflows
	minExp = -0x1.74910d52d3051p+9 // below it Exp is 0
)

// Exp returns e**x. Exp(+Inf) = +Inf, Exp(-Inf) = 0, Exp(NaN) = NaN; results below the smallest normal number are rounded to a
// subnormal one.
func Exp(x float64) float64 {
	switch {
	case x != x || x > math.MaxFloat64:
		return x
	case x > maxExp:
		return math.Inf(1)
	case x < minExp:
		return 0
	}
	hi, lo, m := expParts(x, 0)
	return scale(hi+lo, m)
}

// expParts returns e**(x+xLo) as (hi + lo) * 2**m with hi in [1, 2), for |x| < 800 and |xLo| below a unit of x.
// x = (32m + j) ln2/32 + r, |r| <= ln2/64, and e**r - 1 is a power series.
func expParts(x, xLo float64) (hi, lo float64, m int) {
	k := (float64(x*inv32Ln2) + toInteger) - toInteger
	r := x - float64(k*ln2Over32A) - float64(k*ln2Over32B) + xLo
	p := float64(r*(1.0/720)) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	p = r + float64(float64(r*r)*p)
	n := int(k)
	j := n & 31
	t := exp2Hi[j]
	return t, exp2Lo[j] + float64(t*p), n >> 5
}

// pow2 returns 2**m for m in [-1022, 1023].
func pow2(m int) float64 { return math.Float64frombits(uint64(m+1023) << 52) }

// scale returns x * 2**m with one rounding, for x in [1, 4) and m > -1200; it overflows to +Inf.
func scale(x float64, m int) float64 {
	switch {
	case m > 1023:
		return float64(float64(x*0x1p1023) * 2) // without the conversion y*2 becomes y+y, and that is fused
	case m < -1022:
		return float64(float64(x*pow2(m+200)) * 0x1p-200)
	}
	return float64(x * pow2(m))
}

// Log returns the natural logarithm of x. Log(0) = -Inf, Log(x < 0) = NaN, Log(+Inf) = +Inf.
func Log(x float64) float64 {
	switch {
	case x != x || x > math.MaxFloat64:
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	f, k := logReduce(x)
	return logParts(f, 0, k)
}

// logReduce returns f and k with x = (1 + f) * 2**k and 1 + f in [sqrt(1/2), sqrt(2)), for a finite x > 0.
func logReduce(x float64) (f float64, k int) {
	if x < 0x1p-1022 {
		x *= 0x1p54
		k = -54
	}
	b := math.Float64bits(x)
	k += int(b>>52) - 1023
	m := math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if m >= math.Sqrt2 {
		m = float64(m * 0.5)
		k++
	}
	return m - 1, k
}

// logParts returns log(1+f) + lo + k ln2 for 1 + f in [0.7, 1.42): with s = f/(2+f), log(1+f) = f - f²/2 + s (f²/2 + R(s²)).
func logParts(f, lo float64, k int) float64 {
	s := f / (2 + f)
	z := float64(s * s)
	p := 2.0 / 23
	for _, c := range [...]float64{2. / 21, 2. / 19, 2. / 17, 2. / 15, 2. / 13, 2. / 11, 2. / 9, 2. / 7, 2. / 5, 2. / 3} {
		p = float64(p*z) + c
	}
	h := float64(0.5 * float64(f*f))
	rest := float64(s * (h + float64(z*p)))
	n := float64(k)
	return float64(n*ln2Hi) - ((h - (rest + (float64(n*ln2Lo) + lo))) - f)
}

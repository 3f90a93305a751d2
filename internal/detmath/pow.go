package detmath

import "math"

// Pow returns x**y, with the special cases of math.Pow.
func Pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case y == 1:
		return x
	case x != x || y != y:
		return math.NaN()
	case x == 0 || math.IsInf(x, 0) || math.IsInf(y, 0):
		return powEdge(x, y)
	}
	negative := false
	if x < 0 {
		if math.Floor(y) != y {
			return math.NaN()
		}
		negative = isOdd(y)
		x = -x
	}
	r := powPositive(x, y)
	if negative {
		return -r
	}
	return r
}

// isOdd reports whether y is an odd integer; every float64 of 2^53 or more is even.
func isOdd(y float64) bool {
	y = math.Abs(y)
	return y < 0x1p53 && math.Floor(y) == y && int64(y)&1 == 1
}

// powEdge is Pow where x is 0 or infinite, or y is infinite.
func powEdge(x, y float64) float64 {
	if math.IsInf(y, 0) {
		switch a := math.Abs(x); {
		case a == 1:
			return 1
		case (a > 1) == (y > 0):
			return math.Inf(1)
		}
		return 0
	}
	r := 0.0
	if (x == 0) == (y < 0) {
		r = math.Inf(1)
	}
	if math.Signbit(x) && isOdd(y) {
		return -r
	}
	return r
}

// powPositive returns x**y for finite x > 0: e**(y log x), the logarithm and its product with y carried in two words.
func powPositive(x, y float64) float64 {
	hi, lo := logTwo(x)
	if a := math.Abs(y); a > 0x1p64 {
		y = math.Copysign(0x1p64, y) // far past overflow unless x is 1
	}
	p := float64(y * hi)
	switch {
	case p > maxExp+1:
		return math.Inf(1)
	case p < minExp-1:
		return 0
	}
	e := math.FMA(y, hi, -p) + float64(y*lo)
	h, l, m := expParts(p, e)
	v := h + l
	if m < -1100 {
		return 0
	}
	return scale(v, m)
}

// logTwo returns log(x) as hi + lo, good to about 65 bits, for finite x > 0:
// log(1+f) = 2s + 2s³/3 + 2s⁵(1/5 + s²/7 + ...), s = f/(2+f).
func logTwo(x float64) (hi, lo float64) {
	f, k := logReduce(x)
	d, dLo := twoSum(2, f)
	s := f / d
	sLo := (math.FMA(-s, d, f) - float64(s*dLo)) / d
	z := float64(s * s)
	zLo := math.FMA(s, s, -z) + float64(2*float64(s*sLo))
	p := 2.0 / 25
	for _, c := range [...]float64{2. / 23, 2. / 21, 2. / 19, 2. / 17, 2. / 15, 2. / 13, 2. / 11, 2. / 9, 2. / 7, 2. / 5} {
		p = float64(p*z) + c
	}
	// 2/3 + z p in two words
	const thirdHi, thirdLo = 0x1.5555555555555p-1, 0x1.5555555555555p-55
	zp := float64(z * p)
	zpLo := math.FMA(z, p, -zp) + float64(zLo*p)
	a, aLo := twoSum(thirdHi, zp)
	aLo += thirdLo + zpLo
	// times z, plus 2, times s
	b := float64(z * a)
	bLo := math.FMA(z, a, -b) + float64(z*aLo) + float64(zLo*a)
	c, cLo := twoSum(2, b)
	cLo += bLo
	h := float64(s * c)
	hLo := math.FMA(s, c, -h) + float64(s*cLo) + float64(sLo*c)
	n := float64(k)
	t, tLo := twoSum(float64(n*ln2Hi), h)
	u, uLo := twoSum(t, float64(n*ln2Lo))
	uLo += tLo + hLo + float64(n*ln2Lo2) + math.FMA(n, ln2Lo, -float64(n*ln2Lo))
	hi = u + uLo
	return hi, uLo - (hi - u)
}

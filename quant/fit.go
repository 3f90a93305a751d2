package quant

import "math"

// Quantisers of the formats that have scales of scales. They minimise the squared error, each weight's times its
// importance: first a scale (and a minimum) for each group of weights is found by trying several roundings and solving for
// the best scale of each, then the group scales are rounded to the block's, and at last the neighbours of each rounded
// scale are tried.

// encoder rounds the weights src to blocks; the importances w, as many, are finite and not negative. Nil is all the same.
type encoder func(dst []byte, src, w []float32)

// even is the encoder for weights that all count the same.
func (e encoder) even(dst []byte, src []float32) { e(dst, src, nil) }

// ones are the importances of a block whose weights all count the same. Multiplying by 1 is exact.
var ones = func() (w [256]float32) {
	for i := range w {
		w[i] = 1
	}
	return w
}()

// importance returns the importances of n weights. Where none has any all count the same.
func importance(w []float32, from, n int) []float32 {
	if w == nil {
		return ones[:n]
	}
	w = w[from:][:n]
	for _, v := range w {
		if v != 0 {
			return w
		}
	}
	return ones[:n]
}

// prod rounds a product of sums, which are kept in float64, so that no build fuses it with an addition.
func prod(a, b float64) float64 { return float64(a * b) }

// roundSmall rounds a float32 of magnitude below 2^22 to an integer, ties to even.
func roundSmall(v float32) float32 { return float32(v+12582912) - 12582912 }

// grid is the set of values that codes stand for: the integers low..high, or the entries of a table.
type grid struct {
	low, high float32
	snap      *[512]uint8 // code of the table's entry nearest to v, at floor(2v) + 256
	table     *[16]int8
}

// newGrid returns the grid of an ascending table. Half-way points are multiples of 1/2, so floor(2v) tells their sides.
func newGrid(table *[16]int8) *grid {
	g := &grid{low: float32(table[0]), high: float32(table[15]), snap: new([512]uint8), table: table}
	code := 0
	for i := range g.snap {
		for code < 15 && i-256 >= int(table[code])+int(table[code+1]) {
			code++
		}
		g.snap[i] = uint8(code)
	}
	return g
}

func (g *grid) clamp(v float32) float32 {
	if !(v > g.low) {
		return g.low
	}
	if v > g.high {
		return g.high
	}
	return v
}

// code returns the code of the table's entry nearest to v.
func (g *grid) code(v float32) byte { return g.snap[int(float32(2*g.clamp(v))+256)&511] }

// nearest returns the value of the grid nearest to v.
func (g *grid) nearest(v float32) float32 {
	if g.snap == nil {
		return roundSmall(g.clamp(v))
	}
	return float32(g.table[g.code(v)&15])
}

// fitScale returns the scale d for which d*grid comes nearest to x, whose values have the importances w. The value of the largest magnitude is tried at
// places around each of the peaks, the ends of the grid.
func fitScale(x, w []float32, g *grid, peaks ...float32) float32 {
	const steps = 10
	w = w[:len(x)]
	far := farthest(x)
	if far == 0 || far-far != 0 {
		return 0
	}
	var best, scale float64
	for _, peak := range peaks {
		reach := max(1, prod(0.11, math.Abs(float64(peak)))) // a code at least: Q3_K has -1, 0, 1 exactly with -3, 0, 3
		for step := -steps; step <= steps; step++ {
			inv := float32((float64(peak) + prod(reach/steps, float64(step))) / float64(far))
			var xv, vv float64
			for i, v := range x {
				q := float64(g.nearest(v * inv))
				wq := prod(float64(w[i]), q)
				xv += prod(float64(v), wq)
				vv += prod(q, wq)
			}
			if gain := prod(xv, xv); vv > 0 && gain > prod(best, vv) {
				best, scale = gain/vv, xv/vv
			}
		}
	}
	return float32(scale)
}

// scaleError returns the weighted squared error of x when it is rounded to d*grid.
func scaleError(x, w []float32, g *grid, d float32) float64 {
	inv, w := inverse(d), w[:len(x)]
	var sum float64
	for i, v := range x {
		e := float64(v) - float64(d*g.nearest(v*inv))
		sum += prod(float64(w[i]), prod(e, e))
	}
	return sum
}

// roundScale returns the integer in low..high whose product with d serves x best: the nearest to scale or a neighbour.
func roundScale(x, w []float32, g *grid, d, scale float32, low, high int) int8 {
	if d == 0 {
		return 0
	}
	near := int((&grid{low: float32(low), high: float32(high)}).nearest(scale / d))
	best, bestErr := near, math.Inf(1)
	for sc := max(low, near-1); sc <= min(high, near+1); sc++ {
		if e := scaleError(x, w, g, d*float32(sc)); e < bestErr {
			best, bestErr = sc, e
		}
	}
	return int8(best)
}

// affine is a scale and a minimum: w = scale*q - low, both at least 0.
type affine struct{ scale, low float32 }

// coder rounds weights to codes 0..top under an affine.
type coder struct{ low, inv, top float32 }

func (a affine) coder(top int) coder { return coder{a.low, inverse(a.scale), float32(top)} }

// code returns the nearest code, as a number.
func (c coder) code(v float32) float32 {
	q := float32((v + c.low) * c.inv)
	if !(q > 0) {
		return 0
	}
	if q > c.top {
		return c.top
	}
	return roundSmall(q)
}

// error returns the weighted squared error of x under a.
func (a affine) error(x, w []float32, top int) float64 {
	var sum float64
	c, w := a.coder(top), w[:len(x)]
	for i, v := range x {
		e := float64(v) - float64(float32(a.scale*c.code(v))-a.low)
		sum += prod(float64(w[i]), prod(e, e))
	}
	return sum
}

// fitAffine finds the scale and minimum for codes 0..top of x, whose values have the importances w.
func fitAffine(x, w []float32, top int) affine {
	const steps, stepSize = 12, 0.1 // the range is spread over top-1.2 .. top+1.2 codes
	low, high := bounds(x)
	low = min(low, 0)
	if !(high > low) || high-high != 0 || low-low != 0 {
		return affine{low: -low}
	}
	best, bestErr := affine{}, math.Inf(1)
	for step := -steps; step <= steps; step++ {
		span := float64(top) + prod(stepSize, float64(step))
		a := affine{scale: float32((float64(high) - float64(low)) / span), low: -low}
		if a, e := a.solve(x, w, top); e < bestErr {
			best, bestErr = a, e
		}
	}
	if a, e := best.solve(x, w, top); e < bestErr {
		return a
	}
	return best
}

// solve rounds x to codes under a and returns the scale and minimum that serve these codes best, with the weighted squared
// error.
func (a affine) solve(x, w []float32, top int) (affine, float64) {
	c, w := a.coder(top), w[:len(x)]
	var n, sumX, sumXX, sumQ, sumXQ, sumQQ float64 // sums of w times what their names say; n of w alone
	for i, v := range x {
		x, q, w := float64(v), float64(c.code(v)), float64(w[i])
		wx, wq := prod(w, x), prod(w, q)
		n += w
		sumX += wx
		sumXX += prod(x, wx)
		sumQ += wq
		sumXQ += prod(x, wq)
		sumQQ += prod(q, wq)
	}
	scale, low := float64(a.scale), float64(a.low)
	if det := prod(n, sumQQ) - prod(sumQ, sumQ); det > 0 {
		scale = (prod(n, sumXQ) - prod(sumX, sumQ)) / det
		low = (prod(sumQ, sumXQ) - prod(sumQQ, sumX)) / det
		if low < 0 {
			scale, low = sumXQ/sumQQ, 0
		}
	}
	// The sum of w*(scale*q - low - x)^2.
	e := sumXX + prod(prod(scale, scale), sumQQ) + prod(n, prod(low, low)) +
		prod(2, prod(low, sumX)-prod(scale, sumXQ)-prod(prod(scale, low), sumQ))
	return affine{float32(scale), float32(low)}, e
}

// roundAffine returns the integers in 0..high whose products with d and dmin serve x best.
func roundAffine(x, w []float32, top int, a affine, d, dmin float32, high int) (sc, mn byte) {
	near := func(v, unit float32) int {
		if unit == 0 {
			return 0
		}
		return int((&grid{high: float32(high)}).nearest(v / unit))
	}
	sc0, mn0 := near(a.scale, d), near(a.low, dmin)
	bestErr := math.Inf(1)
	for s := max(0, sc0-1); s <= min(high, sc0+1); s++ {
		for m := max(0, mn0-1); m <= min(high, mn0+1); m++ {
			if e := (affine{float32(d * float32(s)), float32(dmin * float32(m))}).error(x, w, top); e < bestErr {
				sc, mn, bestErr = byte(s), byte(m), e
			}
		}
	}
	return sc, mn
}

// putUnits stores the units of scales and minima, the largest of each divided by high, as two f16 and returns them.
func putUnits(dst []byte, fits []affine, high float32) (d, dmin float32) {
	for _, fit := range fits {
		d, dmin = max(d, fit.scale), max(dmin, fit.low)
	}
	return putHalf(dst, d/high), putHalf(dst[2:], dmin/high)
}

package quant

import "math"

// Quantisers of the formats that have scales of scales. They minimise the plain squared error: first a scale (and a
// minimum) for each group of weights is found by trying several roundings and solving for the best scale of each, then
// the group scales are rounded to the block's, and at last the neighbours of each rounded scale are tried.

// square sums are kept in float64; products are rounded explicitly so that no build fuses them.
func prod(a, b float64) float64 { return float64(a * b) }

// grid rounds a weight that was divided by the scale to a value that a code can stand for.
type grid interface{ nearest(v float32) float32 }

// integers is the grid low..high.
type integers struct{ low, high float32 }

func (g integers) nearest(v float32) float32 {
	return max(g.low, min(g.high, float32(math.RoundToEven(float64(v)))))
}

// uneven is the grid of an ascending table.
type uneven [16]int8

func (g *uneven) nearest(v float32) float32 { return float32(g[g.code(v)]) }

// code returns the index of the nearest value.
func (g *uneven) code(v float32) byte {
	low, high := 0, len(g)-1
	for high-low > 1 {
		if mid := (low + high) / 2; v < float32(g[mid]) {
			high = mid
		} else {
			low = mid
		}
	}
	if v-float32(g[low]) > float32(g[high])-v {
		return byte(high)
	}
	return byte(low)
}

// fitScale returns the scale d for which d*grid comes nearest to x. The value of the largest magnitude is tried at
// places around each of the peaks, the ends of the grid.
func fitScale(x []float32, g grid, peaks ...float32) float32 {
	const steps, stepSize = 9, 0.0125 // places within 11 % of the peak
	far := farthest(x)
	if far == 0 || far-far != 0 {
		return 0
	}
	var best, scale float64
	for _, peak := range peaks {
		for step := -steps; step <= steps; step++ {
			inv := float32(float64(peak) * (1 + prod(stepSize, float64(step))) / float64(far))
			var xv, vv float64
			for _, v := range x {
				q := float64(g.nearest(v * inv))
				xv += prod(float64(v), q)
				vv += prod(q, q)
			}
			if gain := prod(xv, xv); vv > 0 && gain > prod(best, vv) {
				best, scale = gain/vv, xv/vv
			}
		}
	}
	return float32(scale)
}

// scaleError returns the squared error of x when it is rounded to d*grid.
func scaleError(x []float32, g grid, d float32) float64 {
	inv := inverse(d)
	var sum float64
	for _, v := range x {
		e := float64(v) - float64(d*g.nearest(v*inv))
		sum += prod(e, e)
	}
	return sum
}

// roundScale returns the integer in low..high whose product with d serves x best: the nearest to scale or a neighbour.
func roundScale(x []float32, g grid, d, scale float32, low, high int) int8 {
	if d == 0 {
		return 0
	}
	near := int(max(float32(low), min(float32(high), float32(math.RoundToEven(float64(scale/d))))))
	best, bestErr := near, math.Inf(1)
	for sc := max(low, near-1); sc <= min(high, near+1); sc++ {
		if e := scaleError(x, g, d*float32(sc)); e < bestErr {
			best, bestErr = sc, e
		}
	}
	return int8(best)
}

// affine is a scale and a minimum: w = scale*q - low, both at least 0.
type affine struct{ scale, low float32 }

// code returns the nearest code in 0..top.
func (a affine) code(v float32, top int) uint32 {
	if a.scale == 0 {
		return 0
	}
	q := math.RoundToEven(float64((v + a.low) / a.scale))
	return uint32(max(0, min(float64(top), q)))
}

// error returns the squared error of x under a.
func (a affine) error(x []float32, top int) float64 {
	var sum float64
	for _, v := range x {
		e := float64(v) - float64(float32(a.scale*float32(a.code(v, top)))-a.low)
		sum += prod(e, e)
	}
	return sum
}

// fitAffine finds the scale and minimum for codes 0..top.
func fitAffine(x []float32, top int) affine {
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
		a = a.solve(x, top).solve(x, top)
		if e := a.error(x, top); e < bestErr {
			best, bestErr = a, e
		}
	}
	return best
}

// solve rounds x to codes under a and returns the scale and minimum that serve these codes best.
func (a affine) solve(x []float32, top int) affine {
	n := float64(len(x))
	var sumX, sumQ, sumXQ, sumQQ float64
	for _, v := range x {
		q := float64(a.code(v, top))
		sumX += float64(v)
		sumQ += q
		sumXQ += prod(float64(v), q)
		sumQQ += prod(q, q)
	}
	det := prod(n, sumQQ) - prod(sumQ, sumQ)
	if sumQQ == 0 || det <= 0 {
		return a
	}
	scale := (prod(n, sumXQ) - prod(sumX, sumQ)) / det
	low := (prod(sumQ, sumXQ) - prod(sumQQ, sumX)) / det
	if low < 0 {
		scale, low = sumXQ/sumQQ, 0
	}
	if scale <= 0 {
		return a
	}
	return affine{float32(scale), float32(low)}
}

// roundAffine returns the integers in 0..high whose products with d and dmin serve x best.
func roundAffine(x []float32, top int, a affine, d, dmin float32, high int) (sc, mn byte) {
	near := func(v, unit float32) int {
		if unit == 0 {
			return 0
		}
		return int(max(0, min(float32(high), float32(math.RoundToEven(float64(v/unit))))))
	}
	sc0, mn0 := near(a.scale, d), near(a.low, dmin)
	bestErr := math.Inf(1)
	for s := max(0, sc0-1); s <= min(high, sc0+1); s++ {
		for m := max(0, mn0-1); m <= min(high, mn0+1); m++ {
			if e := (affine{d * float32(s), dmin * float32(m)}).error(x, top); e < bestErr {
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

package sample

import (
	"math"

	"quickdraft/internal/detmath"
)

// typicalP keeps the tokens whose surprise is nearest to the entropy until their sum reaches p, and all as near as the last.
func (w *Workspace) typicalP(p float64) {
	c := &w.cand
	if p >= 1 {
		return
	}
	c.weigh()
	sum, inv := c.sum, 1/c.temp
	logSum := detmath.Log(sum)
	entropy := logSum - c.surprise(inv)/sum
	// As in topP, half of (1-p)/n is after the border if nothing more probable can come after it: nothing does where the surprise
	// is over twice the entropy.
	lowest := float64(sum * min(float64(0.5*(1-p))/float64(c.n), float64(0.999*detmath.Exp(float64(-2*entropy)))))
	flat := c.isFlat(lowest)
	if !flat {
		c.keepWeights(lowest)
	}
	c.widen()
	keys := w.keys[:c.n]
	farthest := c.kernels.nearnesses(keys, c.logit[:c.n], c.top, inv, logSum, entropy)
	w.keepTypical(keys, min(16, max(-farthest, 1e-6)), float64(p*sum), flat)
}

// keepTypical drops what is beyond the border of the keys.
func (w *Workspace) keepTypical(keys []float64, span, target float64, flat bool) {
	c := &w.cand
	if flat {
		if cut, ok := w.flatBorder(keys, 0, span, target); ok {
			top := c.top
			c.hide(keys, cut.key, 0)
			c.findTop()
			if c.weighed = c.top == top; c.weighed {
				c.addSums()
			}
			return
		}
	}
	cut, ok := w.sel.border(keys, c.w[:c.n], span, target)
	if !ok {
		return
	}
	n := 0
	c.top = math.Inf(-1)
	for i, key := range keys {
		if key >= cut.key {
			c.top = max(c.top, c.logit[i])
			c.move(n, i)
			n++
		}
	}
	c.shrink(n)
	c.weighed = false // top may have gone
}

// surprise adds up the weights times their logarithms, (logit-top)*inv: 4 lanes of every 4th entry, then the lanes in order.
func (c *candidates) surprise(inv float64) float64 {
	lanes := &c.lanes
	*lanes = [4]float64{}
	if c.row != nil {
		n := whole(c.kernels.surprise != nil, c.n, blockSize)
		if n > 0 {
			c.kernels.surprise(&lanes[0], &c.row[0], &c.w[0], n, c.top, inv)
		}
		goSurprise(lanes, c.row[n*blockSize:c.n], c.w[n*blockSize:], c.top, inv)
	} else {
		n := whole(c.kernels.surprise64 != nil, c.n, blockSize)
		if n > 0 {
			c.kernels.surprise64(&lanes[0], &c.logit[0], &c.w[0], n, c.top, inv)
		}
		goSurprise(lanes, c.logit[n*blockSize:c.n], c.w[n*blockSize:], c.top, inv)
	}
	return lanes[0] + lanes[1] + lanes[2] + lanes[3]
}

// goSurprise adds the terms of x to the lanes; those behind the last run of 4 go to the first lane.
func goSurprise[T float32 | float64](lanes *[4]float64, x []T, w []float64, top, inv float64) {
	a, b, c, d := lanes[0], lanes[1], lanes[2], lanes[3]
	term := func(v T, w float64) float64 {
		if w > 0 {
			return float64(w * float64((float64(v)-top)*inv))
		}
		return 0
	}
	for ; len(x) >= 4; x, w = x[4:], w[4:] {
		w := w[:4]
		a, b, c, d = a+term(x[0], w[0]), b+term(x[1], w[1]), c+term(x[2], w[2]), d+term(x[3], w[3])
	}
	for i, v := range x {
		a += term(v, w[i])
	}
	*lanes = [4]float64{a, b, c, d}
}

// nearnesses sets keys to how near the surprise of each x is to the entropy, 0 at best, and returns the lowest of them that is finite.
func (k *kernelSet) nearnesses(keys, x []float64, top, inv, logSum, entropy float64) (farthest float64) {
	n := whole(k.nearness != nil, len(x), blockSize)
	if n > 0 {
		farthest = k.nearness(&keys[0], &x[0], n, top, inv, logSum, entropy)
	}
	return min(farthest, goNearness(keys[n*blockSize:], x[n*blockSize:], top, inv, logSum, entropy))
}

func goNearness(keys, x []float64, top, inv, logSum, entropy float64) (farthest float64) {
	for i, l := range x {
		key := -math.Abs(logSum - float64((l-top)*inv) - entropy)
		if keys[i] = key; key < farthest && key > negInf {
			farthest = key
		}
	}
	return farthest
}

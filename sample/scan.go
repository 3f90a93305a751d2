package sample

import "math/bits"

// pick moves the marked candidates of the block that begins at lo to the front of the list, from place n on, and returns the
// next place. A loop for each column needs no more registers than there are.
func (c *candidates) pick(lo, n int) int {
	at := c.places[:c.decode(lo)]
	id := c.id[n : n+len(at)]
	if c.dense {
		copy(id, at)
	} else {
		for k, i := range at {
			id[k] = c.id[i]
		}
	}
	logit := c.logit[n : n+len(at)]
	if row := c.row; row != nil {
		for k, i := range at {
			logit[k] = float64(row[i])
		}
	} else {
		from := c.logit
		for k, i := range at {
			logit[k] = from[i]
		}
	}
	if c.weighed {
		from, w := c.w, c.w[n:n+len(at)]
		for k, i := range at {
			w[k] = from[i]
		}
	}
	return n + len(at)
}

// decode lists the marked candidates of the block that begins at lo in places and returns how many they are.
func (c *candidates) decode(lo int) (n int) {
	places := &c.places
	for _, word := range c.marked {
		for ; word != 0; word &= word - 1 {
			places[n&(blockSize-1)] = int32(lo + bits.TrailingZeros64(word))
			n++
		}
		lo += 64
	}
	return n
}

// markLogits marks the candidates of a block whose logit is low or more; it returns the block's begin.
func (c *candidates) markLogits(b int, low float64) (lo int) {
	lo, hi := c.block(b)
	if c.row != nil {
		c.kernels.atLeast32(&c.marked, c.row[lo:hi], narrowUp(low))
	} else {
		c.kernels.atLeast64Of(&c.marked, c.logit[lo:hi], low)
	}
	return lo
}

// block returns the borders of a block of the list.
func (c *candidates) block(b int) (lo, hi int) { return b * blockSize, min((b+1)*blockSize, c.n) }

// keepLogits drops the candidates with a logit below low, which is at most top, and those of -Inf.
func (c *candidates) keepLogits(low float64) {
	low = max(low, lowest)
	n := 0
	for b, top := range c.blockTops() {
		if top >= low {
			n = c.pick(c.markLogits(b, low), n)
		}
	}
	c.shrink(n)
}

// hide forbids the candidates whose key is below low, and the first skip of those whose key it is; they keep their places, and
// the caller adds up what is left. It is for lists most of which stay.
func (c *candidates) hide(keys []float64, low float64, skip int) {
	c.widen()
	logit, w := c.logit[:c.n], c.w[:c.n]
	c.kernels.forbidden(logit, w, keys, low)
	for i := 0; skip > 0; i++ {
		if keys[i] == low {
			logit[i], w[i] = negInf, 0
			skip--
		}
	}
	c.topped = false
}

// keepWeights drops the candidates with a weight below low, which is at most 1. A sum is never below what it adds.
func (c *candidates) keepWeights(low float64) {
	c.weigh()
	n := 0
	for b, s := range c.sums[:nBlocks(c.n)] {
		if s >= low {
			lo, hi := c.block(b)
			c.kernels.atLeast64Of(&c.marked, c.w[lo:hi], low)
			n = c.pick(lo, n)
		}
	}
	c.shrink(n)
}

// atLeast calls f with the candidates whose logit is low or more, in order. f must not go through the list itself.
func (c *candidates) atLeast(low float64, f func(i int)) {
	for b, top := range c.blockTops() {
		if top < low {
			continue
		}
		for _, i := range c.places[:c.decode(c.markLogits(b, low))] {
			f(int(i))
		}
	}
}

// overWeights calls f with the candidates whose weight is low or more, block by block and in order. f must not go through the list
// itself.
func (c *candidates) overWeights(low float64, f func(at []int32)) {
	for b, s := range c.sums[:nBlocks(c.n)] {
		if s < low {
			continue
		}
		lo, hi := c.block(b)
		c.kernels.atLeast64Of(&c.marked, c.w[lo:hi], low)
		f(c.places[:c.decode(lo)])
	}
}

// massWhere is the sum of the weights whose key is low or more.
func (c *candidates) massWhere(keys []float64, low float64) (sum float64) {
	part := c.part[:nBlocks(c.n)]
	c.kernels.sumsWhere(part, c.w[:c.n], keys, low)
	for _, s := range part {
		sum += s
	}
	return sum
}

// sumOf adds up the numbers of x and counts them: 4 lanes of every 4th entry, then the lanes in order. -Inf counts as nothing.
func sumOf[T float32 | float64](x []T) (sum float64, n int) {
	var a, b, c, d float64
	n = len(x)
	number := func(v T) float64 {
		if f := float64(v); f > negInf {
			return f
		}
		n--
		return 0
	}
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = a+number(x[0]), b+number(x[1]), c+number(x[2]), d+number(x[3])
	}
	for _, v := range x {
		a += number(v)
	}
	return a + b + c + d, n
}

// squaresOf adds up the squares of the distances from mean, as sumOf does.
func squaresOf[T float32 | float64](x []T, mean float64) float64 {
	var a, b, c, d float64
	square := func(v T) float64 {
		if d := float64(v) - mean; d > negInf {
			return float64(d * d)
		}
		return 0
	}
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = a+square(x[0]), b+square(x[1]), c+square(x[2]), d+square(x[3])
	}
	for _, v := range x {
		a += square(v)
	}
	return a + b + c + d
}

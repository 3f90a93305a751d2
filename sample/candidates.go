package sample

import (
	"fmt"
	"math"
	"slices"

	"quickdraft/internal/detmath"
)

// candidates are the tokens still in play, always in the order of their ids, with finite logits.
type candidates struct {
	n     int       // how many
	dense bool      // no token was removed: candidate i is id i and id[] is not filled
	logit []float64 // (vocab); temperature is not applied yet
	id    []int32   // (vocab)
	w     []float64 // (vocab) exp((logit-top)/temp); valid while weighed
	sum   float64   // of w[:n], in order
	top   float64   // highest logit
	temp  float64   // divisor of the logits still to be applied

	weighed bool
	stale   bool // the highest logit was lowered: top must be looked for again
}

func newCandidates(vocab int) candidates {
	return candidates{logit: make([]float64, vocab), id: make([]int32, vocab), w: make([]float64, vocab)}
}

// load copies a row of logits. A NaN or +Inf is an error; -Inf stands for a token that may not be chosen.
func load[T float32 | float64](c *candidates, logits []T) error {
	dst := c.logit[:len(logits)]
	top, masked := math.Inf(-1), false
	for i, l := range logits {
		v := float64(l)
		if !(v >= -math.MaxFloat32) { // -Inf, below the range, or NaN
			if !math.IsInf(v, -1) {
				return badLogit(i, v)
			}
			masked = true
		}
		if v > top {
			top = v
		}
		dst[i] = v
	}
	if top > math.MaxFloat32 {
		return badLogit(slices.Index(dst, top), top)
	}
	c.n, c.dense, c.top, c.temp, c.weighed = len(logits), true, top, 1, false
	if masked {
		return c.dropForbidden()
	}
	return nil
}

func badLogit(token int, value float64) error {
	return fmt.Errorf("logit of token %d is %v: the model's output is not a number", token, value)
}

// dropForbidden removes the candidates with a logit of -Inf.
func (c *candidates) dropForbidden() error {
	c.keepLogits(-math.MaxFloat64)
	if c.n == 0 {
		return fmt.Errorf("no token may be chosen: mask and logit_bias forbid all %d of the vocabulary", len(c.logit))
	}
	return nil
}

// idAt returns the token of candidate i.
func (c *candidates) idAt(i int) int32 {
	if c.dense {
		return int32(i)
	}
	return c.id[i]
}

// set changes one logit; changed must follow the last of them.
func (c *candidates) set(i int, logit float64) {
	if c.logit[i] == c.top {
		c.stale = true
	}
	c.logit[i] = logit
	if logit > c.top {
		c.top = logit
	}
}

// changed restores top after logits were changed.
func (c *candidates) changed() {
	c.weighed = false
	if c.stale {
		c.findTop()
	}
}

// findTop looks for the highest logit.
func (c *candidates) findTop() {
	c.stale = false
	c.top = math.Inf(-1)
	for _, l := range c.logit[:c.n] {
		if l > c.top {
			c.top = l
		}
	}
}

// settle applies the pending temperature, before logits are changed by something that comes after it.
func (c *candidates) settle() {
	if c.temp == 1 {
		return
	}
	for i := range c.logit[:c.n] {
		c.logit[i] /= c.temp
	}
	c.top /= c.temp
	c.temp = 1
}

// weigh computes the weights; a probability is w/sum.
func (c *candidates) weigh() {
	if !c.weighed {
		c.sum = detmath.ExpSum(c.w[:c.n], c.logit[:c.n], c.top, 1/c.temp)
		c.weighed = true
	}
}

// keepLogits drops the candidates with a logit below low, which is at most top.
func (c *candidates) keepLogits(low float64) {
	n := 0
	for i, l := range c.logit[:c.n] {
		if l >= low {
			c.move(n, i)
			n++
		}
	}
	c.shrink(n)
}

// keepWeights drops the candidates with a weight below low, which is at most 1.
func (c *candidates) keepWeights(low float64) {
	c.weigh()
	n := 0
	for i, w := range c.w[:c.n] {
		if w >= low {
			c.move(n, i)
			n++
		}
	}
	c.shrink(n)
}

// move makes candidate i the n-th of the new list, n <= i.
func (c *candidates) move(n, i int) {
	c.id[n] = c.idAt(i)
	c.logit[n] = c.logit[i]
	if c.weighed {
		c.w[n] = c.w[i]
	}
}

// shrink ends a pass of moves: n candidates are left.
func (c *candidates) shrink(n int) {
	if n == c.n {
		return // ids of a dense list may have been written; they are what idAt returns
	}
	c.n, c.dense = n, false
	if c.weighed {
		c.sum = 0
		for _, w := range c.w[:n] {
			c.sum += w
		}
	}
}

// keepTop drops the candidates below a cut of their logits.
func (c *candidates) keepTop(cut cut) {
	skip := cut.equal - cut.ties
	n := 0
	for i, l := range c.logit[:c.n] {
		if l < cut.key {
			continue
		}
		if l == cut.key && skip > 0 {
			skip--
			continue
		}
		c.move(n, i)
		n++
	}
	c.shrink(n)
}

// argmax returns the id of the highest logit, the lowest id on a tie.
func (c *candidates) argmax() int32 {
	for i, l := range c.logit[:c.n] {
		if l == c.top {
			return c.idAt(i)
		}
	}
	return -1
}

// draw returns the index of the candidate in whose share of the distribution u of [0, 1) falls.
func (c *candidates) draw(u float64) int {
	c.weigh()
	target, acc, last := float64(u*c.sum), 0.0, 0
	for i, w := range c.w[:c.n] {
		if w == 0 {
			continue
		}
		last = i
		if acc += w; acc > target {
			return i
		}
	}
	return last // rounding left target at the very end
}

var negInf = math.Inf(-1)

package sample

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// candidates are the tokens still in play, always in the order of their ids. A logit is finite, or -Inf for a token that may
// not be chosen: its weight is 0, so it is as good as dropped.
//
// A trip over a vocabulary costs more than all that follows it, so a fresh list is the model's row itself, with the highest
// logit of each block of 128: most steps look into a few blocks and copy what they keep.
type candidates struct {
	n     int       // how many
	dense bool      // no token was removed: candidate i is id i and id[] is not filled
	row   []float32 // the logits while the list is dense and none was changed; nil: logit has them
	logit []float64 // (vocab); temperature is not applied yet
	id    []int32   // (vocab)
	tops  []float64 // (blocks) highest logits of each 128; valid while topped
	w     []float64 // (vocab) exp((logit-top)/temp); valid while weighed
	sums  []float64 // (blocks) of w, each in the order of detmath.Sum
	sum   float64   // of sums, in order
	top   float64   // highest logit
	temp  float64   // divisor of the logits still to be applied

	topped  bool
	weighed bool
	stale   bool // the highest logit was lowered: top must be looked for again

	kernels *kernelSet
	narrow  []float32 // (blocks)
	part    []float64 // (blocks)
	marked  mask      // of the block at hand
	places  [blockSize]int32
	lanes   [4]float64 // of surprise
}

func newCandidates(vocab int) candidates {
	blocks := nBlocks(vocab)
	return candidates{
		logit: make([]float64, vocab), id: make([]int32, vocab), w: make([]float64, vocab),
		tops: make([]float64, blocks), sums: make([]float64, blocks), narrow: make([]float32, blocks), part: make([]float64, blocks),
		kernels: active,
	}
}

// load begins with a row of logits. A NaN or +Inf is an error; -Inf stands for a token that may not be chosen.
func (c *candidates) load(row []float32) error {
	narrow := c.narrow[:nBlocks(len(row))]
	special := c.kernels.topsOf(narrow, row)
	top := negInf
	for b, t := range narrow {
		c.tops[b] = float64(t)
		top = max(top, c.tops[b])
	}
	if special > infBits {
		i := slices.IndexFunc(row, func(l float32) bool { return l != l })
		return badLogit(i, math.NaN())
	}
	if top > math.MaxFloat32 {
		return badLogit(slices.Index(row, float32(top)), top)
	}
	c.start(len(row), top)
	c.row, c.topped = row, true
	return c.checkAny()
}

// start resets the list to n entries.
func (c *candidates) start(n int, top float64) {
	c.n, c.dense, c.row, c.top, c.temp = n, true, nil, top, 1
	c.topped, c.weighed, c.stale = false, false, false
}

func badLogit(token int, value float64) error {
	return fmt.Errorf("logit of token %d is %v: the model's output is not a number", token, value)
}

// checkAny returns an error if no token may be chosen.
func (c *candidates) checkAny() error {
	if c.top == negInf {
		return fmt.Errorf("no token may be chosen: logits of -Inf, mask and logit_bias forbid all %d of the vocabulary", len(c.logit))
	}
	return nil
}

// widen copies the model's row, so that logits can be changed.
func (c *candidates) widen() {
	if c.row != nil {
		c.kernels.widened(c.logit, c.row)
		c.row = nil
	}
}

// idAt returns the token of candidate i.
func (c *candidates) idAt(i int) int32 {
	if c.dense {
		return int32(i)
	}
	return c.id[i]
}

// logitAt returns the logit of candidate i.
func (c *candidates) logitAt(i int) float64 {
	if c.row != nil {
		return float64(c.row[i])
	}
	return c.logit[i]
}

// set changes one logit of a list that was widened; changed must follow the last of them.
func (c *candidates) set(i int, logit float64) {
	if c.logit[i] == c.top {
		c.stale = true
	}
	c.logit[i] = logit
	if logit > c.top {
		c.top = logit
	}
}

// changed restores what is known of the logits after some were changed.
func (c *candidates) changed() {
	c.weighed, c.topped = false, false
	if c.stale {
		c.findTop()
	}
}

// findTop looks for the highest logit.
func (c *candidates) findTop() {
	c.stale = false
	c.top = negInf
	for _, l := range c.blockTops() {
		c.top = max(c.top, l)
	}
}

// blockTops returns the highest logit of each block of the list.
func (c *candidates) blockTops() []float64 {
	tops := c.tops[:nBlocks(c.n)]
	if !c.topped {
		c.kernels.tops64Of(tops, c.logit[:c.n])
		c.topped = true
	}
	return tops
}

// settle applies the pending temperature, before logits are changed by something that comes after it.
func (c *candidates) settle() {
	if c.temp == 1 {
		return
	}
	c.widen()
	for i := range c.logit[:c.n] {
		c.logit[i] /= c.temp
	}
	c.top /= c.temp
	c.temp, c.topped = 1, false
}

// weigh computes the weights; a probability is w/sum.
func (c *candidates) weigh() {
	if c.weighed {
		return
	}
	c.weighed = true
	w, sums := c.w[:c.n], c.sums[:nBlocks(c.n)]
	if c.row != nil {
		c.kernels.weights(w, sums, c.row, c.top, 1/c.temp)
	} else {
		c.kernels.weights64(w, sums, c.logit[:c.n], c.top, 1/c.temp)
	}
	c.addBlocks()
}

// addSums adds up the weights after some have gone.
func (c *candidates) addSums() {
	c.kernels.sumsWhere(c.sums[:nBlocks(c.n)], c.w[:c.n], c.w[:c.n], 0)
	c.addBlocks()
}

func (c *candidates) addBlocks() {
	c.sum = 0
	for _, s := range c.sums[:nBlocks(c.n)] {
		c.sum += s
	}
}

// narrowUp returns the smallest float32 of at least x.
func narrowUp(x float64) float32 {
	n := float32(x)
	if float64(n) < x {
		n = math.Nextafter32(n, math.MaxFloat32)
	}
	return n
}

// keepMask drops the candidates whose bit is not set.
func (c *candidates) keepMask(mask idSet) error {
	n := 0
	if c.dense {
		for at, word := range mask[:(c.n+63)/64] {
			for ; word != 0; word &= word - 1 {
				if i := at*64 + bits.TrailingZeros64(word); i < c.n {
					c.move(n, i)
					n++
				}
			}
		}
	} else {
		for i, id := range c.id[:c.n] {
			if mask.has(id) {
				c.move(n, i)
				n++
			}
		}
	}
	if n < c.n {
		c.shrink(n)
		c.findTop()
	}
	return c.checkAny()
}

// move makes candidate i the n-th of the new list, n <= i.
func (c *candidates) move(n, i int) {
	c.id[n] = c.idAt(i)
	c.logit[n] = c.logitAt(i)
	if c.weighed {
		c.w[n] = c.w[i]
	}
}

// shrink ends a trip of moves: n candidates are left.
func (c *candidates) shrink(n int) {
	if n == c.n {
		return // what a dense list or a row wrote is what idAt and logitAt return
	}
	c.n, c.dense, c.row, c.topped = n, false, nil, false
	if c.weighed {
		c.addSums()
	}
}

// keepTop drops the candidates below a cut of their logits.
func (c *candidates) keepTop(cut cut) {
	c.keepLogits(cut.key)
	skip := cut.equal - cut.ties
	if skip == 0 {
		return
	}
	n := 0
	for i := range c.n {
		if skip > 0 && c.logitAt(i) == cut.key {
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
	i := slices.Index(c.blockTops(), c.top) * blockSize
	for c.logitAt(i) != c.top {
		i++
	}
	return c.idAt(i)
}

// draw returns the index of the candidate in whose share of the distribution u of [0, 1) falls.
func (c *candidates) draw(u float64) int {
	c.weigh()
	target, acc, block := float64(u*c.sum), 0.0, 0
	for b, s := range c.sums[:nBlocks(c.n)] {
		if s == 0 {
			continue
		}
		if block = b; acc+s > target {
			break
		}
		acc += s
	}
	last := block * blockSize
	for i := last; i < min((block+1)*blockSize, c.n); i++ {
		if c.w[i] == 0 {
			continue
		}
		last = i
		if acc += c.w[i]; acc > target {
			break
		}
	}
	return last // the block's last where adding one by one stays below the block's sum
}

var negInf = math.Inf(-1)

const lowest = -math.MaxFloat64

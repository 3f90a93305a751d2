package sample

import (
	"math"

	"quickdraft/internal/detmath"
)

// topK keeps the k highest logits and every logit that equals the k-th.
func (w *Workspace) topK(k int) {
	c := &w.cand
	if k > 0 && k < c.n {
		c.keepLogits(w.kthLogit(k))
	}
}

// kthLogit returns the k-th highest logit, 1 <= k <= n.
func (w *Workspace) kthLogit(k int) float64 {
	c := &w.cand
	w.keys = w.keys[:0]
	if low, ok := w.lowBound(k); ok {
		c.atLeast(low, func(i int) { w.keys = append(w.keys, c.logitAt(i)) })
	}
	if len(w.keys) < k {
		c.widen()
		return w.sel.nth(c.logit[:c.n], k)
	}
	return w.sel.nth(w.keys, k)
}

// A sample is a run of sampleRun candidates, a cache line of logits, of every sampleStep such runs.
const (
	sampleStep = 16
	sampleRun  = 8
)

// lowBound returns a logit that k candidates reach, and few more than k. The k-th highest of the blocks' tops is one for
// certain; from a sample, less than one in a thousand is none.
func (w *Workspace) lowBound(k int) (low float64, ok bool) {
	c := &w.cand
	if k <= nBlocks(c.n) {
		return w.sel.nth(c.blockTops(), k), true
	}
	in := k / sampleStep
	in += 4*int(math.Sqrt(float64(in))) + 1
	if in > c.n/sampleStep/2 {
		return 0, false
	}
	for lo := 0; lo < c.n; lo += sampleRun * sampleStep {
		for i := lo; i < min(lo+sampleRun, c.n); i++ {
			w.keys = append(w.keys, c.logitAt(i))
		}
	}
	low = w.sel.nth(w.keys, in)
	w.keys = w.keys[:0]
	return low, true
}

// topP keeps the most probable tokens until their sum reaches p; the one that crosses stays. At equal logits the higher id comes
// first.
func (w *Workspace) topP(p float64) {
	c := &w.cand
	if p >= 1 {
		return
	}
	c.weigh()
	target := float64(p * c.sum)
	// Everything below half of (1-p)/n of the sum lies after the border, since all of it together is less than 1-p.
	low := float64(float64(0.5*(1-p)) * c.sum / float64(c.n))
	if c.isFlat(low) {
		c.widen()
		if cut, ok := w.flatBorder(c.logit[:c.n], c.top, float64(16*c.temp), target); ok {
			c.hide(c.logit[:c.n], cut.key, cut.equal-cut.ties)
			c.addSums()
			return
		}
	}
	c.keepWeights(low)
	c.widen()
	if cut, ok := w.sel.border(c.logit[:c.n], c.w[:c.n], float64(16*c.temp), target); ok {
		c.keepTop(cut)
	}
}

// isFlat reports whether a list is long and, by a sample, hardly shorter without the weights below low.
func (c *candidates) isFlat(low float64) bool {
	if c.n < 1<<14 {
		return false
	}
	n := 0
	for lo := 0; lo < c.n; lo += sampleRun * sampleStep {
		for _, w := range c.w[lo:min(lo+sampleRun, c.n)] {
			if w >= low {
				n++
			}
		}
	}
	return n > c.n/sampleStep/2
}

// flatBorder is selector.border for a long list, most of which it does not go through one by one: a sample says between which
// two keys the border is, the sums of weights prove it, and what lies between is looked at. ok is false where the sample was
// wrong, as it may be where few candidates have most of the weight.
func (w *Workspace) flatBorder(keys []float64, hi, span, target float64) (cut, bool) {
	c := &w.cand
	above, below, ok := w.sel.bracket(keys, c.w[:c.n], hi, span, target)
	if !ok {
		return cut{}, false
	}
	acc := c.massWhere(keys, above)
	if acc >= target || c.massWhere(keys, below) < target {
		return cut{}, false
	}
	in := w.sel.entries[:0]
	for b := range nBlocks(c.n) {
		lo, end := c.block(b)
		c.kernels.atLeast64Of(&c.marked, keys[lo:end], above)
		known := c.marked
		c.kernels.atLeast64Of(&c.marked, keys[lo:end], below)
		for i := range c.marked {
			c.marked[i] &^= known[i]
		}
		for _, i := range c.places[:c.decode(lo)] {
			in = append(in, ranked{keys[i], c.w[i], i})
		}
	}
	return w.sel.within(in, acc, target), true
}

// minP keeps the tokens whose probability is at least m times the highest one.
func (w *Workspace) minP(m float64) {
	c := &w.cand
	if m <= 0 {
		return
	}
	if !c.weighed { // the logits tell nearly all, without an exponential each
		c.keepLogits(c.top + float64(c.temp*(detmath.Log(m)-1e-9)) - float64(math.Abs(c.top)*1e-12))
	}
	c.keepWeights(m)
}

// topNSigma keeps the logits within n standard deviations of the highest.
func (w *Workspace) topNSigma(n float64) {
	c := &w.cand
	if n <= 0 {
		return
	}
	if c.row != nil {
		c.keepLogits(c.top - float64(n*deviation(c.row[:c.n])))
		return
	}
	c.keepLogits(c.top - float64(n*deviation(c.logit[:c.n])))
}

// deviation is the standard deviation of the numbers of x.
func deviation[T float32 | float64](x []T) float64 {
	sum, n := sumOf(x)
	return math.Sqrt(squaresOf(x, sum/float64(n)) / float64(n))
}

// xtc drops, where chance lets it act, all tokens of at least the threshold but the least probable of them, the lowest id on a tie.
func (w *Workspace) xtc(p *Params, position int) {
	c := &w.cand
	if p.XTCProbability <= 0 || p.XTCThreshold > 0.5 || Uniform(p.Seed, position, PurposeXTC) >= p.XTCProbability {
		return
	}
	c.weigh()
	c.widen()
	low := max(float64(p.XTCThreshold*c.sum), math.SmallestNonzeroFloat64) // a token without probability is not above a threshold of 0
	above, last, least := 0, -1, math.Inf(1)
	c.overWeights(low, func(at []int32) {
		above += len(at)
		for _, i := range at {
			if c.w[i] < least {
				last, least = int(i), c.w[i]
			}
		}
	})
	if above < 2 {
		return
	}
	kept := c.logit[last]
	c.overWeights(low, func(at []int32) {
		for _, i := range at {
			c.logit[i] = negInf
		}
	})
	c.logit[last], c.stale = kept, true
	c.changed()
}

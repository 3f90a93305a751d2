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

// sampleStep is the distance between the logits that lowBound looks at when there are fewer blocks than k.
const sampleStep = 16

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
	for i := 0; i < c.n; i += sampleStep {
		w.keys = append(w.keys, c.logitAt(i))
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
	sum := c.sum
	c.keepWeights(float64(0.5*(1-p)) * sum / float64(c.n))
	c.widen()
	if cut, ok := w.sel.border(c.logit[:c.n], c.w[:c.n], float64(16*c.temp), target); ok {
		c.keepTop(cut)
	}
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

// typicalP keeps the tokens whose surprise is nearest to the entropy until their sum reaches p, and all as near as the last.
func (w *Workspace) typicalP(p float64) {
	c := &w.cand
	if p >= 1 {
		return
	}
	c.weigh()
	sum, inv := c.sum, 1/c.temp
	logSum := detmath.Log(sum)
	keys := w.keys[:c.n]
	for i, wt := range c.w[:c.n] {
		if keys[i] = 0; wt > 0 {
			keys[i] = float64(wt * float64((c.logitAt(i)-c.top)*inv))
		}
	}
	entropy := logSum - detmath.Sum(keys)/sum
	// As in topP, half of (1-p)/n is after the border if nothing more probable can come after it: nothing does where the surprise
	// is over twice the entropy.
	c.keepWeights(float64(sum * min(float64(0.5*(1-p))/float64(c.n), float64(0.999*detmath.Exp(float64(-2*entropy))))))
	c.widen()
	keys = keys[:c.n]
	low := 0.0
	for i, l := range c.logit[:c.n] {
		keys[i] = -math.Abs(logSum - float64((l-c.top)*inv) - entropy)
		low = min(low, keys[i])
	}
	cut, ok := w.sel.border(keys, c.w[:c.n], min(16, max(-low, 1e-6)), float64(p*sum))
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

// topNSigma keeps the logits within n standard deviations of the highest.
func (w *Workspace) topNSigma(n float64) {
	c := &w.cand
	if n <= 0 {
		return
	}
	keys, count := w.keys[:c.n], 0.0
	for i := range keys {
		if keys[i] = 0; c.logitAt(i) > negInf {
			keys[i] = c.logitAt(i)
			count++
		}
	}
	mean := detmath.Sum(keys) / count
	for i := range keys {
		d := c.logitAt(i) - mean
		if keys[i] = 0; d > negInf {
			keys[i] = float64(d * d)
		}
	}
	c.keepLogits(c.top - float64(n*math.Sqrt(detmath.Sum(keys)/count)))
}

// xtc drops, where chance lets it act, all tokens of at least the threshold but the least probable of them, the lowest id on a tie.
func (w *Workspace) xtc(p *Params, position int) {
	c := &w.cand
	if p.XTCProbability <= 0 || p.XTCThreshold > 0.5 || Uniform(p.Seed, position, PurposeXTC) >= p.XTCProbability {
		return
	}
	c.weigh()
	low := float64(p.XTCThreshold * c.sum)
	above, last := 0, -1
	for i, wt := range c.w[:c.n] {
		if wt >= low {
			above++
			if last < 0 || wt < c.w[last] {
				last = i
			}
		}
	}
	if above < 2 {
		return
	}
	n := 0
	for i := range c.n {
		if i == last || c.w[i] < low {
			c.move(n, i)
			n++
		}
	}
	c.shrink(n)
	c.weighed = false
	c.findTop()
}

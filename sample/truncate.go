package sample

import (
	"math"

	"quickdraft/internal/detmath"
)

// topK keeps the k highest logits and every logit that equals the k-th.
func (w *Workspace) topK(k int) {
	c := &w.cand
	if k <= 0 || k >= c.n {
		return
	}
	if k <= maxKth {
		c.keepLogits(w.sel.kth(c.logit[:c.n], k))
		return
	}
	if cut, ok := w.sel.border(c.logit[:c.n], nil, 32, float64(k)); ok {
		c.keepLogits(cut.key)
	}
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
	inv := 1 / c.temp
	logSum := detmath.Log(c.sum)
	mean := 0.0 // of (logit-top)/temp
	for i, wt := range c.w[:c.n] {
		mean += float64(wt * float64((c.logit[i]-c.top)*inv))
	}
	entropy := logSum - mean/c.sum
	keys := w.keys[:c.n]
	low := 0.0
	for i, l := range c.logit[:c.n] {
		keys[i] = -math.Abs(logSum - float64((l-c.top)*inv) - entropy)
		low = min(low, keys[i])
	}
	cut, ok := w.sel.border(keys, c.w[:c.n], min(16, max(-low, 1e-6)), float64(p*c.sum))
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
	sum := 0.0
	for _, l := range c.logit[:c.n] {
		sum += l
	}
	mean, sq := sum/float64(c.n), 0.0
	for _, l := range c.logit[:c.n] {
		d := l - mean
		sq += float64(d * d)
	}
	c.keepLogits(c.top - float64(n*math.Sqrt(sq/float64(c.n))))
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

package sample

import (
	"math"

	"quickdraft/internal/detmath"
)

// mirostat keeps the tokens whose surprise, -log2 of the probability, is at most mu, and at least the most probable one (the lowest
// id on a tie).
func (w *Workspace) mirostat(mu float64) {
	c := &w.cand
	c.weigh()
	low := float64(detmath.Exp(float64(-mu*math.Ln2)) * c.sum)
	if low <= 1 {
		c.keepWeights(low)
		return
	}
	best := c.argmax()
	c.id[0], c.logit[0], c.w[0] = best, c.top, 1
	c.shrink(1)
}

// learn moves mu towards the target surprise after a token of probability prob was chosen.
func (s *Sampler) learn(prob float64) {
	if s.p.Mirostat == 0 || s.p.Temperature == 0 || prob <= 0 {
		return
	}
	surprise := -detmath.Log(prob) / math.Ln2
	s.mu = float64(s.mu) - float64(s.p.MirostatEta*(surprise-s.p.MirostatTau))
}

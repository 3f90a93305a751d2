package sample

import (
	"slices"

	"quickdraft/internal/detmath"
)

// Dist is a distribution over tokens: those that are left after all steps, in ascending order of their ids. Its slices are reused by
// the next call that fills it.
type Dist struct {
	IDs []int32   // (kept)
	P   []float64 // (kept) sums up to 1
}

// Dist fills d with the distribution from which Sample would draw. At temperature 0 it is the one token that Sample would return.
// It changes no state: call Observe with the token that is finally chosen. Errors are those of Sample.
func (s *Sampler) Dist(d *Dist, logits []float32, history []int32) error {
	d.IDs, d.P = d.IDs[:0], d.P[:0]
	if s.IsGreedy() {
		id, err := s.Sample(logits, history)
		if err == nil {
			d.IDs, d.P = append(d.IDs, id), append(d.P, 1)
		}
		return err
	}
	if err := s.transform(logits, history); err != nil {
		return err
	}
	s.w.cand.fill(d)
	return nil
}

// fill makes d the distribution over the candidates.
func (c *candidates) fill(d *Dist) {
	c.weigh()
	d.IDs, d.P = slices.Grow(d.IDs[:0], c.n)[:c.n], slices.Grow(d.P[:0], c.n)[:c.n]
	n := 0
	for i, w := range c.w[:c.n] {
		if w > 0 {
			d.IDs[n], d.P[n] = c.idAt(i), w/c.sum
			n++
		}
	}
	d.IDs, d.P = d.IDs[:n], d.P[:n]
}

// Prob returns the probability of a token, 0 for one that is not kept.
func (d *Dist) Prob(id int32) float64 {
	if i, ok := slices.BinarySearch(d.IDs, id); ok {
		return d.P[i]
	}
	return 0
}

// Draw returns the token in whose share u of [0, 1) falls. Drawing with the number of PurposeSample gives what Sample gives, but for
// the rounding of the division by the sum.
func (d *Dist) Draw(u float64) int32 {
	acc := 0.0
	for i, p := range d.P {
		if acc += p; acc > u {
			return d.IDs[i]
		}
	}
	return d.IDs[len(d.IDs)-1]
}

// Observe tells the sampler which token of a distribution was chosen, where Sample did not choose it itself.
func (s *Sampler) Observe(d *Dist, id int32) { s.learn(d.Prob(id)) }

// Logprob is a token with the natural logarithm of its probability.
type Logprob struct {
	ID      int32
	Logprob float64
}

// Logprobs returns, appended to dst[:0], the chosen token id and then the n most probable tokens in descending order (lower ids first
// at equal probability). Probabilities are the softmax of the raw logits, or with LogprobsAfter those after all steps; at temperature
// 0 these are the steps that change logits. A chosen token that the steps removed has -Inf. Call it before Observe, or
// with the State from before Sample. Errors are those of Sample.
func (s *Sampler) Logprobs(dst []Logprob, logits []float32, history []int32, id int32, n int) ([]Logprob, error) {
	c := &s.w.cand
	if s.p.LogprobsAfter {
		if err := s.transform(logits, history); err != nil {
			return dst[:0], err
		}
	} else {
		if err := s.checkRow(len(logits)); err != nil {
			return dst[:0], err
		}
		if err := c.load(logits[:s.vocab]); err != nil {
			return dst[:0], err
		}
	}
	c.weigh()
	logSum := detmath.Log(c.sum)
	at := func(i int) float64 { return float64((c.logitAt(i)-c.top)*(1/c.temp)) - logSum }
	s.w.index()
	chosen := Logprob{id, negInf}
	if i := s.w.find(id); i >= 0 {
		chosen.Logprob = at(i)
	}
	dst = append(dst[:0], chosen)
	if n = min(n, c.n); n <= 0 {
		return dst, nil
	}
	c.atLeast(max(s.w.kthLogit(n), lowest), func(i int) { dst = append(dst, Logprob{c.idAt(i), at(i)}) })
	top := dst[1:]
	slices.SortStableFunc(top, func(a, b Logprob) int {
		switch {
		case a.Logprob > b.Logprob:
			return -1
		case a.Logprob < b.Logprob:
			return 1
		}
		return 0
	})
	return dst[:min(1+n, len(dst))], nil
}

package sample

import (
	"fmt"

	"quickdraft/internal/detmath"
)

// bias is one entry of the logit bias, sorted by id.
type bias struct {
	id    int32
	value float64
}

// applyBias adds the bias and removes what it or the mask forbids.
func (w *Workspace) applyBias(list []bias, mask idSet) error {
	c := &w.cand
	if len(list) > 0 {
		c.widen()
		for _, b := range list { // nothing was dropped yet: candidate i is token i
			if b.value <= -100 {
				c.set(int(b.id), negInf)
				continue
			}
			c.set(int(b.id), c.logit[b.id]+b.value)
		}
		c.changed()
	}
	if mask != nil {
		return c.keepMask(mask)
	}
	return c.checkAny()
}

// index prepares find for the present list.
func (w *Workspace) index() {
	if w.cand.dense {
		return
	}
	w.epoch++
	for i, id := range w.cand.id[:w.cand.n] {
		w.place[id] = slot{w.epoch, int32(i)}
	}
}

// find returns the index of a token in the list, or -1.
func (w *Workspace) find(id int32) int {
	if w.cand.dense {
		return int(id)
	}
	if s := w.place[id]; s.epoch == w.epoch {
		return int(s.value)
	}
	return -1
}

// slot is a value that counts only while its epoch is the current one, so that a table over the vocabulary needs no clearing.
type slot struct {
	epoch uint32
	value int32
}

// window returns the last n tokens; -1 means all.
func window(history []int32, n int) []int32 {
	if n < 0 || n >= len(history) {
		return history
	}
	return history[len(history)-n:]
}

// penalties applies the repetition penalty to the distinct ids of the window, and frequency and presence penalties by how often
// each occurs there after the first nPrompt tokens of the history.
func (w *Workspace) penalties(p *Params, history []int32, nPrompt int) {
	repeat := p.RepeatPenalty != 1
	counted := p.FrequencyPenalty != 0 || p.PresencePenalty != 0
	seen := window(history, p.RepeatLastN)
	if !repeat && !counted || len(seen) == 0 {
		return
	}
	c := &w.cand
	c.settle()
	c.widen()
	w.index()
	from := max(0, nPrompt-(len(history)-len(seen)))
	w.countEpoch++
	w.distinct = w.distinct[:0]
	for i, id := range seen {
		s := &w.counts[id]
		if s.epoch != w.countEpoch {
			*s = slot{w.countEpoch, 0}
			w.distinct = append(w.distinct, id)
		}
		if i >= from {
			s.value++
		}
	}
	for _, id := range w.distinct {
		i := w.find(id)
		if i < 0 {
			continue
		}
		l := c.logit[i]
		if repeat {
			if l < 0 {
				l = float64(l * p.RepeatPenalty)
			} else {
				l /= p.RepeatPenalty
			}
		}
		if n := w.counts[id].value; n > 0 {
			l -= float64(float64(n) * p.FrequencyPenalty)
			l -= p.PresencePenalty
		}
		c.set(i, l)
	}
	c.changed()
}

// dry penalises every token that would continue a repetition: where the last n tokens of the window occurred before, the token that
// followed them loses DRYMultiplier * DRYBase^(n-DRYAllowedLength), by the longest such n.
func (w *Workspace) dry(p *Params, breakers idSet, history []int32) {
	seen := window(history, p.DRYLastN)
	limit := 0 // length of the end that no breaker interrupts
	for limit < len(seen) && !breakers.has(seen[len(seen)-1-limit]) {
		limit++
	}
	if p.DRYMultiplier == 0 || limit < p.DRYAllowedLength {
		return
	}
	c := &w.cand
	c.settle()
	c.widen()
	w.index()
	w.suffixRuns(seen)
	w.countEpoch++
	w.distinct = w.distinct[:0]
	for i := 0; i+1 < len(seen); i++ {
		run := min(int(w.runs[i]), limit)
		next := seen[i+1]
		if run < p.DRYAllowedLength || breakers.has(next) {
			continue
		}
		s := &w.counts[next]
		if s.epoch != w.countEpoch {
			*s = slot{w.countEpoch, 0}
			w.distinct = append(w.distinct, next)
		}
		s.value = max(s.value, int32(run))
	}
	for _, id := range w.distinct {
		if i := w.find(id); i >= 0 {
			over := float64(int(w.counts[id].value) - p.DRYAllowedLength)
			c.set(i, c.logit[i]-min(1e30, float64(p.DRYMultiplier*detmath.Pow(p.DRYBase, over))))
		}
	}
	c.changed()
}

// idSet is a set of ids, bit id%64 of word id/64; nil is empty.
type idSet []uint64

func newIDSet(ids []int32, vocab int) idSet {
	if len(ids) == 0 {
		return nil
	}
	s := make(idSet, (vocab+63)/64)
	for _, id := range ids {
		s[id>>6] |= 1 << (id & 63)
	}
	return s
}

func (s idSet) has(id int32) bool { return s != nil && s[id>>6]>>(id&63)&1 == 1 }

// suffixRuns sets runs[i] to the length of the longest common end of seen[:i+1] and seen, for i < len(seen)-1: the Z function of the
// reversed history, in linear time.
func (w *Workspace) suffixRuns(seen []int32) {
	n := len(seen)
	if cap(w.runs) < n {
		w.runs = make([]int32, n, 2*n)
	}
	w.runs = w.runs[:n]
	at := func(i int) int32 { return seen[n-1-i] } // reversed
	left, right := 0, 0                            // the match found so far that reaches farthest
	for i := 1; i < n; i++ {
		z := 0
		if i < right {
			z = min(right-i, int(w.runs[n-1-(i-left)]))
		}
		for i+z < n && at(z) == at(i+z) {
			z++
		}
		if i+z > right {
			left, right = i, i+z
		}
		w.runs[n-1-i] = int32(z)
	}
}

// checkHistory returns an error for an id outside the vocabulary.
func checkHistory(history []int32, vocab int) error {
	for i, id := range history {
		if uint32(id) >= uint32(vocab) {
			return fmt.Errorf("history[%d] is token %d: the vocabulary has ids 0 to %d", i, id, vocab-1)
		}
	}
	return nil
}

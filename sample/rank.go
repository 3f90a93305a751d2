package sample

import (
	"cmp"
	"slices"

	"quickdraft/internal/detmath"
)

// Ranked is an entry of a row of logits with its share of the softmax.
type Ranked struct {
	Index int32
	P     float64
}

// Ranker finds the most probable entries of rows of logits of any length. The zero value is ready for use; its buffers grow to
// the longest row. It is not safe for concurrent use.
type Ranker struct {
	ws *Workspace
}

// negligible is how far below the highest logit nothing is added to the softmax: 150,000 entries there are 3 of 10,000.
const negligible = 20

// Top returns the n entries with the highest logits, best first and lower indexes first on a tie, appended to dst[:0]. Blocks of
// entries with less than e^-20 of the highest probability are left out of the sum. The result is empty for a row with NaN or +Inf
// or of nothing but -Inf.
func (r *Ranker) Top(dst []Ranked, row []float32, n int) []Ranked {
	dst = dst[:0]
	if n < 1 || len(row) == 0 {
		return dst
	}
	if r.ws == nil || len(r.ws.place) < len(row) {
		r.ws = NewWorkspace(len(row))
	}
	c := &r.ws.cand
	if c.load(row) != nil {
		return dst
	}
	sum := c.softmaxSum()
	c.atLeast(max(r.ws.kthLogit(min(n, c.n)), lowest), func(i int) { dst = append(dst, Ranked{Index: int32(i)}) })
	slices.SortStableFunc(dst, func(a, b Ranked) int { return cmp.Compare(row[b.Index], row[a.Index]) })
	dst = dst[:min(n, len(dst))]
	for i := range dst {
		dst[i].P = detmath.Exp(float64(row[dst[i].Index])-c.top) / sum
	}
	return dst
}

// Probability returns the softmax of the raw logits at a token, as exact as Ranker's, and 0 for a row that Sample refuses.
func (s *Sampler) Probability(logits []float32, id int32) float64 {
	c := &s.w.cand
	if s.checkRow(len(logits)) != nil || c.load(logits[:s.vocab]) != nil {
		return 0
	}
	return detmath.Exp(float64(logits[id])-c.top) / c.softmaxSum()
}

// softmaxSum is the sum of a row's weights without its negligible blocks. The weights themselves are not kept.
func (c *candidates) softmaxSum() float64 {
	sum := 0.0
	for b, top := range c.blockTops() {
		if top > c.top-negligible {
			c.kernels.weights(c.w, c.sums, c.row[b*blockSize:min((b+1)*blockSize, c.n)], c.top, 1)
			sum += c.sums[0]
		}
	}
	return sum
}

// Argmax returns the index of the highest entry, the lowest on a tie, and -1 for a row that Sample refuses. The row is at most as
// long as the vocabulary.
func (w *Workspace) Argmax(row []float32) int32 {
	if len(row) == 0 || w.cand.load(row) != nil {
		return -1
	}
	return w.cand.argmax()
}

package drafter

import (
	"quickdraft/internal/detmath"
)

// ranked is a column of a row of logits with its share of the softmax.
type ranked struct {
	col int32
	p   float64
}

// top returns the n columns with the highest logits, best first, appended to dst[:0], with their probabilities at
// temperature 1. The lowest column wins a tie, as the target's own choice has it.
func top(dst []ranked, row []float32, n int) []ranked {
	dst = dst[:0]
	if n < 1 || len(row) == 0 {
		return dst
	}
	low := row[0]
	for i, x := range row {
		if len(dst) == n && !(x > low) {
			continue
		}
		at := len(dst)
		for at > 0 && x > row[dst[at-1].col] {
			at--
		}
		if len(dst) < n {
			dst = append(dst, ranked{})
		}
		copy(dst[at+1:], dst[at:])
		dst[at].col = int32(i)
		low = row[dst[len(dst)-1].col]
	}
	best := row[dst[0].col]
	sum := 0.0
	for _, x := range row {
		if x > best-negligible {
			sum += detmath.Exp(float64(x - best))
		}
	}
	for i := range dst {
		dst[i].p = detmath.Exp(float64(row[dst[i].col]-best)) / sum
	}
	return dst
}

// negligible is how far below the best a logit adds nothing to speak of: 150,000 tokens there have less than a hundredth.
const negligible = 16

// Package verify decides which guesses of a drafter become part of an answer.
//
// Greedy answers take the longest path that equals the target's argmax. Sampled answers use speculative sampling: a guess x
// drawn from q is accepted with probability min(1, p(x)/q(x)), and after a rejection p becomes norm(max(0, p-q)), against
// which the next sibling is tried (Leviathan et al. 2023, section 2.3; SpecInfer, multi-step speculative sampling). When no
// sibling is left, the token comes from what p has become, so that its distribution is exactly the target's.
package verify

import (
	"quickdraft/drafter"
	"quickdraft/sample"
)

// AcceptProb returns the probability of accepting a guess to which the target gives p and the drafter q.
// Lenience l in (0, 1] accepts with min(1, p/(l q)); 1 is lossless (Leviathan et al., appendix A.5).
func AcceptProb(p, q, lenience float64) float64 {
	q *= lenience
	switch {
	case !(p > 0):
		return 0 // however little q times lenience is
	case p >= q:
		return 1
	}
	return p / q
}

// Residual replaces p by norm(max(0, p-q)). It reports false and leaves p alone when nothing is left, which happens only
// through rounding: then p equals q and a rejection had probability zero.
func Residual(p *sample.Dist, q *sample.Dist) bool {
	sum, j := 0.0, 0
	for i, id := range p.IDs {
		for j < len(q.IDs) && q.IDs[j] < id {
			j++
		}
		if j < len(q.IDs) && q.IDs[j] == id {
			sum += rest(p.P[i], q.P[j])
		} else {
			sum += p.P[i]
		}
	}
	if !(sum > 0) {
		return false
	}
	j = 0
	for i, id := range p.IDs {
		for j < len(q.IDs) && q.IDs[j] < id {
			j++
		}
		x := p.P[i]
		if j < len(q.IDs) && q.IDs[j] == id {
			x = rest(x, q.P[j])
		}
		p.P[i] = x / sum
	}
	return true
}

// rest is what is left of probability p; one that is no positive number takes nothing away.
func rest(p, q float64) float64 {
	if !(q > 0) {
		return p
	}
	return max(0, p-q)
}

// Remove takes one token out of p and renormalises: the residual against a point mass. It reports false and leaves p
// alone when the token had all of the mass.
func Remove(p *sample.Dist, id int32) bool {
	sum := 0.0
	for i, other := range p.IDs {
		if other != id {
			sum += p.P[i]
		}
	}
	if !(sum > 0) {
		return false
	}
	for i, other := range p.IDs {
		if other == id {
			p.P[i] = 0
			continue
		}
		p.P[i] /= sum
	}
	return true
}

// Random gives the numbers in [0, 1) that one position needs, by the purpose and the index of the attempt.
type Random func(purpose sample.Purpose, attempt int) float64

// Judge returns the probability of accepting guess x, which was drawn from q (nil: chosen without chance), while the target's
// distribution is p. A guess that its own distribution denies is never accepted.
func Judge(p, q *sample.Dist, x int32, lenience float64) float64 {
	if q == nil {
		return AcceptProb(p.Prob(x), 1, lenience)
	}
	if qx := q.Prob(x); qx > 0 {
		return AcceptProb(p.Prob(x), qx, lenience)
	}
	return 0
}

// Reject turns p into the distribution that the next sibling, or the token after the last one, is judged against once guess
// x from q (nil: chosen without chance) was rejected. Where rounding has left nothing of p, p stays.
func Reject(p, q *sample.Dist, x int32) {
	switch {
	case q == nil:
		Remove(p, x)
	case q.Prob(x) > 0:
		Residual(p, q)
	}
}

// Sampled chooses the token after a node whose distribution is p, given the node's children in the tree. It returns the
// token and the child that carries it, -1 when the token is none of the guesses. p is used up.
func Sampled(p *sample.Dist, t *drafter.Tree, node int32, lenience float64, u Random) (id, child int32) {
	attempt := 0
	for i := node + 1; int(i) < t.Len(); i++ {
		if t.Parents[i] != node || t.Guest[i] {
			continue
		}
		if u(sample.PurposeAccept, attempt) < Judge(p, t.Q[i], t.IDs[i], lenience) {
			return t.IDs[i], i
		}
		Reject(p, t.Q[i], t.IDs[i])
		attempt++
	}
	purpose := sample.PurposeSample
	if attempt > 0 {
		purpose = sample.PurposeResidual
	}
	return p.Draw(u(purpose, 0)), -1
}

// Lenient is the greedy rule with lenience: of the guesses whose probability is at least lenience times the highest one, it
// takes the most probable, and the argmax where there is none (Leviathan et al., appendix A.5, temperature 0). p is the
// distribution before the argmax is taken. With lenience 1 it equals Match of the argmax.
func Lenient(p *sample.Dist, t *drafter.Tree, node int32, lenience float64) (id, child int32) {
	best := 0
	for i, x := range p.P {
		if x > p.P[best] {
			best = i
		}
	}
	id, child = p.IDs[best], -1
	floor, found := lenience*p.P[best], 0.0
	for i := node + 1; int(i) < t.Len(); i++ {
		if t.Parents[i] != node || t.Guest[i] {
			continue
		}
		if x := p.Prob(t.IDs[i]); x >= floor && x > found && (lenience < 1 || t.IDs[i] == p.IDs[best]) {
			id, child, found = t.IDs[i], i, x
		}
	}
	return id, child
}

// Match returns the first guess of id after node, -1 when there is none: the rule for greedy answers, and for sampled ones
// whose tokens must not depend on the guesses. Where several nodes stand for the same tokens, their keys and values are the
// same bits, and the guesses after any of them count: the path that comes of it is the longest one in the tree, though its
// nodes need not be each other's parents.
func Match(t *drafter.Tree, node, id int32) int32 {
	for i := node + 1; int(i) < t.Len(); i++ {
		if t.IDs[i] == id && !t.Guest[i] && twins(t, t.Parents[i], node) {
			return i
		}
	}
	return -1
}

// twins reports whether two nodes stand for the same tokens; -1 is the last committed token.
func twins(t *drafter.Tree, a, b int32) bool {
	for a != b {
		if a < 0 || b < 0 || t.IDs[a] != t.IDs[b] || t.Guest[a] != t.Guest[b] {
			return false
		}
		a, b = t.Parents[a], t.Parents[b]
	}
	return true
}

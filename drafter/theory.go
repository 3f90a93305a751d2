package drafter

// chained is the controller's plan of a round with one guess for each of gamma levels, in target passes: the one that verifies
// them, and c for each step of drafting. A level is accepted with probability accept once it is reached.
func chained(gamma int, c float64, accept func(level int) float64) planned {
	p, reach := planned{tokens: 1, seconds: 1 + float64(float64(gamma)*c)}, 1.0
	for level := range gamma {
		reach = deeper(reach, accept(level))
		p.tokens += reach
	}
	return p
}

// always is an acceptance that depends on nothing.
func always(alpha float64) func(int) float64 { return func(int) float64 { return alpha } }

// ExpectedTokens returns how many tokens a round with a chain of gamma guesses gives on average when each guess is accepted
// with probability alpha: (1-alpha^(gamma+1))/(1-alpha), summed so that alpha = 1 needs no special case (Leviathan et al.,
// equation 1).
func ExpectedTokens(alpha float64, gamma int) float64 { return chained(gamma, 0, always(alpha)).tokens }

// Speedup returns the factor by which a chain of gamma guesses shortens decoding when a draft step costs c target passes
// and verification costs one (theorem 3.8).
func Speedup(alpha float64, gamma int, c float64) float64 {
	return chained(gamma, c, always(alpha)).rate()
}

// OpsFactor returns the factor by which arithmetic operations grow when a draft step needs c of a target step's
// (theorem 3.11).
func OpsFactor(alpha float64, gamma int, c float64) float64 {
	g := float64(gamma)
	return (float64(g*c) + g + 1) / ExpectedTokens(alpha, gamma)
}

// OptimalGamma returns the gamma in [0, limit] with the highest Speedup, the smallest on ties (section 3.5).
func OptimalGamma(alpha, c float64, limit int) int {
	best, top := 0, 1.0
	for gamma := 1; gamma <= limit; gamma++ {
		if s := Speedup(alpha, gamma, c); s > top {
			best, top = gamma, s
		}
	}
	return best
}

// ExpectedSteps returns how many tokens a round gives on average when the guess at position i is accepted with probability
// alphas[i], provided that those before it were: one, and every position's probability of being reached and accepted.
func ExpectedSteps(alphas []float64) float64 {
	return chained(len(alphas), 0, func(level int) float64 { return alphas[level] }).tokens
}

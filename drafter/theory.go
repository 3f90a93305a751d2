package drafter

// ExpectedTokens returns how many tokens a round with a chain of gamma guesses gives on average when each guess is accepted
// with probability alpha: (1-alpha^(gamma+1))/(1-alpha), summed so that alpha = 1 needs no special case (Leviathan et al.,
// equation 1).
func ExpectedTokens(alpha float64, gamma int) float64 {
	e := 1.0
	for range gamma {
		e = 1 + float64(alpha*e)
	}
	return e
}

// Speedup returns the factor by which a chain of gamma guesses shortens decoding when a draft step costs c target passes
// and verification costs one (theorem 3.8).
func Speedup(alpha float64, gamma int, c float64) float64 {
	return ExpectedTokens(alpha, gamma) / (1 + float64(float64(gamma)*c))
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
	e := 1.0
	for i := len(alphas) - 1; i >= 0; i-- {
		e = 1 + float64(alphas[i]*e)
	}
	return e
}

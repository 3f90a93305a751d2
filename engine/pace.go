package engine

import (
	"math"
	"time"

	"quickdraft/quant"
)

// minChunk keeps a prompt moving on machines where even a few tokens miss the target.
const minChunk = 4

// pace decides how many tokens of prompts ride beside running answers, which wait for the drafting and the whole pass: as many as
// let both end within the target, if it takes base and perToken for each of its tokens as recent ones did.
//
// Passes of more than quant.WideM tokens are whole tiles of quant.MaxM, because the rest of one costs most of a tile: with a
// model of 1.5B on two cores, 16, 17, 24, 25 and 32 tokens took 113, 152, 162, 224 and 212 ms.
type pace struct {
	target   time.Duration // of a pass that carries prompts beside answers
	base     time.Duration // from passes without prompts
	perToken time.Duration // from passes with prompts; from one without until there was any; 0 before the first
	prompts  bool          // perToken comes from a pass with prompts
	decoding int           // tokens of running answers, guesses included, in the pass that is being scheduled or was last
	drafting time.Duration // for these
	waiting  bool          // answers beside them wait for their draft models to read, between this pass and the next too
}

// learn takes in what a pass over n tokens took, of which all but decoding are of prompts.
func (c *pace) learn(n int, took time.Duration) {
	switch {
	case n == c.decoding && c.prompts:
		base := max(0, took-time.Duration(n)*c.perToken)
		c.base += (base - c.base) / 4
	case !c.prompts:
		c.perToken, c.prompts = took/time.Duration(n), n > c.decoding
	case n >= quant.MaxM || c.decoding > 0: // fewer take about as long as one and say nothing about many
		c.price(max(0, took-c.base) / time.Duration(n))
	}
}

// price moves perToken: a rise counts at once and a fall by a quarter. The target is a bound, and a longer context makes the
// tokens of a prompt dearer from pass to pass.
func (c *pace) price(perToken time.Duration) {
	if perToken < c.perToken {
		perToken = c.perToken - (c.perToken-perToken)/4
	}
	c.perToken = perToken
}

// chunkBeside returns how many prompt tokens may share a pass with the running answers; without any there is no bound.
func (c *pace) chunkBeside() int {
	if c.decoding == 0 && !c.waiting {
		return math.MaxInt
	}
	fit := 0
	if c.perToken > 0 {
		fit = int((c.target - c.base - c.drafting) / c.perToken)
	}
	if fit > quant.WideM {
		fit -= fit % quant.MaxM
	}
	return max(fit-c.decoding, minChunk)
}

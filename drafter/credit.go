package drafter

// Passed reports a pass of decoding requests without prompts: its tokens, requests, committed tokens, and the seconds of
// the pass and of drafting for it. late is the part of drafting that read texts, which the account of readings pays, unless it
// was for a probe.
func (c *Controller) Passed(nTokens, nStreams, committed int, pass, draft, late float64) {
	if nStreams < 1 || !(pass > 0) {
		return
	}
	if c.probing {
		late = 0 // what was read for a probe is the probe's cost: many short requests would each have one for nothing
	}
	expected, measured := c.pass.At(nTokens), nTokens <= maxCounts && c.Measured(nTokens)
	c.pass.Observe(nTokens, pass)
	if c.credit == 0 && expected == 0 {
		c.start()
	}
	if expected > 0 { // what a neighbour on the machine did is not the guesses' fault
		most := costClip // of a width that nothing is known of
		if measured {
			most = 1.5
		}
		pass = min(pass, float64(most*expected))
	}
	plain := c.pass.At(nStreams)
	if loss := pass + draft - float64(float64(committed)/float64(nStreams)*plain); c.probing && committed > nStreams && loss > 0 {
		// Its guesses were right and still too dear, which more probes do not change.
		c.interval = min(max(c.interval, int(loss/float64(probeShare*plain))), maxInterval)
	}
	const keep = 1 - 1.0/rateWeight
	c.tokens = float64(keep*c.tokens) + float64(committed)/float64(nStreams)*plain
	c.spent = float64(keep*c.spent) + pass + draft - late
	c.payReading(late)
	if nTokens == nStreams {
		c.sincePlain = 0
		c.earn(float64(earning*plain) - (draft - late))
		return
	}
	c.sincePlain++
	if !c.probing && c.pays {
		c.idle = 0
	}
	c.earn(float64(float64(committed)/float64(nStreams)*plain) - pass - (draft - late))
}

// speedup is by how much guessing has shortened decoding lately, at least 1.
func (c *Controller) speedup() float64 {
	prior := float64(0.5*rateWeight) * c.pass.At(1)
	return max(1, (c.tokens+prior)/(c.spent+prior))
}

// start opens the accounts, once a first T(1) is known.
func (c *Controller) start() {
	c.credit, c.readings = float64(startCredit*c.pass.At(1)), float64(maxReadings*c.pass.At(1))
}

// payReading takes from the account of readings, which has a floor: one long text does not bar those of hundreds of requests.
func (c *Controller) payReading(seconds float64) {
	c.readings = max(c.readings-seconds, -float64(maxReadings*c.pass.At(1)))
}

func (c *Controller) earn(seconds float64) {
	c.credit = min(c.credit+seconds, float64(maxCredit*c.pass.At(1)))
	c.readings = min(c.readings+seconds, float64(maxReadings*c.pass.At(1)))
}

package drafter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// calibrated is a controller of one drafter that knows what passes take.
func calibrated(pass func(n int) float64) *Controller {
	c := NewController(nMax, 0.05)
	for _, n := range CalibrationWidths {
		c.Calibrate(n, pass(n))
	}
	return c
}

func TestWhatTheCreditPays(t *testing.T) {
	t1 := cheap(1)
	c := calibrated(cheap)
	require.InDelta(t, startCredit*t1, c.credit, 1e-12)
	c.Passed(5, 1, 1, cheap(5), 2e-3, 0)
	require.InDelta(t, startCredit*t1-(cheap(5)-t1)-2e-3, c.credit, 1e-9, "a round of no use costs its drafting and what its pass is longer")
	before := c.credit
	c.Passed(5, 1, 1, cheap(5), 50e-3, 48e-3)
	require.InDelta(t, before-(cheap(5)-t1)-2e-3, c.credit, 1e-9, "reading the prompt is not to be paid back")

	c = calibrated(cheap)
	before = c.credit
	c.Passed(1, 1, 1, t1, 0, 0)
	require.InDelta(t, before+earning*t1, c.credit, 1e-9, "plain decoding earns a little")
	before = c.credit
	c.Passed(1, 1, 1, t1, 3e-3, 0)
	require.InDelta(t, before+earning*t1-3e-3, c.credit, 1e-9, "a drafter that was asked in vain is paid for")

	c = calibrated(cheap)
	before = c.credit
	c.Passed(5, 1, 1, 100*cheap(5), 0, 0)
	require.Greater(t, c.credit, before-cheap(5), "what a neighbour on the machine did is not the guesses' fault")
	before = c.credit
	expected := c.pass.At(200)
	c.Passed(200, 1, 1, 1.9*expected, 0, 0)
	require.InDelta(t, before-1.9*expected+t1, c.credit, 2*t1, "a width that nothing was known of costs what it took")
	c.credit = before
	c.Passed(199, 1, 1, 50*expected, 0, 0)
	require.Greater(t, c.credit, before-5*expected, "within bounds")
	c.credit = before
	for range 200 {
		c.Passed(5, 1, 5, cheap(5), 0, 0)
	}
	require.InDelta(t, maxCredit*c.pass.At(1), c.credit, 1e-3, "good rounds save up so much and no more")
}

// TestProbesPayForThePromptsTheyRead has a draft that is never right, and requests that each bring a prompt of their own.
func TestProbesPayForThePromptsTheyRead(t *testing.T) {
	const each, answer, step = 1e-3, 64, 20e-3 // seconds a token of a prompt, tokens of an answer, seconds a step
	for _, prompt := range []int{100, 500} {
		c := NewController(nMax, step/cheap(1))
		var plain, spent float64
		for range 100 {
			s, asked := NewStream(), 0
			for n := range answer {
				s.Room, s.Lag = answer-n-1, prompt+n-asked
				c.Plan([]*Stream{s}, 0, 0)
				g, draft, late := s.Guesses, 0.0, 0.0
				if g > 0 {
					draft = float64(step*float64(g)) + float64(each*float64(s.Lag))
					if asked == 0 {
						late = max(0, draft-c.PartSeconds(0, g))
					}
					c.Drafted(g, s.Lag, draft)
					asked = prompt + n
					c.Judged(s, g, g, 0)
				}
				spent, plain = spent+cheap(1+g)+draft, plain+cheap(1)
				c.Passed(1+g, 1, 1, cheap(1+g), draft, late)
			}
		}
		require.LessOrEqual(t, spent, 1.02*plain, "prompts of %d tokens: %.3f of the plain time", prompt, spent/plain)
		require.Greater(t, spent, plain, "it was never tried")
	}
}

// TestEveryRequestHasGuesses has no credit left, as after a bad minute of the machine.
func TestEveryRequestHasGuesses(t *testing.T) {
	c := calibrated(cheap)
	for range 5 {
		s, rounds := NewStream(), 0
		for range 20 {
			s.Room, c.credit = 100, -1
			c.Plan([]*Stream{s}, 0, 0)
			if g := s.Guesses; g > 0 {
				rounds++
				require.LessOrEqual(t, g, 2)
				c.Judged(s, g, g, 0)
			}
		}
		require.Equal(t, 1, rounds)
	}
}

func TestCalibrationRefillsNoCredit(t *testing.T) {
	c := calibrated(cheap)
	for range 40 {
		c.Passed(5, 1, 1, cheap(5), 0, 0)
	}
	before := c.credit
	c.Calibrate(9, cheap(9))
	require.Equal(t, before, c.credit)
}

// TestASuccessMakesProbesFrequentAgain has probes fail until they are rare, and then one succeed.
func TestASuccessMakesProbesFrequentAgain(t *testing.T) {
	c := calibrated(dear)
	s := NewStream()
	next := func(accepted int) (idle int) { // passes until the next probe, whose guesses fare as said
		for ; ; idle++ {
			s.Room, c.credit = 100, 1
			c.Plan([]*Stream{s}, 0, 0)
			g := s.Guesses
			a := min(accepted, g)
			c.Judged(s, g, g, a)
			c.Passed(1+g, 1, 1+a, dear(1+g), 0, 0)
			if g > 0 && c.probing {
				return idle
			}
			require.Less(t, idle, 200, "no probe")
		}
	}
	for range 40 { // it takes some until no plan pays
		next(0)
	}
	rare := next(0)
	require.GreaterOrEqual(t, rare, maxInterval-1)
	next(1)
	require.Less(t, next(0), 2*firstInterval, "it may be about to pay")
}

// TestGuessesThatAreRightAndTooDearAreProbedSeldom has eight requests whose pass is wide already, a draft that is mostly right and
// takes a third of a pass for a level, and all the credit that better days can leave.
func TestGuessesThatAreRightAndTooDearAreProbedSeldom(t *testing.T) {
	pass := func(n int) float64 { return 57e-3 + 4e-3*float64(max(0, n-8)) }
	c := calibrated(pass)
	c.credit = float64(maxCredit * c.pass.At(1))
	rng := rand.New(rand.NewPCG(1, 2))
	streams := make([]*Stream, 8)
	for i := range streams {
		streams[i] = NewStream()
	}
	seconds, tokens, probes := 0.0, 0, 0
	for range 600 {
		for _, s := range streams {
			s.Room = 100
		}
		c.Plan(streams, 0, 0)
		width, depth, committed := len(streams), 0, len(streams)
		for _, s := range streams {
			accepted := 0
			for accepted < s.Guesses && rng.Float64() < 0.85 {
				accepted++
			}
			c.Judged(s, s.Guesses, s.Guesses, accepted)
			width, depth, committed = width+s.Guesses, max(depth, s.Depth), committed+accepted
		}
		if depth > 0 {
			probes++
			c.Drafted(depth, 0, 20e-3*float64(depth))
		}
		c.Passed(width, len(streams), committed, pass(width), 20e-3*float64(depth), 0)
		seconds, tokens = seconds+pass(width)+20e-3*float64(depth), tokens+committed
	}
	require.Greater(t, probes, 5, "what the draft is worth has to be known")
	require.Less(t, seconds, 1.012*float64(tokens)/8*pass(8))
}

// TestSavedCreditReadsForNoProbeOfMany has requests of which a draft has read nothing yet, guesses that never paid, and all the credit
// that better days can leave.
func TestSavedCreditReadsForNoProbeOfMany(t *testing.T) {
	const token, lag = 1.4e-3, 100
	for _, n := range []int{1, 8} {
		c := calibrated(dear)
		c.Drafted(1, 0, 30e-3)
		c.ReadBy(0, lag, token*lag)
		c.credit, c.idle, c.interval = float64(maxCredit*c.pass.At(1)), maxInterval, maxInterval
		streams := make([]*Stream, n)
		for i := range streams {
			streams[i] = NewStream()
			streams[i].judged, streams[i].Room, streams[i].Lag = true, 100, lag
			for range 50 {
				c.Judged(streams[i], 2, 2, 0)
			}
		}
		plain, passes := c.pass.At(n), 0
		for ; passes < 5000; passes++ {
			if c.Plan(streams, 0, 0); c.probing {
				break
			}
		}
		if n == 1 {
			require.Zero(t, passes)
		} else {
			require.InDelta(t, token*lag/(earning*plain)-maxInterval, passes, 2, "once plain decoding has earned what reading takes")
		}
	}
}

func TestTheContextIsHowTheLastRoundWent(t *testing.T) {
	c, s := calibrated(cheap), NewStream()
	for accepted, want := range map[int]int{0: afterNone, 1: afterSome, 3: afterSome, 4: afterAll} {
		c.Judged(s, 4, 4, accepted)
		require.Equal(t, want, s.view(0).context, "%d of 4", accepted)
	}
}

// TestPlainPassesAreMeasuredNowAndThen has guesses that are always right.
func TestPlainPassesAreMeasuredNowAndThen(t *testing.T) {
	c, s, plain := calibrated(cheap), NewStream(), 0
	for range 4 * plainEvery {
		s.Room = 100
		c.Plan([]*Stream{s}, 0, 0)
		g := s.Guesses
		if g == 0 {
			plain++
		} else {
			c.Drafted(g, 0, 1e-3*float64(g))
			c.Judged(s, g, g, g)
		}
		c.Passed(1+g, 1, 1+g, cheap(1+g), 1e-3*float64(g), 0)
	}
	require.Equal(t, 3, plain)
}

// TestNoRoundMayCostMoreThanTheCredit has guesses that are always right in passes four times as long.
func TestNoRoundMayCostMoreThanTheCredit(t *testing.T) {
	c, s := calibrated(func(n int) float64 { return 40e-3 * float64(1+3*min(n-1, 1)) }), NewStream()
	for range 50 {
		c.Judged(s, 16, 16, 16)
	}
	s.Room = 100
	require.Less(t, c.credit, 3*40e-3)
	c.Plan([]*Stream{s}, 0, 0)
	require.Zero(t, s.Guesses, "the first bad round would cost what is not there")
	c.credit = 5 * 40e-3
	c.Plan([]*Stream{s}, 0, 0)
	require.Greater(t, s.Guesses, 8)
	c.credit = 0
	c.Plan([]*Stream{s}, 0, 0)
	require.Zero(t, s.Guesses)
}

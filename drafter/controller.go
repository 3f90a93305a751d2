package drafter

// Controller decides how many guesses each request gets in the next pass and from which drafter, so that committed tokens
// per second are highest. It has no clock: the engine reports what passes and drafts took, so its decisions follow from
// what it was told alone. It belongs to one drafter, which may be a union of several, and to one goroutine.
//
// Two things bound what a bad drafter costs. Guesses are planned only where the measured model says that they pay, or as a
// probe, which comes rarer the longer probes fail. And all of it draws on a credit: verified rounds that gave fewer tokens
// than plain passes would have given in their time are paid from it, better rounds refill it, plain decoding refills it by
// a little of its time, and without credit there are no guesses. What models read of texts before they can guess has an
// account of its own, since it is much at once: what better rounds give more than plain passes is paid into both.
type Controller struct {
	nMax  int    // guesses a request may have in one round
	pass  *Costs // T: seconds of a target pass by its tokens
	parts []part
	arms  []arm

	reach      []float64 // (nodes) of Trim
	order      []int32   // (nodes) of Trim
	depths     []int     // (parts) of fill: deepest level that is planned
	one        []*Stream // of choose
	credit     float64   // seconds
	readings   float64   // seconds that models may read texts for
	tokens     float64   // committed lately
	spent      float64   // seconds that they took
	sincePlain int       // passes with guesses since the last one without
	idle       int       // passes in which nothing was worth a guess
	interval   int       // idle passes before the next probe
	turn       int       // arm of the last probe
	trials     int       // requests that introduce has tried beyond its usual bound
	lengths    lengths   // of answers
	prompt     float64   // seconds of the target a token of prompts, smoothed
	rate       float64   // tokens a second that time is worth in the last plan
	probing    bool      // the last plan is a probe
	width      int       // tokens of the pass of the last plan without guesses
	pays       bool      // the last plan that was not a probe found guesses worth their cost
}

const (
	startCredit   = 1.5    // T(1) that guessing may cost before it has earned anything
	maxCredit     = 16.0   // T(1) that good rounds may save up for bad ones
	maxReadings   = 16.0   // T(1) that models may have read in advance of what it gives
	earning       = 0.0075 // share of plain decoding time that probes may use
	probeShare    = 0.005  // share of plain decoding time that probes may lose whose guesses are right
	firstTrials   = 3      // requests of a process that get a guess even if it costs more than guesses may
	maxTrial      = 12.0   // T(1) that this may take of one alone; less where others wait
	margin        = 1.02   // a plan must promise this much over plain decoding
	plainEvery    = 128    // passes with guesses after which one goes without, to measure T(1); fewer where it is hardly known
	firstInterval = 4      // idle passes before the first probe
	maxInterval   = 64
	tryInterval   = 16   // passes before an arm is tried that was not the best
	smallGain     = 0.02 // levels that add fewer tokens are not looked at
	smooth        = 0.2
	slow          = 0.05
	freeLag       = 32  // tokens of lag that cost nothing worth planning for
	maxReach      = 0.9 // no plan asks the drafter to be surer than this
	branches      = 3   // guesses for one position, where a drafter knows several
	rateWeight    = 24  // passes that the rate of all is a mean over
)

// NewController makes a controller for rounds of at most nMax guesses a request. costShares are first guesses at what one
// step of each drafter costs as a share of a target pass: the bytes of the one over those of the other.
func NewController(nMax int, costShares ...float64) *Controller {
	c := &Controller{nMax: nMax, pass: newPassCosts(), interval: firstInterval, arms: newArms(len(costShares))}
	for _, share := range costShares {
		c.parts = append(c.parts, part{draft: NewCosts(trackedDepth*4, true), answer: 1, prior: share})
	}
	c.depths, c.one = make([]int, len(c.parts)), make([]*Stream, 1)
	return c
}

// newPassCosts is an empty T. Where a pass waits for memory 4 tokens take 1.0 to 1.5 times as long as one, so a first round
// of a few guesses is worth trying before any of them was measured; more tokens are taken to cost as much as one each.
func newPassCosts() *Costs {
	c := NewCosts(maxCounts, false)
	c.steps = func(count int) float64 {
		if count <= firstRound {
			return 0.1
		}
		return 1
	}
	return c
}

// firstRound is the tokens of the widest pass that is thought cheap before it was measured.
const firstRound = 4

// Measured reports whether a pass over so many tokens was measured by itself.
func (c *Controller) Measured(nTokens int) bool { return c.pass.raw[nTokens-1] > 0 }

// CalibrationWidths are the tokens of the passes that a calibration measures, the most telling first: kernels exist for 1
// to 8 tokens at once, so the steps lie behind multiples of 8.
var CalibrationWidths = []int{1, 4, 8, 2, 16, 6, 3, 9, 5, 12, 7, 32, 17, 24, 10, 13, 25}

// Calibrate reports a pass that was run only to measure T.
func (c *Controller) Calibrate(nTokens int, seconds float64) {
	fresh := c.credit == 0 && c.pass.At(1) == 0
	if c.pass.Set(nTokens, seconds); fresh {
		c.start()
	}
}

// PassSeconds returns T of a number of tokens, 0 when nothing is known.
func (c *Controller) PassSeconds(nTokens int) float64 { return c.pass.At(nTokens) }

// DraftSeconds returns D of a number of steps, of all drafters together.
func (c *Controller) DraftSeconds(steps int) float64 {
	return c.armSeconds(&c.arms[len(c.arms)-1], steps)
}

// Acceptance returns the probability that a guess of all drafters at a level (from 0) of s is accepted once it is reached.
func (c *Controller) Acceptance(s *Stream, level int) float64 {
	return c.acceptance(s, len(c.arms)-1, level)
}

// Expected returns the tokens a second that the last plan promises, and whether it has guesses that are no probe.
func (c *Controller) Expected() (tokensPerSecond float64, pays bool) { return c.rate, c.pays }

// Drafted is DraftedBy of the only drafter.
func (c *Controller) Drafted(steps, lag int, seconds float64) { c.DraftedBy(0, steps, lag, seconds) }

// Probing reports whether the last plan is a probe.
func (c *Controller) Probing() bool { return c.probing }

// DraftedBy reports one call of drafter i: the steps that it took (levels of the deepest tree where it takes none; 0: it
// proposed nothing), and the tokens that its sessions had to catch up with.
func (c *Controller) DraftedBy(i, steps, lag int, seconds float64) {
	p := &c.parts[i]
	if steps > 0 {
		p.answer += float64(slow * (1 - p.answer))
	} else {
		p.answer -= float64(slow * p.answer)
	}
	switch {
	case lag > freeLag:
		c.ReadBy(i, lag, seconds-c.seconds(p, steps))
	case steps > 0:
		p.draft.Observe(steps, seconds)
	default:
		p.asking = blend(p.asking, seconds)
	}
}

// blend is an exponential mean that starts with its first value.
func blend(mean, x float64) float64 {
	if mean == 0 {
		return x
	}
	return mean + float64(smooth*(x-mean))
}

// Walked reports a tree and the nodes of it that were accepted.
func (c *Controller) Walked(s *Stream, t *Tree, path []int32) {
	a := &c.arms[s.Arm]
	if a.alone() && len(s.Offers) > 0 {
		return
	}
	a.sure = t.Len() > 0 && t.Belief[0] > 0
	a.beliefs.learn(t, path)
}

// Judged reports how a stream's tree fared: its nodes and levels, and how many levels were accepted.
func (c *Controller) Judged(s *Stream, nodes, levels, accepted int) {
	c.JudgedOf(s, nodes, levels, accepted, levels)
}

// JudgedOf is Judged of a drafter that was allowed more levels: those that it left out count as not accepted, because a
// plan gains nothing from them.
func (c *Controller) JudgedOf(s *Stream, nodes, levels, accepted, allowed int) {
	if levels < 1 {
		return
	}
	s.judged = true
	a := &c.arms[s.Arm]
	if !a.alone() { // an instant drafter offers chains, and what it offers beside them is planned for apart
		a.nodes += float64(smooth * (float64(nodes)/float64(levels) - a.nodes))
	}
	if !a.alone() || len(s.Offers) == 0 {
		c.judge(s, s.Arm, levels, accepted, allowed)
	}
	if accepted > 0 {
		c.interval = firstInterval
	}
}

func (c *Controller) judge(s *Stream, k, levels, accepted, allowed int) {
	v := s.view(k)
	v.recent.add(v.context, levels, accepted, allowed, recentDecay)
	c.arms[k].global.add(v.context, levels, accepted, allowed, globalDecay)
	switch accepted {
	case 0:
		v.context = afterNone
	case levels:
		v.context = afterAll
	default:
		v.context = afterSome
	}
}

package drafter

// Controller decides how many guesses each request gets in the next pass, so that committed tokens per second are highest
// (seed of the rule: T(M), D and E of a round). It has no clock: the engine reports what passes and drafts took, so its
// decisions follow from what it was told alone. It belongs to one drafter and one goroutine.
//
// Two things bound what a bad drafter costs. Guesses are planned only where the measured model says that they pay, or as a
// probe, which comes rarer the longer probes fail. And all of it draws on a credit: verified rounds that gave fewer tokens
// than plain passes would have given in their time are paid from it, better rounds refill it, plain decoding refills it by
// a hundredth of its time, and without credit there are no guesses.
type Controller struct {
	nMax   int     // guesses a request may have in one round
	pass   *Costs  // T: seconds of a target pass by its tokens
	draft  *Costs  // D: seconds of drafting by levels
	asking float64 // seconds of a draft that proposes nothing, smoothed
	answer float64 // share of calls in which something is proposed, smoothed
	lag    float64 // seconds a token that a drafter has to catch up with costs, smoothed
	nodes  float64 // nodes a level of the trees that came, smoothed
	prior  float64 // seconds of one level before any was measured, as a share of T(1)

	global     tally
	beliefs    Beliefs
	reach      []float64 // (nodes) of Trim
	order      []int32   // (nodes) of Trim
	credit     float64   // seconds
	sincePlain int       // passes with guesses since the last one without
	idle       int       // passes in which nothing was worth a guess
	interval   int       // idle passes before the next probe
	rate       float64   // tokens a second that the last plan expects
	probing    bool      // the last plan is a probe
	pays       bool      // the last plan that was not a probe found guesses worth their cost
}

// Stream is the controller's view of one request.
type Stream struct {
	Room    int // guesses that fit in the answer and the context; set before Plan
	Lag     int // tokens that the drafter's session has not drafted from yet; set before Plan
	Guesses int // the answer: nodes at most

	recent  tally
	context int
	started bool

	levels, best int     // while planning
	reach        float64 // probability that all levels planned so far are accepted
	nodes        int     // planned
	accept       [trackedDepth]float64
}

const (
	startCredit   = 2.5  // T(1) that guessing may cost before it has earned anything
	maxCredit     = 16.0 // T(1) that good rounds may save up for bad ones
	earning       = 0.01 // share of plain decoding time that probes may use
	margin        = 1.02 // a plan must promise this much over plain decoding
	plainEvery    = 128  // passes with guesses after which one goes without, to measure T(1)
	firstInterval = 4    // idle passes before the first probe
	maxInterval   = 64
	smallGain     = 0.02 // levels that add fewer tokens are not looked at
	smooth        = 0.2
	slow          = 0.05
	freeLag       = 32  // tokens of lag that cost nothing worth planning for
	maxReach      = 0.9 // no plan asks the drafter to be surer than this
)

// NewController makes a controller for rounds of at most nMax guesses a request. costShare is a first guess at what one
// level of drafting costs as a share of a target pass: the bytes of the one over those of the other.
func NewController(nMax int, costShare float64) *Controller {
	return &Controller{
		nMax: nMax, pass: NewCosts(maxCounts, false), draft: NewCosts(trackedDepth*4, true),
		nodes: 1, answer: 1, prior: costShare, interval: firstInterval,
	}
}

// NewStream makes the state of one request.
func NewStream() *Stream { return &Stream{context: afterAll} }

// CalibrationWidths are the tokens of the passes that a calibration measures, the most telling first: kernels exist for 1
// to 8 tokens at once, so the steps lie behind multiples of 8.
var CalibrationWidths = []int{1, 4, 8, 2, 16, 6, 3, 9, 5, 12, 7, 32, 17, 24, 10, 13, 25}

// Calibrate reports a pass that was run only to measure T.
func (c *Controller) Calibrate(nTokens int, seconds float64) {
	c.pass.Set(nTokens, seconds)
	c.credit = float64(startCredit * c.pass.At(1))
}

// PassSeconds returns T of a number of tokens, 0 when nothing is known.
func (c *Controller) PassSeconds(nTokens int) float64 { return c.pass.At(nTokens) }

// DraftSeconds returns D of a number of levels.
func (c *Controller) DraftSeconds(levels int) float64 {
	if levels < 1 {
		return c.asking
	}
	if !c.draft.Known() {
		return float64(c.prior*c.pass.At(1)) * float64(levels)
	}
	return c.draft.At(levels)
}

// Acceptance returns the probability that a guess at a level (from 0) of s is accepted once it is reached.
func (c *Controller) Acceptance(s *Stream, level int) float64 {
	return estimate(&s.recent, &c.global, s.context, level)
}

// Expected returns the tokens a second that the last plan promises, and whether it has guesses that are no probe.
func (c *Controller) Expected() (tokensPerSecond float64, pays bool) { return c.rate, c.pays }

// MinReach returns how likely all guesses so far have to be right for one more step of drafting to pay: the guess that it
// gives is right with the mean acceptance, and has to earn its time and that of its verification at the rate of the plan.
func (c *Controller) MinReach() float64 {
	if !c.draft.Known() || c.pass.At(2) == 0 || c.draft.At(1) < 0.01*c.pass.At(1) {
		return 0 // nothing is known yet, or guesses are free
	}
	one := c.pass.slopeAt(4) + c.draft.slopeAt(4)
	return min(float64(c.rate*one)/max(c.global.mean(), 0.2), maxReach)
}

// Trust returns what the drafter's beliefs have turned out to be worth.
func (c *Controller) Trust() *Beliefs { return &c.beliefs }

// Plan sets Guesses of every stream of the next pass. In it ride plain more requests that decode without guesses, and
// extra tokens of prompts.
func (c *Controller) Plan(streams []*Stream, plain, extra int) {
	for _, s := range streams {
		if s.Guesses == 0 {
			s.recent.fade()
		}
		s.Guesses = 0
	}
	if len(streams) == 0 || c.pass.At(1) == 0 {
		return
	}
	base := len(streams) + plain + extra
	without := float64(len(streams)+plain) / c.pass.At(base)
	c.rate, c.probing = without, false
	if c.credit <= 0 || c.sincePlain >= plainEvery {
		c.sincePlain, c.pays = 0, false
		return
	}
	if best := c.search(streams, plain, base); best > margin*without {
		c.rate, c.pays = best, true
		for _, s := range streams {
			s.Guesses = c.nodesOf(s.best)
		}
		return
	}
	c.pays = false
	if c.idle++; c.idle >= c.interval {
		c.probe(streams, base)
	}
}

// nodesOf is how many nodes a tree of some levels has, by what came so far.
func (c *Controller) nodesOf(levels int) int { return int(float64(c.nodes*float64(levels)) + 0.5) }

// search looks for the guesses with the highest rate and returns it; the streams' best are the levels there. All streams
// draft in common steps, so a level that some have costs the others nothing more: each number of steps is tried.
func (c *Controller) search(streams []*Stream, plain, base int) (best float64) {
	deepest := 1
	for _, s := range streams {
		deepest = max(deepest, min(c.nMax, s.Room))
		s.best = 0
		for level := range s.accept {
			s.accept[level] = c.Acceptance(s, level)
		}
	}
	first := 1
	if c.DraftSeconds(1) < float64(0.01*c.pass.At(1)) {
		first = deepest // drafting is free, its steps need no rationing
	}
	for steps := first; steps <= deepest; steps++ {
		best = max(best, c.fill(streams, plain, base, steps, best))
	}
	return best
}

// fill adds levels one by one within a number of steps, always the one that is most likely to give a token, and returns
// the highest rate on the way; where it beats best, the streams' best are the levels there. For a single stream with one
// acceptance the best over all steps is the optimal gamma.
func (c *Controller) fill(streams []*Stream, plain, base, steps int, best float64) float64 {
	for _, s := range streams {
		s.levels, s.nodes, s.reach = 0, 0, 1
	}
	tokens, width, depth, late := float64(len(streams)+plain), base, 0, 0.0
	// Rounds in which the drafter has nothing to say are plain passes. They count: a round of guesses is worth its time
	// where it beats the rate of all rounds together, not its own.
	silent := 1 - c.answer
	silentTokens := float64(silent * tokens)
	silentSeconds := float64(silent * (c.pass.At(base) + c.asking))
	for {
		s, gain := c.next(streams, steps)
		if s == nil {
			return best
		}
		if s.levels == 0 {
			late += c.catchUp(s)
		}
		s.levels, s.reach = s.levels+1, gain
		width += c.nodesOf(s.levels) - s.nodes
		s.nodes = c.nodesOf(s.levels)
		depth = max(depth, s.levels)
		tokens += gain
		pass := c.pass.At(width) + c.DraftSeconds(depth)
		if pass-c.pass.At(base) > c.credit {
			return best // one such round could cost more than may be lost
		}
		if rate := (float64(c.answer*tokens) + silentTokens) / (float64(c.answer*(pass+late)) + silentSeconds); rate > best {
			best = rate
			for _, s := range streams {
				s.best = s.levels
			}
		}
	}
}

// next returns the stream whose next level is most likely to be accepted, and that probability; nil when none is left.
func (c *Controller) next(streams []*Stream, steps int) (best *Stream, gain float64) {
	gain = smallGain
	for _, s := range streams {
		if n := c.nodesOf(s.levels + 1); s.levels >= steps || n > min(c.nMax, s.Room) {
			continue
		}
		if g := float64(s.reach * s.accept[min(s.levels, trackedDepth-1)]); g > gain {
			best, gain = s, g
		}
	}
	return best, gain
}

// catchUp is what it costs a round that s has to be drafted for again, spread over the rounds that may follow.
func (c *Controller) catchUp(s *Stream) float64 {
	if s.Lag <= freeLag {
		return 0
	}
	return float64(float64(s.Lag)*c.lag) / float64(1+min(s.Room, 64)/4)
}

// probe gives one stream a few guesses to see whether they are accepted by now, if the credit allows it.
func (c *Controller) probe(streams []*Stream, base int) {
	var s *Stream
	for _, o := range streams {
		if o.Room > 0 && (s == nil || o.Lag < s.Lag) {
			s = o
		}
	}
	if s == nil {
		return
	}
	plain, late := c.pass.At(base), 0.0
	if s.Lag > freeLag {
		late = float64(float64(s.Lag) * c.lag)
	}
	limit := min(c.credit, float64(plain/3)+late)
	n := 0
	for n < min(4, s.Room, c.nMax) && c.pass.At(base+c.nodesOf(n+1))-plain+c.DraftSeconds(n+1)+late <= limit {
		n++
	}
	if n == 0 && c.pass.At(base+1)-plain+c.DraftSeconds(1)+late <= c.credit {
		n = 1
	}
	if n == 0 {
		return
	}
	s.Guesses, c.probing, c.idle = min(max(1, c.nodesOf(n)), s.Room, c.nMax), true, 0
	c.interval = min(2*c.interval, maxInterval)
}

// Drafted reports one call of the drafter: levels of the deepest tree (0: it proposed nothing), and the tokens that its
// sessions had to catch up with.
func (c *Controller) Drafted(levels, lag int, seconds float64) {
	if levels > 0 {
		c.answer += float64(slow * (1 - c.answer))
	} else {
		c.answer -= float64(slow * c.answer)
	}
	switch {
	case lag > freeLag:
		if per := (seconds - c.DraftSeconds(levels)) / float64(lag); per > 0 {
			c.lag = blend(c.lag, per)
		}
	case levels > 0:
		c.draft.Observe(levels, seconds)
	default:
		c.asking = blend(c.asking, seconds)
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
func (c *Controller) Walked(t *Tree, path []int32) { c.beliefs.learn(t, path) }

// Judged reports how a stream's tree fared: its nodes and levels, and how many levels were accepted.
func (c *Controller) Judged(s *Stream, nodes, levels, accepted int) {
	if levels < 1 {
		return
	}
	s.recent.add(s.context, levels, accepted, recentDecay)
	c.global.add(s.context, levels, accepted, globalDecay)
	c.nodes += float64(smooth * (float64(nodes)/float64(levels) - c.nodes))
	switch accepted {
	case 0:
		s.context = afterNone
	case levels:
		s.context = afterAll
	default:
		s.context = afterSome
	}
	if accepted > 0 {
		c.interval = firstInterval
	}
}

// Passed reports a pass of decoding requests without prompts: its tokens, requests, committed tokens, and the seconds of
// the pass and of drafting for it. late is the part of drafting that caught up with a prompt and is not to be paid back.
func (c *Controller) Passed(nTokens, nStreams, committed int, pass, draft, late float64) {
	if nStreams < 1 || !(pass > 0) {
		return
	}
	expected := c.pass.At(nTokens)
	c.pass.Observe(nTokens, pass)
	if c.credit == 0 && expected == 0 {
		c.credit = float64(startCredit * c.pass.At(1))
	}
	if expected > 0 {
		pass = min(pass, float64(1.5*expected)) // what a neighbour on the machine did is not the guesses' fault
	}
	plain := c.pass.At(nStreams)
	if nTokens == nStreams {
		c.sincePlain = 0
		c.earn(float64(earning*plain) - draft)
		return
	}
	c.sincePlain++
	if !c.probing {
		c.idle = 0
	}
	c.earn(float64(float64(committed)/float64(nStreams)*plain) - pass - (draft - late))
}

func (c *Controller) earn(seconds float64) {
	c.credit = min(c.credit+seconds, float64(maxCredit*c.pass.At(1)))
}

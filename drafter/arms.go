package drafter

// part is what the controller knows of the cost of one drafter.
type part struct {
	draft   *Costs  // D: seconds of drafting by steps
	prior   float64 // seconds of a step before any was measured, as a share of T(1)
	asking  float64 // seconds of a draft that proposes nothing, smoothed
	answer  float64 // share of calls in which something is proposed, smoothed
	lag     float64 // seconds a token that the drafter has to catch up with costs, smoothed
	instant bool    // see Instant
	reads   bool    // it reads texts before it guesses, see SetReads
}

// arm is a way to draft: one part alone, or all together.
type arm struct {
	parts    []int   // of the controller
	nodes    float64 // nodes a level of the trees that came, smoothed
	global   tally
	beliefs  Beliefs
	instant  bool // all parts are
	sure     bool // its drafter says how sure it is
	unused   int  // passes with guesses since it was used
	interval int  // such passes before it is tried again

	minReach []float64 // of Limits; empty: not asked for since the last plan
}

// view is what one request showed of one arm.
type view struct {
	recent  tally
	context int
	accept  [trackedDepth]float64 // while planning: probability that a level is accepted once it is reached
	offered int                   // while planning: levels that it can give
}

// Stream is the controller's view of one request.
type Stream struct {
	Room    int     // guesses that fit in the answer and the context; set before Plan
	Lag     int     // tokens that the drafter's session has not drafted from yet; set before Plan
	Done    int     // tokens of the answer so far; set before Plan
	Left    int     // tokens that it may still get; set before Plan
	Offers  []*Tree // (arms) what instant drafters propose, set before Plan; nil where that is not known
	Only    int     // the one way to draft that the request wants, as Budget.Arm numbers it; 0: whichever is best
	Guesses int     // the answer: nodes at most
	Depth   int     // the answer: levels at most
	Arm     int     // the answer: the way to draft, as Budget.Arm numbers it less 1; all parts are the last one

	views  []view  // (arms)
	judged bool    // it has had guesses
	tried  bool    // it was one of the first, see introduce
	begun  float64 // tokens over which reading for it was spread when a plan began it; 0: none has

	levels, best int     // while planning
	reach        float64 // probability that all levels planned so far are accepted
	nodes        int     // planned
	late         float64 // of the levels planned: catchUp
}

// NewStream makes the state of one request.
func NewStream() *Stream { return &Stream{views: []view{{context: afterAll}}} }

// view returns what the stream showed of an arm.
func (s *Stream) view(arm int) *view {
	for len(s.views) <= arm {
		s.views = append(s.views, view{context: afterAll})
	}
	return &s.views[arm]
}

// newArms makes an arm of each part and, of several, one of all.
func newArms(nParts int) []arm {
	var arms []arm
	for i := range nParts {
		arms = append(arms, arm{parts: []int{i}})
	}
	if nParts > 1 {
		all := arm{}
		for i := range nParts {
			all.parts = append(all.parts, i)
		}
		arms = append(arms, all)
	}
	for i := range arms {
		arms[i].nodes, arms[i].interval = 1, tryInterval
	}
	return arms
}

// SetInstant says that a drafter answers before it is planned for and that asking it costs nothing.
func (c *Controller) SetInstant(i int) {
	c.parts[i].instant = true
	for k := range c.arms {
		a := &c.arms[k]
		a.instant = true
		for _, i := range a.parts {
			a.instant = a.instant && c.parts[i].instant
		}
	}
}

// SetReads says that a drafter has to read a text before it guesses, into a cache of its own.
func (c *Controller) SetReads(i int) { c.parts[i].reads = true }

// seconds returns D of a part for a number of steps.
func (c *Controller) seconds(p *part, steps int) float64 {
	switch {
	case p.instant:
		return 0
	case steps < 1:
		return p.asking
	case !p.draft.Known():
		return float64(p.prior*c.pass.At(1)) * float64(steps)
	}
	return p.draft.At(steps)
}

// armSeconds returns D of an arm, whose parts draft one after the other.
func (c *Controller) armSeconds(a *arm, steps int) (sum float64) {
	for _, i := range a.parts {
		sum += c.seconds(&c.parts[i], steps)
	}
	return sum
}

// PartSeconds returns D of drafter i for a number of steps.
func (c *Controller) PartSeconds(i, steps int) float64 { return c.seconds(&c.parts[i], steps) }

// answers returns the share of calls in which an arm proposes something.
func (c *Controller) answers(a *arm) (share float64) {
	for _, i := range a.parts {
		if p := &c.parts[i]; p.instant {
			share = 1
		} else {
			share = max(share, p.answer)
		}
	}
	return share
}

// free reports whether an arm's drafting costs next to nothing.
func (c *Controller) free(a *arm) bool { return c.armSeconds(a, 1) < float64(0.01*c.pass.At(1)) }

// acceptance is what arm k of a stream can expect of a level (from 0) that is reached.
func (c *Controller) acceptance(s *Stream, k, level int) float64 {
	v := s.view(k)
	return estimate(&v.recent, &c.arms[k].global, v.context, level)
}

// expect fills in what each arm of a stream may give in the next round. Where an instant drafter has said what it proposes
// and how sure it is of it, that counts, corrected by how the request's guesses fared lately.
func (c *Controller) expect(s *Stream) {
	deepest := min(c.nMax, s.Room)
	for k := range c.arms {
		a, v := &c.arms[k], s.view(k)
		v.offered = deepest
		var offer *Tree
		if k < len(s.Offers) {
			offer = s.Offers[k]
		}
		if offer != nil {
			v.offered = min(deepest, offer.Levels())
		}
		for level := range v.accept {
			v.accept[level] = c.acceptance(s, k, level)
			if offer != nil && level < v.offered && offer.Belief[level] > 0 {
				p := a.beliefs.Estimate(offer.Belief[level], false)
				v.accept[level] = shrink(v.recent.allAccepted[v.context], v.recent.allJudged[v.context], p, offerWeight)
			}
		}
		if len(a.parts) > 1 {
			c.expectAll(s, a, v)
		}
	}
}

// expectAll is expect for all parts together: at each level, at least the best of them is right as often as alone.
func (c *Controller) expectAll(s *Stream, a *arm, v *view) {
	offered := 0
	for _, i := range a.parts {
		offered = max(offered, s.view(i).offered)
	}
	v.offered = min(v.offered, offered)
	for level := range v.accept {
		best := 0.0
		for _, i := range a.parts {
			if o := s.view(i); level < o.offered {
				best = max(best, o.accept[level])
			}
		}
		d := min(level, trackedDepth-1)
		v.accept[level] = shrink(a.global.accepted[v.context][d], a.global.judged[v.context][d], best, 2*levelWeight)
	}
}

// alone reports whether the arm is one instant drafter: where it makes offers, Followed tells all about it.
func (a *arm) alone() bool { return a.instant && len(a.parts) == 1 }

// All plans all drafters that s allows, for guesses that are forced.
func (c *Controller) All(s *Stream) {
	if s.Arm = len(c.arms) - 1; s.Only > 0 {
		s.Arm = s.Only - 1
	}
}

// allows reports whether the request lets an arm draft.
func (s *Stream) allows(arm int) bool { return s.Only == 0 || s.Only == arm+1 }

// Models reports whether some drafter of a plan for s takes time.
func (c *Controller) Models(s *Stream) bool { return !c.arms[s.Arm].instant }

// Followed reports what became of what an instant drafter proposed, verified or not: ids are the tokens that came after the
// last committed one.
func (c *Controller) Followed(s *Stream, k int, t *Tree, ids []int32) {
	accepted := 0
	for accepted < t.Len() && accepted < len(ids) && t.IDs[accepted] == ids[accepted] && int(t.Parents[accepted]) == accepted-1 {
		accepted++
	}
	if levels := min(t.Levels(), len(ids)); levels > 0 {
		c.judge(s, k, levels, accepted, levels)
		c.arms[k].beliefs.follow(t, levels, accepted, ids[0])
	}
}

package drafter

// planned is what a plan gives in one pass.
type planned struct {
	tokens, seconds float64
	score           float64 // what is maximised: see score
}

// rate is the tokens a second that a plan promises.
func (p planned) rate() float64 { return p.tokens / p.seconds }

// deeper is the probability that the guess at a level and all before it are accepted, which is the tokens that the level gives:
// reach is that of the level before.
func deeper(reach, accept float64) float64 { return float64(reach * accept) }

// Plan sets Guesses, Depth and Arm of every stream of the next pass. In it ride plain more requests that decode without
// guesses, and extra tokens of prompts.
func (c *Controller) Plan(streams []*Stream, plain, extra int) {
	for _, s := range streams {
		if s.Guesses == 0 {
			for k := range s.views {
				if !c.arms[k].instant {
					s.views[k].recent.fade()
				}
			}
		}
		s.Guesses, s.Depth, s.Arm = 0, 0, len(c.arms)-1
	}
	for k := range c.arms {
		c.arms[k].minReach = c.arms[k].minReach[:0]
	}
	if len(streams) == 0 || c.pass.At(1) == 0 {
		return
	}
	base := len(streams) + plain + extra
	without := planned{tokens: float64(len(streams) + plain), seconds: c.pass.At(base)}
	rate := without.tokens / without.seconds
	c.rate, c.probing, c.width = rate, false, base
	// A plain pass that is taken to be slower than it is makes guesses look good, and is not corrected while all passes have them.
	due := float64(c.sincePlain) >= plainEvery*min(1, 1)
	if c.credit <= 0 || due {
		if c.sincePlain, c.pays = 0, false; !due {
			c.introduce(streams, base)
		}
		return
	}
	worth := float64(rate * c.speedup())
	for _, s := range streams {
		if c.expect(s); c.unread(s) > 0 {
			worth = rate // what guesses have given lately they give no request that is to be read for
		}
	}
	for _, s := range streams {
		c.choose(s, plain+len(streams)-1, base, worth)
	}
	best := c.search(streams, plain, base, worth)
	c.pays = best.tokens-float64(worth*best.seconds) > without.tokens-float64(worth*without.seconds)+float64((margin-1)*without.tokens) &&
		best.rate() > rate
	if !c.pays {
		if c.idle++; c.idle >= c.interval {
			c.probe(streams, base)
		}
		if !c.probing && !(len(streams) == 1 && c.widen(streams[0], base, worth)) {
			c.introduce(streams, base)
		}
		return
	}
	c.rate = worth
	if !known(streams) {
		c.rate = max(rate, best.rate())
	}
	for _, s := range streams {
		s.Depth = s.best
		s.Guesses = c.nodesOf(s, s.best)
	}
	c.begin(streams)
	if len(streams) == 1 {
		c.widen(streams[0], base, c.rate)
	}
	c.tryOthers(streams, base)
	c.deepen(streams, base)
}

// known reports whether all drafting is by instant drafters that have said what they propose.
func known(streams []*Stream) bool {
	for _, s := range streams {
		if s.Arm >= len(s.Offers) || s.Offers[s.Arm] == nil {
			return false
		}
	}
	return true
}

// nodesOf is how many nodes a tree of some levels has, by what came so far.
func (c *Controller) nodesOf(s *Stream, levels int) int {
	return int(float64(c.arms[s.Arm].nodes*float64(levels)) + 0.5)
}

// choose finds the way to draft for one stream that gives most while the others decode plainly; worth is the tokens that a
// second is worth.
func (c *Controller) choose(s *Stream, others, base int, worth float64) {
	if len(c.arms) == 1 {
		s.Arm = 0
		return
	}
	best, most, found := len(c.arms)-1, 0.0, false
	for k := range c.arms {
		if !s.allows(k) {
			continue
		}
		s.Arm = k
		c.one[0] = s
		p := c.search(c.one, others, base, worth)
		if net := p.tokens - float64(worth*p.seconds); !found || net > most {
			best, most, found = k, net, true
		}
	}
	s.Arm = best
}

// search looks for the best guesses; the streams' best are the levels there. All streams draft in common steps, so a level
// that some have costs the others nothing more: each number of steps is tried.
func (c *Controller) search(streams []*Stream, plain, base int, worth float64) (best planned) {
	deepest, free := 1, true
	for _, s := range streams {
		deepest = max(deepest, s.view(s.Arm).offered)
		free = free && c.free(&c.arms[s.Arm])
		s.best = 0
	}
	first := 1
	if free {
		first = deepest // drafting is free, its steps need no rationing
	}
	best = planned{tokens: float64(len(streams) + plain), seconds: c.pass.At(base)}
	best.score = c.score(streams, best, worth)
	for steps := first; steps <= deepest; steps++ {
		best = c.fill(streams, plain, base, steps, worth, best)
	}
	return best
}

// score is what a plan is worth. A drafter that is only asked now has to beat the rate of its own rounds, its silent ones
// included: the highest rate is the best. One that has spoken has to beat what else could be done with the time.
func (c *Controller) score(streams []*Stream, p planned, worth float64) float64 {
	if known(streams) {
		return p.tokens - float64(worth*p.seconds)
	}
	return p.rate()
}

// fill adds levels one by one within a number of steps, always the one that is most likely to give a token, and returns
// the best plan on the way or the one it was given; where it finds a better one, the streams' best are the levels there.
// For a single stream with one acceptance the best over all steps is the optimal gamma.
func (c *Controller) fill(streams []*Stream, plain, base, steps int, worth float64, best planned) planned {
	answer := 0.0
	for _, s := range streams {
		s.levels, s.nodes, s.reach = 0, 0, 1
		answer = max(answer, c.answers(&c.arms[s.Arm]))
	}
	clear(c.depths)
	tokens, width, late, draft := float64(len(streams)+plain), base, 0.0, 0.0
	// Rounds in which the drafter has nothing to say are plain passes. They count: a round of guesses is worth its time
	// where it beats the rate of all rounds together, not its own.
	silentTokens := float64((1 - answer) * tokens)
	silentSeconds := float64((1 - answer) * (c.pass.At(base) + c.asking(streams)))
	for {
		s, gain := c.next(streams, steps)
		if s == nil {
			return best
		}
		if s.levels == 0 {
			s.late = c.catchUp(s)
			late += s.late // for the token of the target's own
		}
		late += float64(s.late * gain)
		s.levels, s.reach = s.levels+1, gain
		width += c.nodesOf(s, s.levels) - s.nodes
		s.nodes = c.nodesOf(s, s.levels)
		draft = c.draftTo(s, draft)
		tokens += gain
		pass := c.pass.At(width) + draft
		if pass-c.pass.At(base) > c.credit {
			return best // one such round could cost more than may be lost
		}
		p := planned{tokens: float64(answer*tokens) + silentTokens, seconds: float64(answer*(pass+late)) + silentSeconds}
		if p.score = c.score(streams, p, worth); p.score > best.score {
			best = p
			for _, s := range streams {
				s.best = s.levels
			}
		}
	}
}

// asking is what it costs to ask the streams' drafters in vain.
func (c *Controller) asking(streams []*Stream) (most float64) {
	for _, s := range streams {
		most = max(most, c.armSeconds(&c.arms[s.Arm], 0))
	}
	return most
}

// draftTo is the seconds of drafting once s has its levels, given those without the last one. Parts draft one after the
// other, each for all of its streams at once.
func (c *Controller) draftTo(s *Stream, draft float64) float64 {
	for _, i := range c.arms[s.Arm].parts {
		if d := &c.depths[i]; s.levels > *d {
			p := &c.parts[i]
			before := 0.0
			if *d > 0 {
				before = c.seconds(p, *d)
			}
			*d = s.levels
			draft += c.seconds(p, *d) - before
		}
	}
	return draft
}

// next returns the stream whose next level is most likely to be accepted, and that probability; nil when none is left.
func (c *Controller) next(streams []*Stream, steps int) (best *Stream, gain float64) {
	gain = smallGain
	for _, s := range streams {
		v := s.view(s.Arm)
		if s.levels >= min(steps, v.offered) || c.barred(s) || c.nodesOf(s, s.levels+1) > min(c.nMax, s.Room) {
			continue
		}
		if g := deeper(s.reach, v.accept[min(s.levels, trackedDepth-1)]); g > gain {
			best, gain = s, g
		}
	}
	return best, gain
}

// deepen lets drafters that say how sure they are go on where they are sure: they stop by themselves.
func (c *Controller) deepen(streams []*Stream, base int) {
	if len(streams) > 1 {
		return // the pass is wide already, and all would wait for the deepest
	}
	s := streams[0]
	a := &c.arms[s.Arm]
	if s.Guesses == 0 || !a.sure {
		return
	}
	var b Budget
	if c.Limits(s, &b); len(b.MinReach) == 0 {
		return
	}
	deepest := min(c.nMax, s.Room)
	for s.Depth < deepest && c.pass.At(base+s.Depth+1)-c.pass.At(base)+c.armSeconds(a, s.Depth+1) <= c.credit {
		s.Depth++
	}
	s.Guesses = deepest
}

package drafter

// tryOthers gives one stream in a while to a way to draft that was not the best, to see whether it is by now.
func (c *Controller) tryOthers(streams []*Stream, base int) {
	if len(c.arms) == 1 {
		return
	}
	for _, s := range streams {
		if s.Guesses > 0 {
			c.arms[s.Arm].unused = 0
		}
	}
	for k := range c.arms {
		a := &c.arms[k]
		if a.instant {
			continue // what it would have given is known all the same
		}
		a.unused++
		s := streams[c.turn%len(streams)]
		if a.unused < a.interval || s.Room < 2 || s.Lag > freeLag || !s.allows(k) {
			continue
		}
		if c.pass.At(base+2)-c.pass.At(base)+c.armSeconds(a, 2) > c.credit {
			continue
		}
		a.unused, a.interval = 0, min(2*a.interval, 16*tryInterval)
		c.turn++
		s.Arm, s.Depth, s.Guesses = k, 2, min(4, s.Room, c.nMax)
		return
	}
}

// probe gives one stream a few guesses to see whether they are accepted by now, if the credit allows it. Instant drafters
// need no probes.
func (c *Controller) probe(streams []*Stream, base int) {
	var s *Stream
	for _, o := range streams {
		if o.Room > 0 && (s == nil || o.Lag < s.Lag) {
			s = o
		}
	}
	if s == nil || !c.nextArm(s) {
		return
	}
	a := &c.arms[s.Arm]
	plain, late := c.pass.At(base), c.unread(s)
	if len(streams) > 1 && late > float64(earning*plain)*float64(c.idle) {
		return // all would wait while one is read for; what good rounds saved is not for that
	}
	cost := func(n int) float64 {
		return c.pass.At(base+c.nodesOf(s, n)) - plain + c.armSeconds(a, n) + late
	}
	limit := min(c.credit, float64(plain/3)+late)
	n := 0
	for n < min(4, s.Room, c.nMax) && cost(n+1) <= limit {
		n++
	}
	if n == 0 && cost(1) <= c.credit {
		n = 1
	}
	if n == 0 {
		return
	}
	s.Guesses = min(max(1, c.nodesOf(s, n)), s.Room, c.nMax)
	s.Depth, c.probing, c.idle = s.Guesses, true, 0
	c.interval = min(2*c.interval, maxInterval)
}

// introduce gives a request that has had no guesses yet one or two, whatever the credit: the times of a busy machine are not to
// keep guesses from a whole request. It happens once a request, and is not to cost all of them more than a third of a pass. The first
// requests of all may take more of the account of readings for one guess: what a draft is worth has to be seen.
func (c *Controller) introduce(streams []*Stream, base int) {
	plain := c.pass.At(base)
	for _, s := range streams {
		if s.judged {
			continue
		}
		trial := !s.tried && c.trials < firstTrials
		for k := range c.arms {
			a, most := &c.arms[k], min(2, s.Room, c.nMax)
			if k < len(s.Offers) && s.Offers[k] != nil {
				most = min(most, s.Offers[k].Len())
			}
			if !s.allows(k) {
				continue
			}
			s.Arm = k
			late := c.unread(s)
			cost := func(n int) float64 { return c.pass.At(base+n) - plain + c.armSeconds(a, n) + late }
			n := 0
			for n < most && cost(n+1) <= plain/float64(3*base) && (a.instant || s.Lag <= freeLag) {
				n++
			}
			c.probing = n > 0
			if n == 0 && most > 0 && trial && cost(1) <= min(c.readings, maxTrial*c.pass.At(1)/float64(base*base)) {
				n, s.tried = 1, true
				c.trials++
			}
			if n > 0 {
				s.Guesses, s.Depth = n, n
				return
			}
		}
	}
}

// nextArm gives s the next way to draft whose worth only a probe can tell; false when there is none.
func (c *Controller) nextArm(s *Stream) bool {
	for range c.arms {
		c.turn = (c.turn + 1) % len(c.arms)
		if a := &c.arms[c.turn]; !a.instant && s.allows(c.turn) {
			s.Arm = c.turn
			return true
		}
	}
	return false
}

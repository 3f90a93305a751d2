package drafter

// lengths are those of the last answers. How much is still to come of another one decides whether it pays to have a draft model read
// its prompt: a hundred tokens read cost as much as several tokens decoded, for one more token and for a thousand.
type lengths struct {
	recent [32]int
	n      int // answers that ended
}

// usualLeft is how many tokens are thought to follow where no answer was as long; it counts as much as a part of an answer does.
const (
	usualLeft   = 64
	usualWeight = 0.25
)

func (l *lengths) add(tokens int) {
	l.recent[l.n%len(l.recent)] = tokens
	l.n++
}

// left is how many tokens follow in the mean after so many, by the answers that were longer.
func (l *lengths) left(done int) float64 {
	sum, n := usualWeight*usualLeft, usualWeight
	for _, length := range l.recent[:min(l.n, len(l.recent))] {
		if length > done {
			sum, n = sum+float64(length-done), n+1
		}
	}
	return sum / n
}

// ReadBy reports what reading took in a call of drafter i in which its sessions read texts: so many tokens in all. What guesses
// take is not learned from such a call.
func (c *Controller) ReadBy(i, tokens int, seconds float64) {
	if tokens > 0 && seconds > 0 {
		p := &c.parts[i]
		p.lag = blend(p.lag, seconds/float64(tokens))
	}
}

// ReadSeconds is what a token costs that the models of the way to draft that s has have to catch up with, one after the other; 0: not
// known.
func (c *Controller) ReadSeconds(s *Stream) (sum float64) {
	for _, i := range c.arms[s.Arm].parts {
		sum += c.readToken(&c.parts[i])
	}
	return sum
}

// Prompted reports a pass of the target that computed prompts, of so many tokens in all, and the seconds that models read texts before
// it (late, see Passed). Until a drafter has read a text itself, it is taken to need its share of what the target takes.
func (c *Controller) Prompted(nTokens int, seconds, late float64) {
	c.payReading(late)
	if nTokens > freeLag && seconds > 0 {
		c.prompt = blend(c.prompt, seconds/float64(nTokens))
	}
}

// Ended reports an answer of so many tokens that is over.
func (c *Controller) Ended(tokens int) { c.lengths.add(tokens) }

// Answer is how many tokens a new answer is expected to get, by the last ones.
func (c *Controller) Answer() float64 { return c.lengths.left(0) }

// unread is the seconds that it takes to read for s what its drafters do not know: of a request that was guessed for before, what was
// accepted since is no text to read.
func (c *Controller) unread(s *Stream) float64 {
	if s.Lag <= freeLag && s.judged {
		return 0
	}
	return float64(s.Lag) * c.ReadSeconds(s)
}

// catchUp is unread spread over the tokens that may follow.
func (c *Controller) catchUp(s *Stream) float64 {
	seconds := c.unread(s)
	if s.begun > 0 {
		return seconds / s.begun
	}
	return seconds / c.horizon(s, seconds)
}

// horizon is how many tokens may pay for so many seconds of reading: as many as answers get, and until one has ended all that there is
// room for, where the account of readings has half the seconds.
func (c *Controller) horizon(s *Stream, seconds float64) float64 {
	tokens := float64(s.Left)
	if c.lengths.n > 0 || seconds > float64(2*c.readings) {
		tokens = min(tokens, c.lengths.left(s.Done))
	}
	return max(1, tokens)
}

// begin notes for which requests of a plan that pays texts are to be read. One that has begun goes on, whatever the account has by
// then: of several at once a part may not pay what all pay together.
func (c *Controller) begin(streams []*Stream) {
	for _, s := range streams {
		switch seconds := c.unread(s); {
		case seconds == 0:
			s.begun = 0
		case s.Guesses > 0 && s.begun == 0:
			s.begun = c.horizon(s, seconds)
		}
	}
}

// barred reports whether s needs a text read and earlier readings have not paid yet. One that has begun goes on.
func (c *Controller) barred(s *Stream) bool {
	return c.readings <= 0 && s.begun == 0 && c.unread(s) > 0
}

// readToken is the seconds that a drafter takes for a token of a text; 0 where not even a guess can be made.
func (c *Controller) readToken(p *part) float64 {
	if p.lag > 0 || !p.reads {
		return p.lag
	}
	return float64(p.prior * c.prompt)
}

package drafter

import "slices"

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

// Prompted reports a pass of the target that computed prompts, of so many tokens in all. Until a drafter has read a text itself, it is
// taken to need its share of that.
func (c *Controller) Prompted(nTokens int, seconds float64) {
	if nTokens > freeLag && seconds > 0 {
		c.prompt = blend(c.prompt, seconds/float64(nTokens))
	}
}

// Ended reports an answer of so many tokens that is over.
func (c *Controller) Ended(tokens int) { c.lengths.add(tokens) }

// Answer is how many tokens a new answer is expected to get, by the last ones.
func (c *Controller) Answer() float64 { return c.lengths.left(0) }

// catchUp is the seconds that it takes to read for s what its drafters do not know, spread over the tokens that may follow; over all
// that the answer has room for until a first text was read, which is to be tried once.
func (c *Controller) catchUp(s *Stream) float64 {
	if s.Lag <= freeLag {
		return 0
	}
	tokens := float64(s.Left)
	if c.haveRead(s) {
		tokens = min(tokens, c.lengths.left(s.Done))
	}
	return float64(float64(s.Lag)*c.ReadSeconds(s)) / max(1, tokens)
}

// haveRead reports whether the drafters of s have read a text.
func (c *Controller) haveRead(s *Stream) bool {
	return !slices.ContainsFunc(c.arms[s.Arm].parts, func(i int) bool { return c.parts[i].reads && c.parts[i].lag == 0 })
}

// barred reports whether s needs a text read and earlier readings have not paid yet. One that has begun goes on.
func (c *Controller) barred(s *Stream) bool {
	return s.Lag > freeLag && c.readings <= 0 && c.ReadSeconds(s) > 0
}

// readToken is the seconds that a drafter takes for a token of a text; 0 where not even a guess can be made.
func (c *Controller) readToken(p *part) float64 {
	if p.lag > 0 || !p.reads {
		return p.lag
	}
	return float64(p.prior * c.prompt)
}

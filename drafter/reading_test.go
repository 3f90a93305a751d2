package drafter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// readers is a server with a draft that has to read each prompt before it guesses.
type readers struct {
	pass           func(n int) float64
	accept         float64 // probability that a guess is right
	token, step    float64 // seconds a token of a text, seconds a step
	prompt, answer int     // tokens
	room           int     // tokens that answers may get; how long they get nobody knows
	c              *Controller
	rng            *rand.Rand
	asked, done    map[*Stream]int
}

// request answers n requests at once and returns the seconds that they took.
func (r *readers) request(n int) (spent float64) {
	var live []*Stream
	r.c.SetReads(0)
	for range n {
		live = append(live, NewStream())
		r.c.Prompted(r.prompt, 4*r.token*float64(r.prompt), 0)
	}
	r.asked, r.done = map[*Stream]int{}, map[*Stream]int{}
	for len(live) > 0 {
		for _, s := range live {
			s.Done = r.done[s]
			s.Lag, s.Left, s.Room = r.prompt+s.Done-r.asked[s], r.room-s.Done, r.room-s.Done-1
		}
		r.c.Plan(live, 0, 0)
		width, committed, depth, lag, read := len(live), 0, 0, 0, 0
		var on []*Stream
		for _, s := range live {
			accepted := 0
			for accepted < s.Guesses && r.rng.Float64() < r.accept {
				accepted++
			}
			if width, depth = width+s.Guesses, max(depth, s.Depth); s.Guesses > 0 {
				lag, read, r.asked[s] = max(lag, s.Lag), read+s.Lag, r.prompt+s.Done
				r.c.Judged(s, s.Guesses, s.Guesses, accepted)
			}
			tokens := min(1+accepted, r.answer-s.Done)
			committed += tokens
			if r.done[s] += tokens; r.done[s] < r.answer {
				on = append(on, s)
			} else {
				r.c.Ended(r.answer)
			}
		}
		draft, late := 0.0, 0.0
		if depth > 0 {
			late = float64(r.token * float64(read))
			draft = float64(r.step*float64(depth)) + late
			if lag > 1+nMax { // as the engine tells texts from what was accepted
				r.c.ReadBy(0, read, late)
			} else {
				r.c.Drafted(depth, lag, draft)
				late = 0
			}
		}
		spent += r.pass(width) + draft
		r.c.Passed(width, len(live), committed, r.pass(width), draft, late)
		live = on
	}
	return spent
}

// TestPromptsAreReadWhereAnswersAreLongEnough has answers and prompts of many lengths. A draft that guesses well loses time where it
// reads a long prompt for a short answer, and how long an answer gets is known from those before.
func TestPromptsAreReadWhereAnswersAreLongEnough(t *testing.T) {
	for _, x := range []struct {
		n, answer, prompt int
		most              float64 // time of plain decoding
	}{
		{1, 6, 100, 1.08}, {1, 6, 300, 1.04}, {1, 6, 600, 1.04}, {1, 12, 300, 1.05}, {1, 12, 600, 1.03}, {1, 25, 600, 1.03},
		{1, 12, 100, 0.8}, {1, 50, 300, 0.7}, {1, 100, 600, 0.7}, {1, 400, 1500, 0.65},
		{4, 6, 300, 1.03}, {4, 12, 300, 1.03}, {4, 25, 600, 1.03}, {4, 400, 100, 1.03},
	} {
		const step = 6e-3
		r := &readers{pass: cheap, accept: 0.85, token: 1e-3, step: step, prompt: x.prompt, answer: x.answer, room: 400, c: NewController(nMax, step/cheap(1)), rng: rand.New(rand.NewPCG(1, 2))}
		spent := 0.0
		for range 60 {
			spent += r.request(x.n)
		}
		ratio := spent / float64(float64(60*x.answer)*cheap(x.n))
		t.Logf("%d at once, answers of %d tokens to prompts of %d: %.3f of the time of plain decoding", x.n, x.answer, x.prompt, ratio)
		require.Less(t, ratio, x.most, "%d at once, answers of %d tokens to prompts of %d", x.n, x.answer, x.prompt)
	}
}

// TestShortRequestsOfManyAreNotReadFor has prompts so short that reading one for each request is easily taken for nothing, while all
// the others wait for it.
func TestShortRequestsOfManyAreNotReadFor(t *testing.T) {
	rich := func(n int) float64 { return max(40e-3, 20e-3+1.5e-3*float64(n)) }
	for _, n := range []int{1, 4, 8} {
		for _, answer := range []int{5, 12} {
			for _, accept := range []float64{0, 0.3, 0.6, 0.95} {
				r := &readers{pass: rich, accept: accept, token: 1e-3, step: 6e-3, prompt: 20, answer: answer, room: 1000, c: NewController(nMax, 0.15), rng: rand.New(rand.NewPCG(1, 2))}
				spent := 0.0
				for range 100 {
					spent += r.request(n)
				}
				ratio := spent / (float64(100*answer) * rich(n))
				require.Less(t, ratio, 1.08, "%d at once, answers of %d tokens, acceptance %v", n, answer, accept)
			}
		}
	}
}

// TestAPlainPassThatIsTakenForSlowIsMeasured has guesses that only look good since T was calibrated in a bad moment.
func TestAPlainPassThatIsTakenForSlowIsMeasured(t *testing.T) {
	flat := func(int) float64 { return 40e-3 }
	c, s, plain := calibrated(flat), NewStream(), 0
	c.Calibrate(1, 60e-3)
	for n := range 200 {
		s.Room, s.Left = 100, 100
		c.Plan([]*Stream{s}, 0, 0)
		g := s.Guesses
		if g == 0 {
			plain++
		} else {
			c.Drafted(g, 0, 12e-3*float64(g))
			c.Judged(s, g, g, min(1, g)*(n%4/3))
		}
		c.Passed(1+g, 1, 1+min(1, g)*(n%4/3), 40e-3, 12e-3*float64(g), 0)
		c.credit = 1 // from better days
	}
	require.Greater(t, plain, 100)
	require.InDelta(t, 40e-3, c.PassSeconds(1), 4e-3)
}

// TestTheFirstRequestsHaveAGuess has a draft so dear that no plan pays, and requests that bring prompts to read.
func TestTheFirstRequestsHaveAGuess(t *testing.T) {
	c := calibrated(dear)
	c.SetReads(0)
	c.Drafted(1, 0, 30e-3)
	c.Prompted(100, 100*4e-3, 0)
	guessed, spent := 0, 0.0
	for range 20 {
		s := NewStream()
		for n := range 10 {
			s.Room, s.Lag, s.Done, s.Left = 20, 60+n, n, 20-n
			if c.Plan([]*Stream{s}, 0, 0); s.Guesses > 0 {
				guessed++
				require.Equal(t, 1, s.Guesses)
				spent += 60 * 1e-3
				c.ReadBy(0, 60, 60e-3)
				c.Judged(s, 1, 1, 0)
				c.Passed(2, 1, 1, dear(2), 90e-3, 60e-3)
				break
			}
			c.Passed(1, 1, 1, dear(1), 0, 0)
		}
	}
	require.Equal(t, firstTrials, guessed)
	require.LessOrEqual(t, spent, maxReadings*c.pass.At(1))
}

// TestNoPromptIsReadForFewTokens has the first request of a process, which may get so few tokens that its prompt is not worth reading:
// what that takes is guessed from what the target took.
func TestNoPromptIsReadForFewTokens(t *testing.T) {
	for _, n := range []int{8, 24, 400} {
		r := &readers{pass: cheap, accept: 0.85, token: 1e-3, step: 6e-3, prompt: 900, answer: n, room: n, c: NewController(nMax, 0.25), rng: rand.New(rand.NewPCG(1, 2))}
		if ratio := r.request(1) / float64(float64(n)*cheap(1)); n < 100 {
			require.Less(t, ratio, 1.02, "answer of %d tokens", n)
		} else {
			require.Less(t, ratio, 0.6, "answer of %d tokens", n)
		}
	}
}

// TestALongTextIsNotTriedFirst has a first prompt that takes much longer to read than the account has.
func TestALongTextIsNotTriedFirst(t *testing.T) {
	r := &readers{pass: cheap, accept: 0.85, token: 1e-3, step: 6e-3, prompt: 8000, answer: 6, room: 1000, c: NewController(nMax, 0.15), rng: rand.New(rand.NewPCG(1, 2))}
	require.Less(t, r.request(1), 1.1*6*cheap(1))
}

// TestWhatGuessesGiveIsNotAskedOfReading has a draft that more than doubles the speed once it has read.
func TestWhatGuessesGiveIsNotAskedOfReading(t *testing.T) {
	r := &readers{pass: cheap, accept: 0.95, token: 1e-3, step: 6e-3, prompt: 1500, answer: 120, room: 1000, c: NewController(nMax, 0.15), rng: rand.New(rand.NewPCG(1, 2))}
	spent := 0.0
	for range 60 {
		spent += r.request(1)
	}
	t.Logf("%.3f of the time of plain decoding", spent/float64(60*120*cheap(1)))
	require.Less(t, spent, 0.8*60*120*cheap(1))
}

func TestWhatIsLeftOfAnAnswer(t *testing.T) {
	var l lengths
	require.InDelta(t, usualLeft, l.left(0), 1e-9)
	require.InDelta(t, usualLeft, l.left(5000), 1e-9)
	for range 100 {
		l.add(20)
	}
	require.InDelta(t, 20, l.left(0), 1)
	require.InDelta(t, 15, l.left(5), 1)
	require.InDelta(t, usualLeft, l.left(20), 1e-9, "no answer was as long")
	for range 16 {
		l.add(220)
	}
	require.InDelta(t, 120, l.left(0), 2, "the mean of those lately")
	require.InDelta(t, 180, l.left(40), 4, "of which the short ones are over")
}

// TestReadingsHaveAnAccount bars a request whose text is yet to be read where readings have not paid, and lets rounds that give more than
// plain passes refill the account.
func TestReadingsHaveAnAccount(t *testing.T) {
	c := calibrated(cheap)
	c.ReadBy(0, 100, 50e-3)
	late := float64(0.9 * maxReadings * c.pass.At(1))
	c.Passed(5, 1, 5, cheap(5), late, late)
	require.Positive(t, c.readings)
	s := &Stream{Room: 300, Left: 301, Lag: 100, judged: true}
	for range 20 {
		c.Judged(s, 4, 4, 4)
	}
	c.credit = float64(maxCredit * c.pass.At(1))
	c.Plan([]*Stream{s}, 0, 0)
	require.Positive(t, s.Guesses)
	c.Passed(5, 1, 1, cheap(5), late, late)
	require.Negative(t, c.readings)
	require.GreaterOrEqual(t, c.readings, -float64(maxReadings*c.pass.At(1)), "one long text does not bar those of hundreds of requests")
	late = 1e9
	c.Passed(5, 1, 1, cheap(5), late, late)
	require.InDelta(t, -maxReadings*c.pass.At(1), c.readings, 0.1)
	c.credit = float64(maxCredit * c.pass.At(1))
	c.Plan([]*Stream{s}, 0, 0)
	require.Positive(t, s.Guesses, "what is begun goes on")
	next := func(lag int) int {
		s = &Stream{Room: 300, Left: 301, Lag: lag, judged: true}
		for range 20 {
			c.Judged(s, 4, 4, 4)
		}
		c.credit = float64(maxCredit * c.pass.At(1))
		c.Plan([]*Stream{s}, 0, 0)
		return s.Guesses
	}
	require.Zero(t, next(100))
	require.Positive(t, next(3), "nothing to read")
	for c.readings <= 0 {
		c.Passed(5, 1, 5, cheap(5), 0, 0)
	}
	c.Prompted(200, 1, late)
	require.Zero(t, next(100), "passes with prompts are no exception")
	for c.readings <= 0 {
		c.Passed(5, 1, 5, cheap(5), 0, 0)
	}
	require.Positive(t, next(100), "they have paid")
	for range 300 {
		c.Passed(5, 1, 5, cheap(5), 0, 0)
	}
	require.InDelta(t, maxReadings*c.pass.At(1), c.readings, 0.1, "no more than that is saved up")
}

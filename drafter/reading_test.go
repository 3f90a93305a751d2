package drafter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// readers is a server with a draft that has to read each prompt before it guesses, and is right 17 times in 20.
type readers struct {
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
		r.c.Prompted(r.prompt, 4*r.token*float64(r.prompt))
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
			for accepted < s.Guesses && r.rng.Float64() < 0.85 {
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
			if lag > freeLag {
				r.c.ReadBy(0, read, late)
			} else {
				r.c.Drafted(depth, lag, draft)
				late = 0
			}
		}
		spent += cheap(width) + draft
		r.c.Passed(width, len(live), committed, cheap(width), draft, late)
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
		r := &readers{token: 1e-3, step: step, prompt: x.prompt, answer: x.answer, room: 400, c: NewController(nMax, step/cheap(1)), rng: rand.New(rand.NewPCG(1, 2))}
		spent := 0.0
		for range 60 {
			spent += r.request(x.n)
		}
		ratio := spent / float64(float64(60*x.answer)*cheap(x.n))
		t.Logf("%d at once, answers of %d tokens to prompts of %d: %.3f of the time of plain decoding", x.n, x.answer, x.prompt, ratio)
		require.Less(t, ratio, x.most, "%d at once, answers of %d tokens to prompts of %d", x.n, x.answer, x.prompt)
	}
}

// TestNoPromptIsReadForFewTokens has the first request of a process, which may get so few tokens that its prompt is not worth reading:
// what that takes is guessed from what the target took.
func TestNoPromptIsReadForFewTokens(t *testing.T) {
	for _, n := range []int{8, 24, 400} {
		r := &readers{token: 1e-3, step: 6e-3, prompt: 900, answer: n, room: n, c: NewController(nMax, 0.25), rng: rand.New(rand.NewPCG(1, 2))}
		if ratio := r.request(1) / float64(float64(n)*cheap(1)); n < 100 {
			require.Less(t, ratio, 1.02, "answer of %d tokens", n)
		} else {
			require.Less(t, ratio, 0.6, "answer of %d tokens", n)
		}
	}
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
	c.credit = float64(maxCredit * c.pass.At(1))
	c.Plan([]*Stream{s}, 0, 0)
	require.Zero(t, s.Guesses)
	s.Lag = 3
	c.Plan([]*Stream{s}, 0, 0)
	require.Positive(t, s.Guesses, "what is read goes on")
	for c.readings <= 0 {
		c.Passed(5, 1, 5, cheap(5), 0, 0)
	}
	s.Lag = 100
	c.Plan([]*Stream{s}, 0, 0)
	require.Positive(t, s.Guesses, "they have paid")
}

package drafter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// simulation is a machine and a drafter on which requests are decoded with made-up times.
type simulation struct {
	pass     func(nTokens int) float64
	level    float64                        // seconds a level of drafting
	accept   func(token, level int) float64 // probability that a guess is accepted
	streams  int
	tokens   int     // of each request on average
	noise    float64 // of the times
	proposes float64 // share of rounds in which the drafter has something to say; 0: all
	cold     bool    // nothing was calibrated
	seed     uint64
}

// nMax is how many guesses the simulations allow a round.
const nMax = 16

// run decodes with the controller, or with a fixed number of guesses when fixed is 0 or more, and returns the seconds.
func (m simulation) run(t *testing.T, fixed int) (seconds float64, c *Controller) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, m.seed))
	jitter := func() float64 { return 1 + m.noise*math.Abs(rng.NormFloat64()) }
	c = NewController(nMax, m.level/m.pass(1))
	for _, n := range CalibrationWidths {
		if !m.cold {
			c.Calibrate(n, m.pass(n)*jitter())
		}
	}
	active := make([]*Stream, max(m.streams, 1))
	done := make([]int, len(active))
	for i := range active {
		active[i] = NewStream()
	}
	for total := 0; total < m.tokens*len(active); {
		for _, s := range active {
			s.Room, s.Lag = 100, 0
		}
		if fixed < 0 {
			c.Plan(active, 0, 0)
		}
		width, depth, committed := len(active), 0, 0
		levels, accepted := make([]int, len(active)), make([]int, len(active))
		asked := false
		for k, s := range active {
			g := s.Guesses
			if fixed >= 0 {
				g = min(fixed, s.Room)
			}
			require.LessOrEqual(t, g, min(nMax, s.Room))
			asked = asked || g > 0
			if m.proposes > 0 && rng.Float64() > m.proposes {
				g = 0
			}
			levels[k] = g
			width, depth = width+g, max(depth, g)
			for accepted[k] < g && rng.Float64() < m.accept(done[k]+accepted[k], accepted[k]) {
				accepted[k]++
			}
			committed += accepted[k] + 1
		}
		pass, draft := m.pass(width)*jitter(), m.level*float64(depth)*jitter()
		seconds += pass + draft
		if asked {
			c.Drafted(depth, 0, draft)
		}
		for k, s := range active {
			c.Judged(s, levels[k], levels[k], accepted[k])
			done[k] += accepted[k] + 1
		}
		total += committed
		c.Passed(width, len(active), committed, pass, draft, 0)
	}
	return seconds, c
}

// best returns the seconds of the best fixed number of guesses and that number.
func (m simulation) best(t *testing.T) (seconds float64, guesses int) {
	seconds = math.Inf(1)
	for g := range nMax + 1 {
		if s, _ := m.run(t, g); s < seconds {
			seconds, guesses = s, g
		}
	}
	return seconds, guesses
}

// bestExpected is best for a constant acceptance, by expectation rather than by one run's luck.
func (m simulation) bestExpected(a float64) (seconds float64, guesses int) {
	seconds = math.Inf(1)
	for g := range nMax + 1 {
		round := m.pass(m.streams*(1+g)) + m.level*float64(g)
		if s := float64(m.tokens) / ExpectedTokens(a, g) * round * (1 + m.noise*math.Sqrt(2/math.Pi)); s < seconds {
			seconds, guesses = s, g
		}
	}
	return seconds, guesses
}

// Machines: a pass that is bound by memory, and one whose verification is dear.
func cheap(n int) float64 { return max(40e-3, 12e-3+6e-3*float64(n)) }
func dear(n int) float64  { return 40e-3 * (0.6 + 0.4*float64(n)) }
func wall(n int) float64  { return 40e-3 + 30e-3*float64((n-1)/8) }

func constant(a float64) func(int, int) float64 { return func(int, int) float64 { return a } }

func TestAUselessDrafterCostsAtMostThreePercent(t *testing.T) {
	for name, pass := range map[string]func(int) float64{"cheap": cheap, "dear": dear, "wall": wall} {
		for _, level := range []float64{0, 1e-3, 8e-3, 30e-3} {
			for _, streams := range []int{1, 8} {
				for _, noise := range []float64{0, 0.1} {
					m := simulation{pass: pass, level: level, accept: constant(0), streams: streams, tokens: 256, noise: noise}
					t.Run(fmt.Sprint(name, level, streams, noise), func(t *testing.T) {
						plain, _ := m.run(t, 0)
						with, _ := m.run(t, -1)
						require.LessOrEqual(t, with, plain*1.03, "%.4f of plain speed", plain/with)
					})
				}
			}
		}
	}
}

func TestAGoodDrafterIsUsedAsWellAsTheBestFixedSetting(t *testing.T) {
	for name, pass := range map[string]func(int) float64{"cheap": cheap, "dear": dear, "wall": wall} {
		for _, level := range []float64{0, 6e-3} {
			for _, a := range []float64{0.3, 0.7, 0.85, 0.97} {
				for _, streams := range []int{1, 4} {
					m := simulation{pass: pass, level: level, accept: constant(a), streams: streams, tokens: 4500, noise: 0.02}
					t.Run(fmt.Sprint(name, level, a, streams), func(t *testing.T) {
						want, g := m.bestExpected(a)
						var got float64
						for m.seed = range 3 {
							seconds, _ := m.run(t, -1)
							got += seconds / 3
						}
						require.LessOrEqual(t, got, want/0.97, "%.3f of the speed with %d guesses", want/got, g)
					})
				}
			}
		}
	}
}

func TestPhasesAreNoticed(t *testing.T) {
	phases := func(token, _ int) float64 {
		if token/300%2 == 0 {
			return 0.95
		}
		return 0
	}
	for name, pass := range map[string]func(int) float64{"cheap": cheap, "dear": dear} {
		t.Run(name, func(t *testing.T) {
			m := simulation{pass: pass, level: 1e-3, accept: phases, tokens: 2400, noise: 0.02}
			plain, _ := m.run(t, 0)
			fixed, g := m.best(t)
			got, _ := m.run(t, -1)
			require.Less(t, got, fixed, "phases must be worth more than %d guesses all the time", g)
			m.accept = constant(0.95)
			good, _ := m.best(t)
			oracle := (plain + good) / 2
			require.LessOrEqual(t, got, oracle/0.93, "%.3f of what knowing the phases gives", oracle/got)
		})
	}
}

func TestSilenceIsNotHeldAgainstAFreeDrafter(t *testing.T) {
	m := simulation{pass: cheap, level: 20e-6, accept: constant(0.9), tokens: 6000, proposes: 0.2}
	want, _ := m.best(t)
	got, c := m.run(t, -1)
	require.LessOrEqual(t, got, want/0.97, "%.3f", want/got)
	require.Greater(t, c.Acceptance(NewStream(), 0), 0.8)
}

func TestThePlanFollowsTheoryWhenAcceptanceIsConstant(t *testing.T) {
	const passSeconds = 1.0
	for _, a := range []float64{0.5, 0.6, 0.7, 0.8, 0.9} {
		for _, cost := range []float64{0.02, 0.05, 0.1, 0.2} {
			c := NewController(16, cost)
			for n := 1; n <= 17; n++ {
				c.Calibrate(n, passSeconds)
			}
			for n := 1; n <= 16; n++ {
				c.parts[0].draft.Set(n, cost*float64(n))
			}
			s := NewStream()
			c.credit = 10
			for ctx := range nContexts { // as if it had been seen for ever
				for d := range trackedDepth {
					s.views[0].recent.judged[ctx][d], s.views[0].recent.accepted[ctx][d] = 1e12, a*1e12
				}
			}
			s.Room = 1000
			c.Plan([]*Stream{s}, 0, 0)
			gamma := OptimalGamma(a, cost, 16)
			require.InDelta(t, Speedup(a, gamma, cost), Speedup(a, s.Guesses, cost), 1e-6, "alpha %v, c %v: %d guesses, want %d", a, cost, s.Guesses, gamma)
			rate, pays := c.Expected()
			require.True(t, pays)
			require.InDelta(t, Speedup(a, gamma, cost), rate, 1e-6)
		}
	}
}

func TestManyStreamsGetFewerGuesses(t *testing.T) {
	guesses := func(n int) (each float64) {
		c := NewController(16, 0.02)
		for w := 1; w <= 128; w++ {
			c.Calibrate(w, wall(w))
		}
		streams := make([]*Stream, n)
		for i := range streams {
			streams[i] = NewStream()
			streams[i].Room = 100
		}
		c.credit = 1
		c.Plan(streams, 0, 0)
		for _, s := range streams {
			each += float64(s.Guesses)
		}
		return each / float64(n)
	}
	require.Greater(t, guesses(1), guesses(8))
}

func TestTheSurerStreamGetsTheGuesses(t *testing.T) {
	c := NewController(16, 0)
	for w := 1; w <= 16; w++ {
		c.Calibrate(w, 0.9+0.1*float64(w))
	}
	good, bad := NewStream(), NewStream()
	for range 20 {
		c.Judged(good, 4, 4, 4)
		c.Judged(bad, 4, 4, 0)
	}
	good.Room, bad.Room = 50, 50
	c.Plan([]*Stream{bad, good}, 0, 0)
	require.Greater(t, good.Guesses, 2)
	require.Zero(t, bad.Guesses)
	good.Room = 1
	c.Plan([]*Stream{bad, good}, 0, 0)
	require.LessOrEqual(t, good.Guesses, 1)
}

func TestThePlanNeedsMeasurements(t *testing.T) {
	c, s := NewController(8, 0.1), NewStream()
	s.Room = 10
	c.Plan([]*Stream{s}, 0, 0)
	require.Zero(t, s.Guesses)
	c.Plan(nil, 1, 3)
}

func TestPlanningAllocatesNothing(t *testing.T) {
	c := NewController(16, 0.01)
	for n := 1; n <= 16; n++ {
		c.Calibrate(n, cheap(n))
	}
	streams := []*Stream{NewStream(), NewStream(), NewStream()}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, s := range streams {
			s.Room = 20
		}
		c.Plan(streams, 0, 0)
		c.Drafted(3, 0, 1e-3)
		for _, s := range streams {
			c.Judged(s, 3, 3, 2)
		}
		c.Passed(12, 3, 9, 50e-3, 1e-3, 0)
	}))
}

package engine

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// timed makes passes take the time that a function of their tokens says, and drafting none, so that the machine does not decide
// what the controller does.
func timed(e *Engine, pass func(nTokens int) time.Duration) {
	paced(e, func(b *model.Batch) time.Duration { return pass(len(b.Tokens)) })
}

func TestGuessesThatPayAreMadeFromTheFirstRequestOn(t *testing.T) {
	r := request(4, 6, 60)
	r.Sampling = sample.Greedy()
	full, _ := answer(t, openTiny(t, Options{Context: 128}), r)
	d := &scripted{guess: func(_ *scripted, r *drafter.Round) { // a chain of right tokens
		parent := int32(-1)
		for at := len(r.IDs) - 6; at < len(full) && r.Tree.Len() < r.Budget.Nodes; at++ {
			parent = r.Tree.Add(full[at], parent, nil)
		}
	}}
	e := openTiny(t, Options{Context: 128, NoPrefix: true, Spec: SpecOptions{Drafter: d}})
	timed(e, func(int) time.Duration { return 5 * time.Millisecond })
	for n := range 3 {
		s, ids := stats(t, e, r)
		require.Equal(t, full, ids)
		require.Positive(t, s.Drafted, "request %d", n)
		require.Equal(t, s.Drafted, s.Accepted, "request %d", n)
		require.Less(t, s.Rounds, 40, "request %d", n)
		require.Len(t, s.Offered, len(s.PerDepth))
	}
	report, ok := e.SpecReport()
	require.True(t, ok)
	require.Greater(t, report.Acceptance[0], 0.8)
	require.Positive(t, report.Pass[0])
}

// TestTooFewGuessesAreNotVerified has trees of eight guesses of which the drafter believes in one, where a token more costs as much
// as a pass: what is left of them is less than is worth a round.
func TestTooFewGuessesAreNotVerified(t *testing.T) {
	r := request(4, 6, 60)
	r.Sampling = sample.Greedy()
	full, _ := answer(t, openTiny(t, Options{Context: 128}), r)
	for least, want := range map[int]bool{0: true, 4: false} {
		d := &scripted{guess: func(_ *scripted, r *drafter.Round) {
			parent := int32(-1)
			for i := range min(8, r.Budget.Nodes) {
				at := min(len(r.IDs)-6+i, len(full)-1)
				parent = r.Tree.Add(full[at], parent, nil)
				r.Tree.Belief[parent] = []float64{0.9, 0.05, 0.01}[min(i, 2)]
			}
		}}
		e := openTiny(t, Options{Context: 128, NoPrefix: true, Spec: SpecOptions{Drafter: d, NMin: least}})
		timed(e, func(n int) time.Duration { return time.Duration(3+n) * time.Millisecond })
		few := false
		for range 3 {
			s, ids := stats(t, e, r)
			require.Equal(t, full, ids)
			few = few || s.Drafted < 4*s.Rounds
		}
		require.Equal(t, want, few, "at least %d", least)
	}
}

// TestWhatAnInstantDrafterClaimsIsCompared has one that is sure of what is never right, and passes to which a token more adds little.
func TestWhatAnInstantDrafterClaimsIsCompared(t *testing.T) {
	r := request(4, 6, 200)
	r.Sampling = sample.Greedy()
	want, _ := answer(t, openTiny(t, Options{Context: 256}), r)
	d := &hostile{guess: func(r *drafter.Round) {
		for at := len(r.IDs) - 6; at < len(want) && r.Tree.Len() < r.Budget.Nodes; at++ {
			chain := r.Tree.Add((want[at]+1)%256, int32(r.Tree.Len()-1), nil)
			r.Tree.Belief[chain] = 0.97
		}
	}}
	e := openTiny(t, Options{Context: 256, NoPrefix: true, Spec: SpecOptions{Drafter: instantly{d}}})
	timed(e, func(n int) time.Duration { return 10*time.Millisecond + time.Duration(n)*time.Millisecond/4 })
	s, ids := stats(t, e, r)
	require.Equal(t, want, ids)
	require.Zero(t, s.Accepted)
	require.Less(t, s.Rounds, 40, "a token more is cheap, so only what it guessed before tells that it is not worth any")
}

// TestACoupledDraftDrawsWithItsTargetsNumbers has a draft that equals its target: with a seed both draw the same tokens.
func TestACoupledDraftDrawsWithItsTargetsNumbers(t *testing.T) {
	e := openTiny(t, Options{Context: 128, NoPrefix: true, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}})
	r := request(4, 6, 60)
	r.Sampling.Temperature, r.Reproducible = 1, true
	s, _ := stats(t, e, r)
	require.Equal(t, s.Drafted, s.Accepted)
	require.Greater(t, s.Drafted, 40)
}

func TestGuessesThatNeverPayBecomeRare(t *testing.T) {
	r := request(4, 6, 100)
	r.Sampling = sample.Greedy()
	want, _ := answer(t, openTiny(t, Options{Context: 128}), r)
	d := &scripted{guess: func(_ *scripted, r *drafter.Round) {
		parent := int32(-1)
		for at := len(r.IDs) - 6; at < len(want) && r.Tree.Len() < r.Budget.Nodes; at++ {
			parent = r.Tree.Add((want[at]+1)%256, parent, nil)
		}
	}}
	e := openTiny(t, Options{Context: 128, NoPrefix: true, Spec: SpecOptions{Drafter: d}})
	timed(e, func(n int) time.Duration { return time.Duration(n) * 4 * time.Millisecond })
	rounds := 0
	for range 2 {
		s, ids := stats(t, e, r)
		require.Equal(t, want, ids)
		rounds += s.Rounds
	}
	require.Positive(t, rounds, "it has to be tried")
	require.Less(t, rounds, 40, "of 198 passes")
}

func stats(t *testing.T, e *Engine, r Request) (SpecStats, []int32) {
	t.Helper()
	ticket, err := e.Submit(t.Context(), r)
	require.NoError(t, err)
	ids, _ := drain(t, ticket)
	return ticket.Stats().Spec, ids
}

func TestLenienceIsMarkedAndAcceptsMore(t *testing.T) {
	r := request(4, 6, 50)
	r.Sampling = sample.Greedy()
	r.Sampling.RepeatPenalty = 1.1
	accepted := map[float64]int{}
	want, _ := answer(t, openTiny(t, Options{Context: 128}), r)
	for _, l := range []float64{1, 0.5, 1e-9} {
		d := &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: func(d *scripted, r *drafter.Round) {
			parent := int32(-1)
			for r.Tree.Len() < r.Budget.Nodes {
				parent = r.Tree.Add(int32(d.rng.IntN(256)), parent, nil)
			}
		}}
		e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Drafter: d, Fixed: 4, Lenience: l}})
		s, ids := stats(t, e, r)
		accepted[l] = s.Accepted
		require.Equal(t, l < 1, s.Lossy)
		require.Len(t, ids, 50)
		if l == 1 {
			require.Equal(t, want, ids)
		}
	}
	require.Greater(t, accepted[1e-9], 30)
	require.GreaterOrEqual(t, accepted[0.5], accepted[1])
}

func TestLenienceAcceptsGuessesThatWereChosenWithoutChance(t *testing.T) {
	for _, reproducible := range []bool{false, true} {
		accepted := map[float64]int{}
		for _, l := range []float64{1, 1e-9} {
			d := &scripted{rng: rand.New(rand.NewPCG(5, 6)), guess: func(d *scripted, r *drafter.Round) {
				for parent := int32(-1); r.Tree.Len() < r.Budget.Nodes; {
					parent = r.Tree.Add(int32(d.rng.IntN(256)), parent, nil)
				}
			}}
			e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Drafter: d, Fixed: 4, Lenience: l}})
			r := request(4, 6, 50)
			r.Sampling.Temperature, r.Reproducible = 1, reproducible
			s, ids := stats(t, e, r)
			require.Len(t, ids, 50)
			accepted[l] = s.Accepted
			short, _ := stats(t, e, request(4, 6, 1))
			require.Zero(t, short.Rounds)
			require.Equal(t, l < 1, short.Lossy, "said of every answer")
		}
		require.Greater(t, accepted[1e-9], 30)
		require.Less(t, accepted[1], 10)
	}
}

func TestShortAnswersPayForNoCalibration(t *testing.T) {
	d := &scripted{guess: func(_ *scripted, r *drafter.Round) {}}
	e := openTiny(t, Options{Context: 128, Contiguous: true, Spec: SpecOptions{Drafter: d}})
	passes := 0
	timed(e, func(int) time.Duration { passes++; return 2 * time.Millisecond })
	stats(t, e, request(4, 6, 60))
	look := func(decoding time.Duration) (k calibration) { // what is there; then so much decoding has been
		require.NoError(t, e.do(func() error {
			k = e.control.calibration
			e.control.calibration.decoding = decoding
			return nil
		}))
		return k
	}
	k := look(2 * time.Second) // as if a thousand tokens had been
	require.Equal(t, 60, passes)
	require.Zero(t, k.spent)
	stats(t, e, request(4, 6, 60))
	k = look(time.Hour)
	require.Greater(t, passes, 120)
	require.Positive(t, k.spent)
	require.Zero(t, k.spent%(2*time.Millisecond), "whole passes")
	require.LessOrEqual(t, k.spent.Seconds(), 2*calibrationShare*k.decoding.Seconds())
	require.False(t, k.ended)
	stats(t, e, request(4, 6, 60))
	k = look(0)
	require.True(t, k.ended)
	require.Nil(t, k.cache)
	require.NoError(t, e.Close())
	for _, n := range drafter.CalibrationWidths {
		require.True(t, e.control.c.Measured(n), "%d tokens", n)
	}
}

func TestACalibrationThatFailsHarmsNoAnswer(t *testing.T) {
	r := request(4, 6, 20)
	want, _ := answer(t, openTiny(t, Options{Context: 128}), r)
	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Drafter: &scripted{guess: func(_ *scripted, r *drafter.Round) {}}}})
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		if len(b.Logits) == 4 {
			return tensor.F32{}, errors.New("no such pass")
		}
		return inner(b)
	}
	require.NoError(t, e.do(func() error { e.control.calibration.decoding = time.Hour; return nil }))
	_, ids := stats(t, e, r)
	require.Equal(t, want, ids)
	var k calibration
	require.NoError(t, e.do(func() error { k = e.control.calibration; return nil }))
	require.True(t, k.ended)
	require.Equal(t, 2, k.next)
}

// TestDecodingIsForeseenRoundByRound has passes whose time is known by their tokens, and a drafter that takes none.
func TestDecodingIsForeseenRoundByRound(t *testing.T) {
	const each = 8 * time.Millisecond
	d := &scripted{guess: func(_ *scripted, r *drafter.Round) {
		for parent := int32(-1); r.Tree.Len() < r.Budget.Nodes; {
			parent = r.Tree.Add(3, parent, nil)
		}
	}}
	e := openTiny(t, Options{Context: 128, NoPrefix: true, Spec: SpecOptions{Drafter: d, Fixed: 3}})
	passes := 0
	timed(e, func(n int) time.Duration { passes++; return each })
	for range 2 {
		before, _ := e.SpecReport()
		passes = 0
		_, _ = stats(t, e, request(4, 6, 40))
		after, _ := e.SpecReport()
		seconds := after.Foreseen - before.Foreseen
		decoding := float64(passes-1) * each.Seconds() // one pass read the prompt
		require.InDelta(t, decoding, seconds, 1e-9)
	}
}

// TestTheControllerLearnsHowLongAnswersGet counts the answers whose guesses it decides on, and no others.
func TestTheControllerLearnsHowLongAnswersGet(t *testing.T) {
	e := openTiny(t, Options{Context: 128, KVTokens: 1024, Spec: SpecOptions{Open: withDrafter(t, "draft", nil)}})
	expected := func() float64 {
		report, ok := e.SpecReport()
		require.True(t, ok)
		return report.Answer
	}
	fresh := expected()
	require.Greater(t, fresh, 30.0)
	for _, change := range []func(*Request){func(r *Request) { r.NoSpec = true }, func(r *Request) { r.SpecFixed = 2 }} {
		r := request(1, 12, 5)
		change(&r)
		answer(t, e, r)
		require.Equal(t, fresh, expected())
	}
	for n := range 40 {
		answer(t, e, request(n, 12, 5))
	}
	require.InDelta(t, 5, expected(), 1)
	_, _ = beamsOf(t, e, request(1, 12, 20), beams(3, 1))
	require.InDelta(t, 5, expected(), 1)
	var widths []float64
	require.NoError(t, e.do(func() error {
		widths = append(widths, e.beamPlans[3].Answer())
		return nil
	}))
	require.InDelta(t, 20, widths[0], 10, "searches have their own lengths")
	require.Less(t, widths[0], fresh-10)
}

// light is a draft that says of itself how much a step reads.
type light struct {
	*drafter.Model
	bytes int64
}

func (d *light) Bytes() int64 { return d.bytes }

// openLight has a draft whose step reads a part of what a pass of the target reads.
func openLight(t *testing.T, part int64) (*Engine, *light) {
	d := &light{}
	e := openTiny(t, Options{Context: 256, NoPrefix: true, Spec: SpecOptions{Open: func(m *model.Model) (drafter.Drafter, error) {
		inner, err := withDrafter(t, "draft", nil)(m)
		d.Model, _ = inner.(*drafter.Model)
		d.bytes = m.WeightBytes() / part
		return d, err
	}}})
	return e, d
}

// TestTheFirstRequestsHaveGuessesOfADraft brings a prompt with each, and has the controller decide on a draft that is too dear.
func TestTheFirstRequestsHaveGuessesOfADraft(t *testing.T) {
	e, _ := openLight(t, 2)
	timed(e, func(nTokens int) time.Duration { return time.Millisecond * time.Duration(10+nTokens/5) })
	for n := range 3 {
		s, _ := stats(t, e, request(n, 60, 16))
		require.Positive(t, s.Drafted, "request %d", n)
	}
}

// TestNoPromptIsReadForFewTokens has a draft whose share of what the target took for the prompt, 64 ms, is worth thirteen tokens.
func TestNoPromptIsReadForFewTokens(t *testing.T) {
	for _, nOut := range []int{4, 50} {
		e, d := openLight(t, 25)
		timed(e, func(nTokens int) time.Duration {
			if nTokens > 8 {
				return 8 * time.Millisecond * time.Duration(nTokens)
			}
			return 5 * time.Millisecond
		})
		s, _ := stats(t, e, request(1, 200, nOut))
		read := d.Counts().Fed
		if nOut < 10 {
			require.Zero(t, s.Drafted)
			require.Zero(t, read)
		} else {
			require.Positive(t, s.Drafted)
			require.Greater(t, read, int64(200))
		}
	}
}

// TestWhatTheDraftKnowsIsNotRead asks for as few tokens again, once the draft has read the prompt for another request.
func TestWhatTheDraftKnowsIsNotRead(t *testing.T) {
	for _, name := range []string{"draft", "crossvocab", "hierarchical", "union"} {
		t.Run(name, func(t *testing.T) {
			e := openTiny(t, Options{Context: 256, Spec: SpecOptions{Open: func(m *model.Model) (drafter.Drafter, error) {
				if name != "union" {
					return withDrafter(t, name, func(c *drafter.Config) { c.Translation = letters(t, 512, 0, 512) })(m)
				}
				d, err := withDrafter(t, "draft", nil)(m)
				return drafter.NewUnion(d, drafter.NewRandom(512, 1)), err
			}}})
			k := e.opts.Spec.Drafter.(drafter.Keeper)
			known := func(ids []int32) (n int) {
				require.NoError(t, e.do(func() error { n = k.Known(ids); return nil }))
				return n
			}
			r := request(1, 200, 12)
			require.Zero(t, known(r.Prompt))
			r.SpecFixed = 2
			answer(t, e, r)
			require.Greater(t, known(r.Prompt), 180)
			require.Less(t, known(r.Prompt), 200, "the last token is computed anew")
			require.Zero(t, known(request(2, 200, 1).Prompt))
			require.Zero(t, known(nil))
			r.SpecFixed = 0
			var asked int
			var described [][2]int // what the plan was told, less what is so
			inner := e.forward
			require.NoError(t, e.do(func() error {
				e.forward = func(b *model.Batch) (tensor.F32, error) {
					if r := e.active[0]; r.spec.stream != nil {
						if asked == 0 {
							asked = r.spec.read.asked
						}
						described = append(described, [2]int{r.spec.stream.Done - r.emitted(), r.spec.stream.Left - 12 + r.emitted()})
					}
					return inner(b)
				}
				return nil
			}))
			answer(t, e, r)
			require.Greater(t, asked, 180)
			require.NotEmpty(t, described)
			for _, d := range described {
				require.Zero(t, d)
			}
		})
	}
}

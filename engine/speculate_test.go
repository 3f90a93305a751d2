package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// scripted is a drafter whose guesses come from a function of the sequence so far.
type scripted struct {
	rng   *rand.Rand
	guess func(d *scripted, r *drafter.Round)
	fail  bool
	open  int
}

type scriptedSession struct {
	d    *scripted
	seen []int32
}

func (d *scripted) Name() string { return "scripted" }
func (d *scripted) Bytes() int64 { return 0 }
func (d *scripted) Close() error { return nil }
func (d *scripted) NewSession() (drafter.Session, error) {
	d.open++
	return &scriptedSession{d: d}, nil
}
func (s *scriptedSession) Committed(ids []int32) { s.seen = append(s.seen, ids...) }
func (s *scriptedSession) Close()                { s.d.open-- }

func (d *scripted) Propose(rounds []drafter.Round) error {
	for i := range rounds {
		r := &rounds[i]
		if got, want := r.Session.(*scriptedSession).seen, r.IDs; len(got) != len(want) || got[len(got)-1] != want[len(want)-1] {
			panic("session was not told the committed tokens")
		}
		d.guess(d, r)
	}
	if d.fail {
		return errors.New("draft failed")
	}
	return nil
}

// randomTree proposes tokens at random, shaped at random, some with distributions and some as guests.
func randomTree(d *scripted, r *drafter.Round) {
	for i := range d.rng.IntN(r.Budget.Nodes + 1) {
		id, parent := int32(d.rng.IntN(256)), int32(d.rng.IntN(i+1)-1)
		switch d.rng.IntN(3) {
		case 0:
			r.Tree.Add(id, parent, nil)
		case 1:
			r.Tree.Add(id, parent, &sample.Dist{IDs: []int32{id, id + 1}, P: []float64{0.5, 0.5}})
		default:
			r.Tree.AddGuest(id, parent)
		}
	}
}

// oracle proposes the right continuation, with a wrong sibling before each right token.
func oracle(answers map[int32][]int32) func(*scripted, *drafter.Round) {
	return func(d *scripted, r *drafter.Round) {
		full := answers[r.IDs[0]]
		parent := int32(-1)
		for at := len(r.IDs); at < len(full) && r.Tree.Len()+2 <= r.Budget.Nodes; at++ {
			r.Tree.Add((full[at]+1)%256, parent, nil)
			parent = r.Tree.Add(full[at], parent, nil)
		}
	}
}

func TestGuessesNeverChangeAnAnswer(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	requests := func(sampled bool) (rs []Request) {
		for n := range 6 {
			r := request(n, 3+11*n, 40)
			r.Prompt[0] = int32(n)
			if !sampled {
				r.Sampling = sample.Greedy()
				r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.2, 0.1
				r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 1}
			}
			r.Reproducible = sampled
			rs = append(rs, r)
		}
		return rs
	}
	for _, sampled := range []bool{false, true} {
		var want [][]int32
		answers := map[int32][]int32{}
		for _, r := range requests(sampled) {
			ids, _ := answer(t, plain, r)
			want = append(want, ids)
			answers[r.Prompt[0]] = append(append([]int32{}, r.Prompt...), ids...)
		}
		for name, guess := range map[string]func(*scripted, *drafter.Round){"random": randomTree, "oracle": oracle(answers)} {
			for _, o := range []Options{
				{Context: 160, KVTokens: 2048, Spec: SpecOptions{Fixed: 1}},
				{Context: 160, KVTokens: 2048, Spec: SpecOptions{Fixed: 16}, Threads: 1},
				{Context: 160, KVTokens: 2048},
				{Context: 160, KVTokens: 192, Spec: SpecOptions{Fixed: 7}},
			} {
				d := &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: guess}
				o.Spec.Drafter = d
				checkSpeculation(t, o, requests(sampled), want, name == "oracle" && o.Spec.Fixed == 16)
				require.Zero(t, d.open, "sessions left open")
			}
		}
	}
}

// checkSpeculation runs the requests together and compares their answers.
func checkSpeculation(t *testing.T, o Options, rs []Request, want [][]int32, mustAccept bool) {
	t.Helper()
	e := openTiny(t, o)
	var tickets []*Ticket
	for _, r := range rs {
		ticket, err := e.Submit(context.Background(), r)
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	for n, ticket := range tickets {
		ids, why := drain(t, ticket)
		require.Equal(t, FinishLength, why)
		require.Equal(t, want[n], ids, "request %d", n)
		s := ticket.Stats().Spec
		if mustAccept {
			require.Greater(t, s.Accepted, 25, "%+v", s)
		}
	}
	require.NoError(t, e.Close())
}

func TestAFailingDrafterIsCountedAndHarmless(t *testing.T) {
	want, _ := answer(t, openTiny(t, Options{Context: 128}), request(2, 9, 20))
	d := &scripted{rng: rand.New(rand.NewPCG(1, 1)), guess: randomTree, fail: true}
	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Drafter: d, Fixed: 4}})
	ticket, err := e.Submit(context.Background(), request(2, 9, 20))
	require.NoError(t, err)
	ids, _ := drain(t, ticket)
	require.Equal(t, want, ids)
	require.Equal(t, 18, ticket.Stats().Spec.Failed) // no room for a guess before the last token
	require.Zero(t, ticket.Stats().Spec.Drafted)
}

func TestGuessesStopAtStops(t *testing.T) {
	plain := openTiny(t, Options{Context: 128})
	r := request(4, 6, 30)
	r.Sampling = sample.Greedy()
	full, _ := answer(t, plain, r)
	d := &scripted{guess: oracle(map[int32][]int32{r.Prompt[0]: append(append([]int32{}, r.Prompt...), full...)})}
	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Fixed: 16, Drafter: d}})
	for _, n := range []int{1, 2, 3, 5, 8} {
		limited := r
		limited.MaxTokens = n
		ids, why := answer(t, e, limited)
		require.Equal(t, full[:n], ids)
		require.Equal(t, FinishLength, why)
		stopped := r
		stopped.Stop = &stopAt{n: n}
		ids, why = answer(t, e, stopped)
		require.Equal(t, full[:n], ids)
		require.Equal(t, FinishStop, why)
	}
}

// TestTheLongestPathIsAccepted proposes the right tokens below the second of two equal siblings, once also with a right
// token that goes on from the first.
func TestTheLongestPathIsAccepted(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	for _, reproducible := range []bool{false, true} {
		r := request(4, 6, 41)
		if r.Reproducible = reproducible; !reproducible {
			r.Sampling = sample.Greedy()
		}
		full, _ := answer(t, plain, r)
		all := append(append([]int32{}, r.Prompt...), full...)
		d := &scripted{guess: func(_ *scripted, r *drafter.Round) {
			next := all[len(r.IDs):]
			if len(next) < 4 || r.Budget.Nodes < 5 {
				return
			}
			first := r.Tree.Add(next[0], -1, nil)
			second := r.Tree.Add(next[0], -1, nil)
			second = r.Tree.Add(next[1], second, nil)
			if len(r.IDs)%8 < 4 {
				r.Tree.Add(next[1], first, nil)
			}
			r.Tree.Add(next[2], second, nil)
		}}
		e := openTiny(t, Options{Context: 160, Spec: SpecOptions{Fixed: 16, Drafter: d}})
		ticket := submit(t, e, r)
		ids, _ := drain(t, ticket)
		require.Equal(t, full, ids)
		s := ticket.Stats().Spec
		require.Greater(t, s.Rounds, 6)
		require.Equal(t, 3*s.Rounds, s.Accepted)
	}
}

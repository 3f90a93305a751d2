package engine

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// poison makes rows of the token bad not numbers, as an embedding does that no layer survives.
func poison(e *Engine, bad int32) {
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		logits, err := e.model.Forward(b)
		nan := &model.NaNError{Layer: 1}
		for _, row := range b.Logits {
			if b.Tokens[row] == bad {
				nan.Rows = append(nan.Rows, row)
			}
		}
		if len(nan.Rows) > 0 {
			return tensor.F32{}, nan
		}
		return logits, err
	}
}

// inTime submits a request that is given up when patience ends.
func inTime(t *testing.T, e *Engine, r Request) *Ticket {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	ticket, err := e.Submit(ctx, r)
	require.NoError(t, err)
	return ticket
}

// TestNotANumberInTheOnlyRow ends the request whose single token is at fault, and its neighbours go on.
func TestNotANumberInTheOnlyRow(t *testing.T) {
	e := openWritten(t, Options{Context: 128, KVTokens: 1024}, nil)
	const bad = 77
	poison(e, bad)
	neighbour := request(1, 20, 20)
	neighbour.Sampling.LogitBias = map[int32]float64{bad: -100}
	good := inTime(t, e, neighbour)
	r := request(2, 1, 20)
	r.Prompt[0] = bad
	tok := <-inTime(t, e, r).Tokens()
	require.Equal(t, FinishError, tok.Finish)
	r.Prompt[0], r.Sampling.LogitBias = 5, map[int32]float64{bad: 100} // the answer itself is at fault
	ticket := inTime(t, e, r)
	require.Equal(t, int32(bad), (<-ticket.Tokens()).ID)
	require.Equal(t, FinishError, (<-ticket.Tokens()).Finish)
	require.Len(t, whole(t, good), 21)
	require.NoError(t, e.Close())
	require.Equal(t, e.cache.Blocks(), e.cache.FreeBlocks(), "the slots are free")
}

// TestAGuessThatIsNoNumber has a drafter that always guesses the token whose row is not a number: the request goes on
// without guesses, and its answer is what it would be.
func TestAGuessThatIsNoNumber(t *testing.T) {
	const bad = 77
	r := request(3, 9, 20)
	r.Sampling.LogitBias = map[int32]float64{bad: -100}
	r.Reproducible = true
	want := whole(t, submit(t, openWritten(t, Options{Context: 128}, nil), r))
	d := &scripted{guess: func(_ *scripted, r *drafter.Round) { r.Tree.Add(bad, -1, nil) }}
	e := openWritten(t, Options{Context: 128, Spec: SpecOptions{Fixed: 4, Drafter: d}}, nil)
	poison(e, bad)
	require.Equal(t, want, whole(t, inTime(t, e, r)))
}

// TestPrioritiesGoFirst holds the only place while others queue up: they run by priority, and by arrival where it is equal.
func TestPrioritiesGoFirst(t *testing.T) {
	e := openWritten(t, Options{Context: 128, MaxRunning: 1, NoPrefix: true}, nil)
	hold := make(chan struct{})
	var order []int32
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		<-hold
		if len(b.Tokens) == 5 { // a prompt
			order = append(order, b.Tokens[0])
		}
		return e.model.Forward(b)
	}
	priorities := []int{0, 0, 5, -3, 5, 2, 0}
	var tickets []*Ticket
	for i, p := range priorities {
		r := request(i, 5, 3)
		r.Prompt[0], r.Priority = int32(i), p
		tickets = append(tickets, submit(t, e, r))
		for i == 0 { // the first has the place before the second comes
			e.mu.Lock()
			queued := len(e.queue)
			e.mu.Unlock()
			if queued == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	close(hold)
	for _, ticket := range tickets {
		whole(t, ticket)
	}
	require.NoError(t, e.Close())
	require.Equal(t, []int32{0, 2, 4, 5, 1, 6, 3}, order)
}

// TestLogprobsBeforeTheChoiceTeaches compares log probabilities after all steps with those of a sampler of its own, asked
// before it learns which token was chosen: mirostat's aim moves with every token.
func TestLogprobsBeforeTheChoiceTeaches(t *testing.T) {
	for _, guesses := range []bool{false, true} {
		r := lawRequest(3)
		r.Reproducible = true
		require.EqualValues(t, 2, r.Sampling.Mirostat)
		require.True(t, r.Sampling.LogprobsAfter)
		o := Options{Context: 256}
		if guesses {
			o.Spec = SpecOptions{Fixed: 4, Drafter: &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: randomTree}}
		}
		got := whole(t, submit(t, openWritten(t, o, nil), r))

		e := openWritten(t, Options{Context: 256}, nil)
		s, err := sample.New(r.Sampling, 256)
		require.NoError(t, err)
		s.SetPrompt(len(r.Prompt))
		history := append([]int32{}, r.Prompt...)
		var want []Token
		e.forward = func(b *model.Batch) (tensor.F32, error) { // in the engine's goroutine, where no test may end
			logits, err := e.model.Forward(b)
			if step := len(want); err == nil && len(b.Logits) == 1 && step+1 < len(got) {
				all, _ := s.Logprobs(nil, logits.Row(0), history, got[step].ID, 3)
				id, _ := s.Sample(logits.Row(0), history)
				history = append(history, id)
				want = append(want, Token{ID: id, HasID: true, Logprob: all[0].Logprob, Top: all[1:]})
			}
			return logits, err
		}
		whole(t, submit(t, e, r))
		require.Equal(t, want, got[:len(got)-1], "guesses %v", guesses)
	}
}

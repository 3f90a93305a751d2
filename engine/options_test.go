package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/model"
	"quickdraft/tensor"
)

// TestAbsurdOptionsAreRefused names the option, its value and what it may be, before anything is made of it.
func TestAbsurdOptionsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, WriteTinyModel(path, nil))
	for _, n := range []int{-1, 1 << 40, 1 << 62} {
		for name, c := range map[string]struct {
			o    Options
			most int
		}{
			"threads":          {Options{Threads: n}, MaxThreads()},
			"running requests": {Options{MaxRunning: n}, MaxRunning},
			"queue limit":      {Options{QueueLimit: n}, maxLength},
			"chunk":            {Options{Chunk: n}, MaxChunk},
			"context":          {Options{Context: n}, maxLength},
			"kv tokens":        {Options{KVTokens: n}, maxLength},
		} {
			_, err := Open(path, c.o)
			if n < 0 {
				require.EqualError(t, err, name+": -1 is negative")
			} else {
				require.EqualError(t, err, fmt.Sprintf("%s: %d, want at most %d (0: the default)", name, n, c.most))
			}
		}
	}
	_, err := Open(path, Options{Threads: 100000})
	require.ErrorContains(t, err, "threads: 100000, want at most")
}

// stubborn is a drafter that does not close well.
type stubborn struct{ scripted }

var errStubborn = errors.New("the drafter will not close")

func (s *stubborn) Close() error { return errStubborn }

// TestCloseFreesEverything wants the model and the workers gone when the drafter reports an error.
func TestCloseFreesEverything(t *testing.T) {
	e := openWritten(t, Options{Context: 64, Spec: SpecOptions{Drafter: &stubborn{scripted{guess: steady}}}}, nil)
	require.ErrorIs(t, e.Close(), errStubborn)
	require.Panics(t, func() { e.pool.Run(nothing{}) }, "the pool is closed")
}

type nothing struct{}

func (nothing) Do(int, int) {}

// TestDecodingRequestsTakeTurns gives passes fewer tokens than there are answers: none gets ahead of another of its priority
// by more than a token, and a more urgent one does not wait.
func TestDecodingRequestsTakeTurns(t *testing.T) {
	for _, chunk := range []int{1, 2, 3} {
		e := openWritten(t, Options{Context: 96, KVTokens: 1024, Chunk: chunk}, nil)
		inner, apart := e.forward, 0
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			least, most := 1000, 0
			for _, r := range e.active {
				least, most = min(least, r.emitted()), max(most, r.emitted())
			}
			if len(e.active) == 4 && least > 0 {
				apart = max(apart, most-least)
			}
			return inner(b)
		}
		base := request(1, 1, 30)
		tickets, err := e.SubmitChoices(t.Context(), base, 4, nil)
		require.NoError(t, err)
		for _, ticket := range tickets {
			ids, _ := drain(t, ticket)
			require.Len(t, ids, 30)
		}
		require.NoError(t, e.Close())
		require.LessOrEqual(t, apart, 1, "chunk %d", chunk)
	}
}

// TestPromptsComeBesideManyAnswers keeps passes full of answers' tokens: prompts go on all the same.
func TestPromptsComeBesideManyAnswers(t *testing.T) {
	for _, chunk := range []int{1, 2, 4} {
		e := openWritten(t, Options{Context: 256, KVTokens: 2048, Chunk: chunk}, nil)
		var late *Ticket
		inner, ahead := e.forward, 0
		var tickets []*Ticket
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			if late.r.emitted() == 3 {
				ahead = tickets[0].r.emitted()
			}
			return inner(b)
		}
		open := gate(t, e)
		var err error
		tickets, err = e.SubmitChoices(t.Context(), request(1, 1, 120), 4, nil)
		require.NoError(t, err)
		late = submit(t, e, request(2, 8, 4))
		open()
		for _, ticket := range tickets {
			ids, _ := drain(t, ticket)
			require.Len(t, ids, 120)
		}
		ids, _ := drain(t, late)
		require.Len(t, ids, 4)
		require.Positive(t, ahead)
		require.Less(t, ahead, 40, "chunk %d: the prompt did not wait for the end of the others", chunk)
	}
}

// TestTheCacheHoldsOneContext refuses a cache for less than the context that was asked for, and without one asked for the
// context is what the cache holds.
func TestTheCacheHoldsOneContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, WriteTinyModel(path, nil))
	_, err := Open(path, Options{Context: 128, KVTokens: 64})
	require.EqualError(t, err, "kv tokens: 64 are less than a context of 128")
	e := openWritten(t, Options{KVTokens: 64}, nil)
	require.Equal(t, 64, e.ContextLen())
	require.Equal(t, 4, e.cache.Blocks())
	_, err = e.Submit(t.Context(), request(1, 65, 1))
	require.ErrorContains(t, err, "65 tokens do not fit a context of 64")
}

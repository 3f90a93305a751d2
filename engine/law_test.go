package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// openWritten opens the tiny model that tests write themselves.
func openWritten(t testing.TB, o Options, change func(string, []float32)) *Engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, WriteTinyModel(path, change))
	if o.Threads == 0 {
		o.Threads = 1 // workers cost more than they save in a model of this size
	}
	return open(t, path, o)
}

func open(t testing.TB, path string, o Options) *Engine {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = 2
	}
	if o.SelfCheck = true; o.Note == nil {
		o.Note = func(line string) { t.Error(line) } // a drafter's panic is not to pass for a want of guesses
	}
	e, err := Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// whole collects an answer with everything that came with it.
func whole(t testing.TB, ticket *Ticket) (tokens []Token) {
	t.Helper()
	for tok, ok := receive(t, ticket.Tokens()); ok; tok, ok = receive(t, ticket.Tokens()) {
		require.NoError(t, tok.Err)
		tokens = append(tokens, tok)
	}
	return tokens
}

// countStarts notes the sequences of an engine: one for each time that a request starts.
func countStarts(e *Engine) map[*kvcache.Seq]bool {
	seqs := map[*kvcache.Seq]bool{}
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		for _, s := range b.Spans {
			seqs[s.Seq] = true
		}
		return e.model.Forward(b)
	}
	return seqs
}

// preemptEvery sends all running requests back to the queue after every n-th pass. It returns what countStarts does.
func preemptEvery(e *Engine, n int) map[*kvcache.Seq]bool {
	seqs, passes := countStarts(e), 0
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		if passes++; passes%n == 0 {
			e.mu.Lock()
			e.calls = append(e.calls, func(bool) {
				for _, r := range e.running() {
					e.preempt(r)
				}
			})
			e.mu.Unlock()
		}
		return inner(b)
	}
	return seqs
}

func submit(t testing.TB, e *Engine, r Request) *Ticket {
	t.Helper()
	ticket, err := e.Submit(context.Background(), r)
	require.NoError(t, err)
	return ticket
}

// together submits n requests so that the same passes come in every run.
func together(t testing.TB, e *Engine, n int, make func(i int) Request) (tickets []*Ticket) {
	t.Helper()
	require.NoError(t, e.do(func() error {
		for i := range n {
			ticket, err := e.Submit(context.Background(), make(i))
			if err != nil {
				return err
			}
			tickets = append(tickets, ticket)
		}
		return nil
	}))
	return tickets
}

// lawRequest asks for log probabilities, by turns of the raw logits and after all steps.
func lawRequest(n int) Request {
	r := request(n, 20+23*n, 30)
	r.Logprobs, r.TopLogprobs = true, 3
	r.Sampling.RepeatPenalty = 1.1
	r.Sampling.LogprobsAfter = n%2 == 1
	if n == 3 {
		r.Sampling.Mirostat = 2
	}
	return r
}

// TestOneAnswerWhateverHappensBeside runs requests alone and in all the company that an engine can give them: ids and log
// probabilities stay the same to the last bit.
func TestOneAnswerWhateverHappensBeside(t *testing.T) {
	const n = 8
	for _, arch := range []string{"llama3-rope", "gemma3-text"} {
		path := filepath.Join(golden.Dir(t, "archs"), arch)
		alone := open(t, path, Options{Context: 256, Threads: 1, NoPrefix: true})
		var want [][]Token
		for i := range n {
			want = append(want, whole(t, submit(t, alone, lawRequest(i))))
			require.Len(t, want[i], 31)
			require.Len(t, want[i][0].Top, 3)
			require.Less(t, want[i][0].Logprob, 0.0)
		}
		for name, o := range map[string]Options{
			"7 neighbours":              {KVTokens: 4096},
			"chunks of 7":               {KVTokens: 4096, Chunk: 7},
			"chunks of 512, one worker": {KVTokens: 4096, Chunk: 512, Threads: 1},
			"preemption":                {KVTokens: 272},
			"preemption, recomputed":    {KVTokens: 272, NoPrefix: true},
			"two slots":                 {KVTokens: 512, MaxRunning: 2},
			"contiguous":                {Contiguous: true},
			"contiguous, chunks of 7":   {Contiguous: true, Chunk: 7, KVTokens: 512},
			"small pieces of prompts":   {KVTokens: 4096, StallTarget: time.Nanosecond},
		} {
			o.Context = 256
			t.Run(arch+", "+name, func(t *testing.T) {
				e := open(t, path, o)
				seqs := countStarts(e)
				for round := range 2 { // the second time with warm prefixes
					var tickets []*Ticket
					for i := range n {
						tickets = append(tickets, submit(t, e, lawRequest(i)))
					}
					for i, ticket := range tickets {
						require.Equal(t, want[i], whole(t, ticket), "request %d", i)
						if o.KVTokens == 4096 {
							require.Equal(t, round == 1, ticket.Stats().CachedTokens > 0, "a warm prefix")
						}
					}
				}
				require.NoError(t, e.Close())
				require.Equal(t, strings.HasPrefix(name, "preemption"), len(seqs) > 2*n, "%d starts", len(seqs))
			})
		}
	}
}

func TestSecondRequestPrefillsNewTokensOnly(t *testing.T) {
	e := openWritten(t, Options{Context: 2048, KVTokens: 8192}, nil)
	first := request(1, 1000, 5)
	whole(t, submit(t, e, first))

	var fed int
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		fed += len(b.Tokens)
		return e.model.Forward(b)
	}
	second := first
	second.Prompt = append(append([]int32{}, first.Prompt...), 201, 202, 203)
	ticket := submit(t, e, second)
	got := whole(t, ticket)
	require.Equal(t, 1000, ticket.Stats().CachedTokens)
	require.Equal(t, 3+4, fed, "three new tokens and four of the answer")

	cold := openWritten(t, Options{Context: 2048, NoPrefix: true}, nil)
	ticket = submit(t, cold, second)
	require.Equal(t, whole(t, ticket), got)
	require.Zero(t, ticket.Stats().CachedTokens)

	same := submit(t, e, first)
	whole(t, same)
	require.Equal(t, 999, same.Stats().CachedTokens, "the last token's logits are needed")
}

func TestChoicesShareThePrefill(t *testing.T) {
	for name, o := range map[string]Options{
		"a slot for each": {MaxRunning: 8}, "fewer slots": {MaxRunning: 2}, "no prefix cache": {MaxRunning: 8, NoPrefix: true},
		"few blocks": {MaxRunning: 8, KVTokens: 256},
	} {
		t.Run(name, func(t *testing.T) {
			o.Context = 256
			o.KVTokens = max(o.KVTokens, 256)
			e := openWritten(t, o, nil)
			var want [][]Token
			base := lawRequest(2)
			for i := range 5 {
				r := base
				r.Sampling.Seed = sample.ChoiceSeed(base.Sampling.Seed, i)
				r.MaxTokens = 10 + i
				want = append(want, whole(t, submit(t, openWritten(t, Options{Context: 256}, nil), r)))
			}
			fed := 0
			e.forward = func(b *model.Batch) (tensor.F32, error) {
				fed += len(b.Tokens)
				return e.model.Forward(b)
			}
			tickets, err := e.SubmitChoices(context.Background(), base, 5, func(i int, r *Request) { r.MaxTokens = 10 + i })
			require.NoError(t, err)
			for i, ticket := range tickets {
				require.Equal(t, want[i], whole(t, ticket), "choice %d", i)
			}
			require.NotEqual(t, want[0][:5], want[1][:5])
			if o.KVTokens == 256 && name != "few blocks" {
				require.Less(t, fed, 2*len(base.Prompt)+9+10+11+12+13)
			}
		})
	}
	e := openWritten(t, Options{Context: 128}, nil)
	for _, n := range []int{0, -1, MaxChoices + 1} {
		_, err := e.SubmitChoices(context.Background(), request(1, 3, 3), n, nil)
		require.ErrorContains(t, err, "choices, want 1 to 128")
	}
	prefill := request(1, 30, 0)
	tickets, err := e.SubmitChoices(context.Background(), prefill, 3, nil)
	require.NoError(t, err)
	for _, ticket := range tickets {
		require.Equal(t, []Token{{Finish: FinishLength}}, whole(t, ticket))
	}
}

func TestLogprobsAreRefusedOutOfRange(t *testing.T) {
	e := openWritten(t, Options{Context: 128}, nil)
	for _, r := range []Request{{TopLogprobs: 1}, {Logprobs: true, TopLogprobs: -1}, {Logprobs: true, TopLogprobs: 65}} {
		r.Prompt, r.MaxTokens, r.Sampling = []int32{1}, 1, sample.Default()
		_, err := e.Submit(context.Background(), r)
		require.ErrorContains(t, err, "top_logprobs")
	}
}

// TestNotANumberEndsItsRequestOnly gives one token an embedding that no layer survives.
func TestNotANumberEndsItsRequestOnly(t *testing.T) {
	e := openWritten(t, Options{Context: 128, KVTokens: 1024}, nil)
	bad := int32(77)
	poison(e, bad)
	var good []*Ticket
	for i := range 4 {
		r := request(i, 20, 20)
		r.Sampling.LogitBias = map[int32]float64{bad: -100}
		good = append(good, submit(t, e, r))
	}
	poisoned := request(9, 20, 20)
	poisoned.Prompt[19] = bad
	tickets, err := e.SubmitChoices(context.Background(), poisoned, 2, nil)
	require.NoError(t, err)
	for _, ticket := range tickets {
		tok := <-ticket.Tokens()
		require.Equal(t, FinishError, tok.Finish)
		require.EqualError(t, tok.Err, "logits are NaN or infinite, which began in layer 1 of 0 to 1")
	}
	for _, ticket := range good {
		require.Len(t, whole(t, ticket), 21)
	}
}

// TestInfinityInTheModelNamesTheLayer makes the second layer overflow for one token.
func TestInfinityInTheModelNamesTheLayer(t *testing.T) {
	e := openWritten(t, Options{Context: 128, F32: true}, func(name string, v []float32) {
		if name == "blk.1.ffn_down.weight" {
			for i := range v {
				v[i] = math.MaxFloat32
			}
		}
	})
	tok := <-submit(t, e, request(1, 5, 5)).Tokens()
	require.Equal(t, FinishError, tok.Finish)
	require.EqualError(t, tok.Err, "logits are NaN or infinite, which began in layer 1 of 0 to 1")
}

func TestCancelEndsWithinOnePass(t *testing.T) {
	e := openWritten(t, Options{Context: 1024, Chunk: 16}, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	gone, passes := errors.New("reader left"), 0
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		if passes++; passes == 3 {
			cancel(gone)
		}
		return e.model.Forward(b)
	}
	ticket, err := e.Submit(ctx, request(1, 900, 100))
	require.NoError(t, err)
	tok := <-ticket.Tokens()
	require.Equal(t, FinishCancelled, tok.Finish)
	require.ErrorIs(t, tok.Err, gone)
	require.NoError(t, e.Close())
	require.Equal(t, 3, passes)
}

// TestReadersMayBeSlow reads the answers in an order that no engine would choose, through buffers shorter than they are.
func TestReadersMayBeSlow(t *testing.T) {
	e := openWritten(t, Options{Context: 700, KVTokens: 1400, MaxRunning: 2}, nil)
	var tickets []*Ticket
	for i := range 5 {
		r := request(i, 10, 1<<30)
		tickets = append(tickets, submit(t, e, r))
		require.LessOrEqual(t, cap(tickets[i].out), outBuffer)
	}
	for i := len(tickets) - 1; i >= 0; i-- {
		require.Len(t, whole(t, tickets[i]), 700-10+1)
	}
}

// TestEightBitCacheIsLawfulToo writes guesses into 8-bit blocks and takes them back, beside neighbours and in chunks.
func TestEightBitCacheIsLawfulToo(t *testing.T) {
	for _, types := range [][2]string{{"q8_0", "q8_0"}, {"f16", "q8_0"}, {"q8_0", ""}} {
		o := Options{Context: 256, CacheTypeK: types[0], CacheTypeV: types[1]}
		alone := openWritten(t, o, nil)
		o.KVTokens, o.Chunk = 512, 40
		o.Spec = SpecOptions{NMax: 8, Fixed: 8, Drafter: &scripted{rng: rand.New(rand.NewPCG(3, 4)), guess: randomTree}}
		e := openWritten(t, o, nil)
		var want [][]Token
		var tickets []*Ticket
		for i := range 6 {
			r := lawRequest(i)
			r.Reproducible = true
			want = append(want, whole(t, submit(t, alone, r)))
			tickets = append(tickets, submit(t, e, r))
		}
		for i, ticket := range tickets {
			require.Equal(t, want[i], whole(t, ticket), "request %d", i)
			require.Positive(t, ticket.Stats().Spec.Drafted)
		}
		half := whole(t, submit(t, openWritten(t, Options{Context: 256}, nil), lawRequest(1)))
		require.NotEqual(t, half[0].Logprob, want[1][0].Logprob)
		require.InDelta(t, half[0].Logprob, want[1][0].Logprob, 0.2)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, WriteTinyModel(path, nil))
	for want, o := range map[string]Options{
		`cache type k: "q4_0", want f16 or q8_0`: {CacheTypeK: "q4_0"}, "cache type q8_0: not with llama and float32 true": {CacheTypeV: "q8_0", F32: true},
	} {
		_, err := Open(path, o)
		require.EqualError(t, err, want)
	}
}

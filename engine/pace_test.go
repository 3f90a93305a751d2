package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/model"
	"quickdraft/tensor"
)

// computer says what passes take on some machine.
type computer struct {
	base, perToken time.Duration
	depth          float64 // by what part a token gets dearer with every 1000 tokens of the prompt before it
}

func (c computer) pass(decoding, prompt, before int) time.Duration {
	dear := 1 + c.depth*float64(before)/1000
	rows := decoding + prompt
	if rows > 16 {
		rows = (rows + 7) / 8 * 8
	}
	return c.base + time.Duration(float64(rows)*float64(c.perToken)) + time.Duration(float64(prompt)*(dear-1)*float64(c.perToken))
}

// TestPace lets a prompt of 4,000 tokens arrive beside running answers on machines of many kinds.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for name, k := range map[string]struct {
		computer
		decoding int
	}{
		"1.5B, 1 stream":                   {computer{24 * ms, 8 * ms, 0.05}, 1},
		"1.5B, 8 streams":                  {computer{24 * ms, 8 * ms, 0.05}, 8},
		"1.5B, 16 streams":                 {computer{24 * ms, 8 * ms, 0.05}, 16},
		"memory is slow":                   {computer{100 * ms, 2 * ms, 0.05}, 8},
		"a small model":                    {computer{3 * ms, ms / 2, 0.3}, 8},
		"a tiny model":                     {computer{ms / 10, ms / 200, 1}, 2},
		"attention is as dear as the rest": {computer{20 * ms, 4 * ms, 0.5}, 4},
	} {
		for _, past := range []string{"answers only", "a short prompt", "a chunk of a prompt", "deep in a prompt"} {
			t.Run(name+", after "+past, func(t *testing.T) {
				c := pace{target: 200 * ms}
				require.Equal(t, math.MaxInt, c.chunkBeside(), "nobody waits")
				switch past {
				case "a short prompt":
					c.learn(3, k.pass(0, 3, 0))
				case "a chunk of a prompt":
					c.learn(512, k.pass(0, 512, 0))
				case "deep in a prompt":
					c.learn(512, k.pass(0, 512, 3500))
				}
				for range 20 {
					c.decoding = k.decoding
					c.learn(k.decoding, k.pass(k.decoding, 0, 0))
				}
				passes, ideal := 0, 0
				for done := 0; done < 4000; passes++ {
					n := min(c.chunkBeside(), 4000-done)
					took := k.pass(k.decoding, n, done)
					require.LessOrEqual(t, took, 250*ms, "%d tokens after %d", n, done)
					c.learn(k.decoding+n, took)
					done += n
				}
				for done := 0; done < 4000; ideal++ {
					n := 1
					for done+n < 4000 && k.pass(k.decoding, n+1, done) <= 200*ms {
						n++
					}
					done += n
				}
				require.LessOrEqual(t, passes, ideal*3/2+10, "the target is made use of")
			})
		}
	}
}

func TestPaceKeepsPromptsMoving(t *testing.T) {
	c := pace{target: 200 * time.Millisecond, decoding: 4}
	require.Equal(t, 4, c.chunkBeside(), "nothing is known")
	c.learn(4, time.Second)
	require.Equal(t, 4, c.chunkBeside(), "the target cannot be met")
	for range 30 { // the machine was busy with something else
		c.learn(24, 60*time.Millisecond)
	}
	require.Greater(t, c.chunkBeside(), 40)
	c.learn(30, 30*time.Second)
	require.Equal(t, 4, c.chunkBeside())
}

// paced gives an engine a clock that only passes move, and whoever gets it; pass says by how much.
func paced(e *Engine, pass func(b *model.Batch) time.Duration) *atomic.Int64 {
	var clock atomic.Int64
	e.now = func() time.Time { return time.Unix(0, clock.Load()) }
	inner := e.forward
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		clock.Add(int64(pass(b)))
		return inner(b)
	}
	return &clock
}

// TestPromptsDoNotStallAnswers runs answers while a prompt of 4,000 tokens comes, on the clock of a machine that takes 20 ms
// for a pass and 6 for each of its tokens: the passes are as wide as the target allows.
func TestPromptsDoNotStallAnswers(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		target time.Duration // 0: the default
		width  int           // tokens of most passes, whole tiles of 8 from 16 tokens on; 4 of them are of answers
	}{{0, 16}, {100 * ms, 13}, {160 * ms, 16}, {175 * ms, 24}, {200 * ms, 24}, {320 * ms, 48}, {time.Nanosecond, 4 + minChunk}} {
		t.Run(c.target.String(), func(t *testing.T) {
			e := openWritten(t, Options{Context: 4096, KVTokens: 3 * 4096, StallTarget: c.target}, nil)
			var longest time.Duration
			var widest int
			mixed, widths := 0, map[int]int{}
			paced(e, func(b *model.Batch) time.Duration {
				took := computer{20 * ms, 6 * ms, 0}.pass(0, len(b.Tokens), 0)
				n := 0
				for _, s := range b.Spans {
					if s.N == 1 {
						n++
					}
				}
				switch {
				case n == 0:
					widest = max(widest, len(b.Tokens))
				case n < len(b.Tokens):
					longest = max(longest, took)
					mixed++
					widths[len(b.Tokens)]++
				}
				return took
			})
			var streams []*Ticket
			for n := range 4 {
				streams = append(streams, submit(t, e, request(n, 30, 1000)))
				<-streams[n].Tokens()
			}
			long := submit(t, e, request(9, 4000, 2))
			done := make(chan []Token)
			for _, s := range streams {
				go func() { done <- whole(t, s) }()
			}
			require.Len(t, whole(t, long), 3)
			for range streams {
				require.Len(t, <-done, 1000)
			}
			whole(t, submit(t, e, request(10, 2000, 1)))
			require.NoError(t, e.Close())
			require.Equal(t, 512, widest, "alone, a prompt gets whole passes")
			require.LessOrEqual(t, longest, max(cmp.Or(c.target, DefaultStallTarget), 20*ms+(4+minChunk)*6*ms)+6*ms)
			require.Greater(t, 2*widths[c.width], mixed, "passes with both by their tokens: %v", widths)
			require.Greater(t, mixed, 4000/c.width)
		})
	}
}

// TestAdaptiveChunksChangeNothing runs passes whose times are drawn, so that prompts beside answers come in chunks of all
// sizes: ids and log probabilities stay those of a request alone.
func TestAdaptiveChunksChangeNothing(t *testing.T) {
	alone := openWritten(t, Options{Context: 256, NoPrefix: true}, nil)
	rng := rand.New(rand.NewPCG(8, 9))
	e := openWritten(t, Options{Context: 256, KVTokens: 1024, Chunk: 96}, nil)
	sizes := map[int]bool{}
	paced(e, func(b *model.Batch) time.Duration {
		for _, s := range b.Spans {
			if s.N > 1 && s.N < len(b.Tokens) {
				sizes[s.N] = true
			}
		}
		return time.Duration(rng.IntN(len(b.Tokens)*20)) * time.Millisecond
	})
	for range 2 {
		var tickets []*Ticket
		for i := range 8 {
			tickets = append(tickets, submit(t, e, lawRequest(i)))
		}
		for i, ticket := range tickets {
			require.Equal(t, whole(t, submit(t, alone, lawRequest(i))), whole(t, ticket), "request %d", i)
		}
	}
	require.NoError(t, e.Close())
	require.Greater(t, len(sizes), 4, "%v", sizes)
}

// TestDraftingIsPartOfThePace has answers wait for drafting too: what it takes is no longer there for prompts.
func TestDraftingIsPartOfThePace(t *testing.T) {
	const ms = time.Millisecond
	c := pace{target: 160 * ms, base: 30 * ms, perToken: ms, prompts: true, decoding: 1}
	without := c.chunkBeside()
	c.drafting = 40 * ms
	require.Equal(t, without-40, c.chunkBeside())
	c.drafting = 500 * ms
	require.Equal(t, minChunk, c.chunkBeside())
	c.drafting, c.decoding = 40*ms, 0
	require.Equal(t, math.MaxInt, c.chunkBeside(), "nobody waits")
	c.waiting = true
	require.Equal(t, 88, c.chunkBeside(), "an answer whose draft model reads waits too")
}

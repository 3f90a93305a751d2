package engine

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

func beams(n int, lengthPenalty float64) BeamOptions {
	return BeamOptions{Beams: n, LengthPenalty: lengthPenalty}
}

// nextOf asks a plain request for the most probable next tokens.
func nextOf(t *testing.T, e *Engine, ids []int32, n int) []sample.Logprob {
	r := Request{Prompt: ids, MaxTokens: 1, Sampling: sample.Greedy(), Logprobs: true, TopLogprobs: n}
	return whole(t, submit(t, e, r))[0].Top
}

// searchPlainly is a beam search without forks and caches.
func searchPlainly(t *testing.T, e *Engine, prompt []int32, o BeamOptions, n int, eog int32) []Beam {
	type path struct {
		ids []int32
		sum float64
	}
	paths, done := []path{{ids: prompt}}, []Beam(nil)
	end := func(p path, why Finish) {
		k := len(p.ids) - len(prompt)
		done = append(done, Beam{p.ids[len(prompt):], p.sum / math.Pow(float64(k), o.LengthPenalty), why})
	}
	for step := 1; step <= n; step++ {
		var all []path
		for _, p := range paths {
			for _, c := range nextOf(t, e, p.ids, 2*o.Beams) {
				all = append(all, path{append(slices.Clone(p.ids), c.ID), p.sum + c.Logprob})
			}
		}
		slices.SortStableFunc(all, func(a, b path) int { return cmp.Compare(b.sum, a.sum) })
		paths = nil
		for rank, p := range all[:2*o.Beams] {
			switch {
			case p.ids[len(p.ids)-1] == eog:
				if rank < o.Beams {
					end(p, FinishStop)
				}
			case step == n:
				end(p, FinishLength)
				paths = append(paths, p)
			default:
				paths = append(paths, p)
			}
			if len(paths) == o.Beams {
				break
			}
		}
		slices.SortStableFunc(done, func(a, b Beam) int { return cmp.Compare(b.Score, a.Score) })
		done = done[:min(len(done), o.Beams)]
		if len(done) == o.Beams && done[o.Beams-1].Score >= paths[0].sum/math.Pow(float64(step), o.LengthPenalty) {
			break
		}
	}
	return done
}

func TestBeamsAgainstAPlainSearch(t *testing.T) {
	for _, options := range []Options{{Context: 128, KVTokens: 1024}, {Context: 128, KVTokens: 1024, NoPrefix: true}, {Context: 128, KVTokens: 1024, Chunk: 9}} {
		e := openWritten(t, options, nil)
		for _, o := range []BeamOptions{beams(1, 1), beams(2, 1), beams(4, 0), beams(4, 1), beams(4, -1), beams(8, 2)} {
			for seed := range 3 {
				r := request(seed, 10+20*seed, 6)
				r.IgnoreEOS = false
				eog := nextOf(t, e, append(r.Prompt, nextOf(t, e, r.Prompt, 1)[0].ID), 3)[2].ID
				r.EOG = []int32{eog}
				got, err := e.Beams(context.Background(), r, o)
				require.NoError(t, err)
				want := searchPlainly(t, e, r.Prompt, o, 6, eog)
				require.Len(t, got, len(want))
				for i := range want {
					require.Equal(t, want[i].IDs, got[i].IDs, "%+v, seed %d", o, seed)
					require.Equal(t, want[i].Finish, got[i].Finish)
					require.InDelta(t, want[i].Score, got[i].Score, 1e-9)
				}
				if o.Beams == 1 && got[0].Finish == FinishLength {
					r.Sampling = sample.Greedy()
					ids, _ := answer(t, e, r)
					require.Equal(t, ids, got[0].IDs)
				}
			}
		}
		require.NoError(t, e.Close())
		require.Equal(t, e.idleBlocks, e.cache.FreeBlocks())
	}
}

func TestBeamsBesideRequestsAndRefusals(t *testing.T) {
	e := openWritten(t, Options{Context: 128, KVTokens: 192}, nil)
	r := request(1, 40, 20)
	alone, err := e.Beams(context.Background(), r, beams(4, 1))
	require.NoError(t, err)
	require.Len(t, alone, 4)
	var tickets []*Ticket
	var want [][]Token
	for i := range 3 {
		want = append(want, whole(t, submit(t, e, request(i, 30, 40))))
	}
	for i := range 3 {
		tickets = append(tickets, submit(t, e, request(i, 30, 40)))
	}
	beside, err := e.Beams(context.Background(), r, beams(4, 1))
	require.NoError(t, err)
	require.Equal(t, alone, beside)
	for i, ticket := range tickets {
		require.Equal(t, want[i], whole(t, ticket))
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = e.Beams(ctx, r, beams(4, 1))
	require.ErrorIs(t, err, context.Canceled)
	for text, o := range map[string]BeamOptions{
		"num_beams: 0": beams(0, 1), "num_beams: 33": beams(33, 1), "length_penalty: NaN": beams(1, math.NaN()), "length_penalty: 9": beams(1, 9),
	} {
		_, err = e.Beams(context.Background(), r, o)
		require.ErrorContains(t, err, text)
	}
	r.MaxTokens = 0
	_, err = e.Beams(context.Background(), r, beams(1, 1))
	require.ErrorContains(t, err, "max_tokens")
	r = request(1, 100, 28)
	_, err = e.Beams(context.Background(), r, beams(32, 1))
	require.ErrorContains(t, err, "need 70 blocks of 16 tokens, the cache has 12")
}

// TestSearchesWaitForTheirTurn runs four searches at once in a cache for one and a half: each finds what it finds alone. One
// that is too big is refused at once, one whose caller leaves meanwhile is gone, and beyond the queue's limit none waits.
func TestSearchesWaitForTheirTurn(t *testing.T) {
	const nSearches = 4
	e := openWritten(t, Options{Context: 128, KVTokens: 288, Chunk: 16, QueueLimit: nSearches + 1}, nil) // 18 blocks, 12 a search
	find := func(ctx context.Context, n int) ([]Beam, error) { return e.Beams(ctx, request(n, 72, 40), beams(3, 1)) }
	var want [nSearches][]Beam
	for n := range want {
		var err error
		want[n], err = find(t.Context(), n)
		require.NoError(t, err)
	}
	plain, _ := answer(t, e, request(8, 60, 40))
	_, err := e.Beams(t.Context(), request(0, 72, 56), beams(8, 1))
	require.ErrorContains(t, err, "need 36 blocks of 16 tokens, the cache has 18")

	open := gate(t, e)
	first := submit(t, e, request(8, 60, 40))
	until(t, "the request runs", func() bool { return waiting(e) == 0 })
	var got [nSearches][]Beam
	var errs [nSearches]error
	var all sync.WaitGroup
	for n := range got {
		all.Go(func() { got[n], errs[n] = find(t.Context(), n) })
	}
	searching := func(n int) func() bool {
		return func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.searches.waiting) == n }
	}
	until(t, "they wait", searching(nSearches))
	ctx, leave := context.WithCancelCause(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := find(ctx, 9); gone <- err }()
	until(t, "another one waits", searching(nSearches+1))
	_, err = find(t.Context(), 9)
	require.ErrorIs(t, err, ErrQueueFull)
	leave(errGone)
	open()
	require.ErrorIs(t, <-gone, errGone)
	ids, _ := drain(t, first)
	require.Equal(t, plain, ids)
	all.Wait()
	for n := range got {
		require.NoError(t, errs[n])
		require.Equal(t, want[n], got[n], "search %d", n)
	}
	require.NoError(t, e.Close())
	require.Equal(t, e.idleBlocks, e.cache.FreeBlocks())
}

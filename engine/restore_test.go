package engine

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/tensor"
)

// savedPrefix is a file with the prompt of request(5, n, 0).
func savedPrefix(t *testing.T, e *Engine, n int) (path string, prompt []int32) {
	path, prompt = filepath.Join(t.TempDir(), "prefix.kv"), request(5, n, 0).Prompt
	require.NoError(t, e.SavePrefix(t.Context(), path, prompt))
	return path, prompt
}

// slowUntil makes passes slow until something is met, each that is slower than the one before, up to half a second: a few come
// soon, and all of an answer not before a busy machine has come to everything else. It is called while none runs.
func slowUntil(e *Engine, met func() bool) {
	inner, slow := e.forward, 0
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		if !met() {
			slow++
		}
		for n := 0; n < min(40*slow, 500) && !met(); n++ {
			time.Sleep(time.Millisecond)
		}
		return inner(b)
	}
}

// linedUp returns how many restores and searches wait.
func linedUp(e *Engine) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.searches.waiting)
}

// restoring starts a restore and returns once it waits, as one of n.
func restoring(t *testing.T, ctx context.Context, e *Engine, path string, n int) (ended chan error) {
	ended = make(chan error, 1)
	go func() { _, err := e.RestorePrefix(ctx, path); ended <- err }()
	until(t, "the restore waits", func() bool { return linedUp(e) == n })
	return ended
}

// TestRestoringWaitsForBlocks restores under load: the prefix waits for the answer that has the blocks, or whose prompt will need
// them, a request that came later does not start before it, and a restore that is left meanwhile holds nobody up.
func TestRestoringWaitsForBlocks(t *testing.T) {
	for name, o := range map[string]Options{
		"paged": {Context: 256}, "contiguous": {Context: 256, Contiguous: true}, "a prompt in pieces": {Context: 256, Chunk: 16},
	} {
		busy := request(1, 100, 120)
		if o.Chunk > 0 {
			busy = request(1, 200, 20)
		}
		alone, e := openTiny(t, o), openTiny(t, o)
		path, _ := savedPrefix(t, alone, 200)
		want, later := whole(t, submit(t, alone, busy)), whole(t, submit(t, alone, request(2, 10, 5)))
		x := measure(e)
		var all atomic.Bool
		slowUntil(e, all.Load)
		first := submit(t, e, busy)
		until(t, "it runs", func() bool { return waiting(e) == 0 })
		ctx, leave := context.WithCancelCause(t.Context())
		gone := restoring(t, ctx, e, path, 1)
		ended := restoring(t, t.Context(), e, path, 2)
		last := submit(t, e, request(2, 10, 5))
		leave(errGone)
		require.ErrorIs(t, <-gone, errGone, name)
		all.Store(true)
		require.Equal(t, want, whole(t, first), name)
		require.NoError(t, <-ended, name)
		require.Equal(t, later, whole(t, last), name)
		require.Equal(t, 1, x.running, "%s: the later request started before the prefix was there", name)
		require.Len(t, x.starts, 2, "%s: the first request had to make way", name)
		if !o.Contiguous { // there the later request wrote over it
			ticket := submit(t, e, request(5, 200, 0))
			require.Len(t, whole(t, ticket), 1)
			require.Equal(t, 199, ticket.Stats().CachedTokens, name)
		}
		require.NoError(t, e.Close())
		require.Equal(t, e.idleBlocks, e.cache.FreeBlocks(), name)
	}
}

// TestRestoringNeedsNoReader has an answer hold the blocks that nobody reads: it makes way, and goes on once it is read. In a
// contiguous cache there is no room beside it, however short the prefix.
func TestRestoringNeedsNoReader(t *testing.T) {
	for _, o := range []Options{{Context: 512}, {Context: 512, Contiguous: true}} {
		for _, n := range []int{100, 300} {
			e := openWritten(t, o, nil) // 32 blocks: the answer waits with 250 tokens
			path, prompt := savedPrefix(t, e, n)
			want := whole(t, submit(t, e, request(1, 60, 400)))
			unread := submit(t, e, request(1, 60, 400))
			until(t, "the answer waits for its reader", func() bool { return len(unread.out) >= outBuffer-maxGuesses-1 })
			ids, err := e.RestorePrefix(t.Context(), path)
			require.NoError(t, err)
			require.Equal(t, prompt, ids)
			require.NoError(t, e.do(func() error {
				require.Equal(t, n == 100 && !o.Contiguous, unread.r.seq != nil, "it makes way where it has to")
				return nil
			}))
			require.Equal(t, want, whole(t, unread))
			require.NoError(t, e.Close())
		}
	}
}

// TestRestoringWaitsForHeldBlocks has somebody copy a sequence while no request runs: the prefix waits for its blocks.
func TestRestoringWaitsForHeldBlocks(t *testing.T) {
	path, _ := savedPrefix(t, openTiny(t, Options{Context: 256}), 200)
	e := openTiny(t, Options{Context: 256})
	var seq *kvcache.Seq
	require.NoError(t, e.do(func() error {
		seq = e.cache.NewSeq()
		e.hold()
		return seq.Reserve(100)
	}))
	ended := restoring(t, t.Context(), e, path, 1)
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, e.letGo(seq.Free))
	require.NoError(t, <-ended)
}

// TestRestoringBesideADraftWithoutRoom fills the draft's cache: the target's part is restored all the same, and the draft reads
// the prompt again.
func TestRestoringBesideADraftWithoutRoom(t *testing.T) {
	o := Options{Context: 256, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", func(c *drafter.Config) {
		c.Draft, c.KVTokens = load(t, c.Target, "llama-untied"), 256
	})}}
	path, prompt := savedPrefix(t, openTiny(t, o), 200)
	r := request(5, 200, 40)
	r.Reproducible = true
	want := whole(t, submit(t, openTiny(t, Options{Context: 256}), r))
	for _, full := range []bool{false, true} {
		e := openArch(t, "llama3-rope", o)
		cache := e.opts.Spec.Drafter.(drafter.Keeper).Places()[0].Cache
		var other *kvcache.Seq
		if full {
			require.NoError(t, e.do(func() error {
				other = cache.NewSeq()
				return other.Reserve(cache.FreeBlocks() * kvcache.BlockTokens)
			}))
		}
		ids, err := e.RestorePrefix(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, prompt, ids)
		if full {
			require.NoError(t, e.do(func() error { other.Free(); return nil }))
		}
		before := fed(e)
		ticket := submit(t, e, r)
		require.Equal(t, want, whole(t, ticket))
		require.Equal(t, 199, ticket.Stats().CachedTokens)
		require.Positive(t, ticket.Stats().Spec.Drafted)
		require.Equal(t, full, fed(e)-before >= 200, "the draft reads the prompt again")
	}
}

// TestRestoringEndsWithTheEngine closes the engine while a restore waits.
func TestRestoringEndsWithTheEngine(t *testing.T) {
	path, _ := savedPrefix(t, openTiny(t, Options{Context: 256}), 200)
	e := openTiny(t, Options{Context: 256})
	slowUntil(e, func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.closed })
	submit(t, e, request(1, 100, 156))
	until(t, "it runs", func() bool { return waiting(e) == 0 })
	ended := restoring(t, t.Context(), e, path, 1)
	require.NoError(t, e.Close())
	require.ErrorIs(t, <-ended, ErrClosed)
}

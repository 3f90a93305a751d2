package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/kvcache"
)

// slowDisk is a context that stops whoever asks it while a file is read or written, until it is let go on.
type slowDisk struct {
	context.Context
	stands, on chan struct{}
	once       sync.Once
}

func newSlowDisk(ctx context.Context) *slowDisk {
	return &slowDisk{Context: ctx, stands: make(chan struct{}), on: make(chan struct{})}
}

func (d *slowDisk) Err() error {
	callers := make([]uintptr, 20)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if strings.Contains(frame.Function, "kvcache.(*patient)") {
			d.once.Do(func() { close(d.stands) })
			<-d.on
		}
	}
	return d.Context.Err()
}

// TestASlowDiskHoldsNobodyUp stops a save and a restore in the middle of their file: requests that come meanwhile, to a cache
// with room for one only, run to their end, and the engine can be closed during a save, which ends well.
func TestASlowDiskHoldsNobodyUp(t *testing.T) {
	for name, o := range map[string]Options{
		"paged": {Context: 256}, "8 bits": {Context: 256, CacheTypeK: "q8_0", CacheTypeV: "q8_0"}, "contiguous": {Context: 256, Contiguous: true},
		"a draft": {Context: 256, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", func(c *drafter.Config) { c.Draft = load(t, c.Target, "llama-untied") })}},
	} {
		t.Run(name, func(t *testing.T) {
			r := family(0)
			r.Prompt = request(5, 200, 0).Prompt
			want, beside := whole(t, submit(t, openTiny(t, o), r)), whole(t, submit(t, openTiny(t, o), family(11)))
			path := filepath.Join(t.TempDir(), "prefix.kv")
			e := openTiny(t, o)
			disk := newSlowDisk(t.Context())
			saved := make(chan error, 1)
			go func() { saved <- e.SavePrefix(disk, path, r.Prompt) }()
			<-disk.stands
			for range 3 {
				require.Equal(t, beside, whole(t, submit(t, e, family(11))))
				require.Len(t, whole(t, submit(t, e, request(9, 20, 236))), 237, "all blocks of the cache")
			}
			require.NoError(t, e.Close())
			close(disk.on)
			require.NoError(t, <-saved)

			e = openTiny(t, o)
			disk = newSlowDisk(t.Context())
			restored := make(chan error, 1)
			go func() { _, err := e.RestorePrefix(disk, path); restored <- err }()
			<-disk.stands
			require.Equal(t, beside, whole(t, submit(t, e, family(11))))
			close(disk.on)
			require.NoError(t, <-restored)
			ticket := submit(t, e, r)
			require.Equal(t, want, whole(t, ticket))
			require.Equal(t, 199, ticket.Stats().CachedTokens)
		})
	}
}

// TestSavingIsLeft ends the contexts of a save and a restore in the middle of their file.
func TestSavingIsLeft(t *testing.T) {
	e := openTiny(t, Options{Context: 256})
	prompt := request(5, 200, 0).Prompt
	path := filepath.Join(t.TempDir(), "prefix.kv")
	require.NoError(t, e.SavePrefix(t.Context(), path, prompt[:50]))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error { return e.SavePrefix(ctx, path, prompt) },
		func(ctx context.Context) error { _, err := e.RestorePrefix(ctx, path); return err },
	} {
		ctx, leave := context.WithCancel(t.Context())
		disk := newSlowDisk(ctx)
		ended := make(chan error, 1)
		go func() { ended <- f(disk) }()
		<-disk.stands
		leave()
		close(disk.on)
		require.ErrorIs(t, <-ended, context.Canceled)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.NoError(t, e.do(func() error { return e.cache.CheckIntegrity() }))
	require.NoError(t, e.Close())
	require.Equal(t, e.idleBlocks, e.cache.FreeBlocks())
}

// TestRequestsWaitForHeldBlocks has blocks that somebody copies: a request and a search that need them wait instead of failing,
// one that does not runs, and Close waits until the copy is made.
func TestRequestsWaitForHeldBlocks(t *testing.T) {
	for _, contiguous := range []bool{false, true} {
		e := openTiny(t, Options{Context: 128, Contiguous: contiguous})
		want := whole(t, submit(t, e, request(1, 60, 40)))
		var seq *kvcache.Seq
		require.NoError(t, e.do(func() error {
			seq = e.cache.NewSeq()
			e.hold()
			return seq.Reserve(100)
		}))
		ticket := submit(t, e, request(1, 60, 40))
		found := make(chan error, 1)
		if !contiguous {
			urgent := request(3, 1, 1)
			urgent.Priority = 1
			require.Len(t, whole(t, submit(t, e, urgent)), 2)
			go func() { _, err := e.Beams(t.Context(), request(2, 20, 12), beams(3, 1)); found <- err }()
		}
		until(t, "it waits", func() bool { return waiting(e) == 1 })
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, e.letGo(seq.Free))
		require.Equal(t, want, whole(t, ticket))
		if !contiguous {
			require.NoError(t, <-found)
		}

		require.NoError(t, e.do(func() error { e.hold(); return nil }))
		closed := make(chan error, 1)
		go func() { closed <- e.Close() }()
		select {
		case <-e.done:
		case <-time.After(patience):
			t.Fatal("the loop goes on")
		}
		time.Sleep(20 * time.Millisecond)
		select {
		case <-closed:
			t.Fatal("closed while a sequence is held")
		default:
		}
		require.ErrorIs(t, e.letGo(seq.Free), ErrClosed)
		require.NoError(t, <-closed)
	}
}

// TestASaveKeepsItsBlocks has requests that need the whole cache wait behind each of several saves: they get no block of a prompt
// that is saved until the copy is made.
func TestASaveKeepsItsBlocks(t *testing.T) {
	const n = 10
	for name, o := range map[string]Options{"paged": {Context: 256}, "contiguous": {Context: 256, Contiguous: true}} {
		e := openTiny(t, o)
		open := gate(t, e)
		dir, saved := t.TempDir(), make(chan error, n)
		path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
		var beside []*Ticket
		for i := range n {
			go func() { saved <- e.SavePrefix(t.Context(), path(i), request(i, 200, 0).Prompt) }()
			until(t, "it is there", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.order == uint64(2*i+1) })
			beside = append(beside, submit(t, e, request(100+i, 240, 1)))
		}
		open()
		for i := range n {
			require.NoError(t, <-saved, name)
			require.Len(t, whole(t, beside[i]), 2, name)
		}
		for i := range n {
			ids, err := e.RestorePrefix(t.Context(), path(i))
			require.NoError(t, err, name)
			require.Equal(t, request(i, 200, 0).Prompt, ids, name)
		}
		require.NoError(t, e.Close())
		require.Equal(t, e.idleBlocks, e.cache.FreeBlocks(), name)
	}
}

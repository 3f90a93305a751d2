package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/model"
	"quickdraft/tensor"
)

// TestUnreadAnswersStayWhereNobodyCanUseTheirRoom has an answer that waits for its reader beside one that is read, while a search, a
// prefix or a request waits for more blocks than the first one holds: it stays as long as the other one runs.
func TestUnreadAnswersStayWhereNobodyCanUseTheirRoom(t *testing.T) {
	o := Options{Context: 512, KVTokens: 512} // 32 blocks, about 16 and 10 of them for the answers
	alone := openWritten(t, o, nil)
	wantUnread, wantBeside := whole(t, submit(t, alone, request(1, 60, 400))), whole(t, submit(t, alone, request(2, 100, 60)))
	for name, wait := range map[string]func(e *Engine, path string) error{
		"search": func(e *Engine, _ string) error {
			_, err := e.Beams(t.Context(), request(3, 40, 60), beams(5, 1))
			return err
		}, // 27 blocks
		"prefix":  func(e *Engine, path string) error { _, err := e.RestorePrefix(t.Context(), path); return err }, // 27
		"request": func(e *Engine, _ string) error { return lastToken(t, submit(t, e, request(4, 420, 5))).Err },   // 27
	} {
		e := openWritten(t, o, nil)
		path, _ := savedPrefix(t, e, 420)
		var beside atomic.Pointer[Ticket]
		var slow, all atomic.Bool
		waits := func() bool { return linedUp(e)+waiting(e) > 0 }
		unread, passes, left := (*run)(nil), 0, 0
		slowUntil(e, func() bool { return !slow.Load() || all.Load() })
		inner := e.forward
		e.forward = func(b *model.Batch) (tensor.F32, error) {
			if other := beside.Load(); other != nil && slices.Contains(e.active, other.r) && all.Load() {
				if passes++; unread.seq == nil {
					left++
				}
			}
			return inner(b)
		}
		first := submit(t, e, request(1, 60, 400))
		unread = first.r
		until(t, "the answer waits for its reader", func() bool { return len(first.out) >= outBuffer-maxGuesses-1 })
		slow.Store(true)
		second := submit(t, e, request(2, 100, 60))
		until(t, "the other one runs", func() bool { return !waits() })
		beside.Store(second)
		ended := make(chan error, 1)
		go func() { ended <- wait(e, path) }()
		until(t, name+" waits", waits)
		all.Store(true)
		require.Equal(t, wantBeside, whole(t, second), name)
		require.NoError(t, <-ended, name)
		require.Equal(t, wantUnread, whole(t, first), name)
		require.NoError(t, e.Close())
		require.Greater(t, passes, 10, name)
		require.Zero(t, left, "%s: passes in which nobody could use what it gave up", name)
	}
}

// TestUnreadAnswersMakeWay has answers that wait for their readers hold the only places, or most of the blocks: as many go as the
// next request needs, the last first.
func TestUnreadAnswersMakeWay(t *testing.T) {
	for _, c := range []struct{ running, prompt, stay int }{
		{2, 10, 1}, // no place
		{8, 10, 2}, // room for all
		{8, 200, 1},
		{8, 400, 0},
	} {
		e := openWritten(t, Options{Context: 512, KVTokens: 600, MaxRunning: c.running}, nil) // 38 blocks, 16 of each
		var tickets []*Ticket
		for n := range 2 {
			ticket := submit(t, e, request(n, 60, 400))
			until(t, "the answer waits for its reader", func() bool { return len(ticket.out) >= outBuffer-maxGuesses-1 })
			tickets = append(tickets, ticket)
		}
		require.Len(t, whole(t, submit(t, e, request(2, c.prompt, 5))), 5+1, "%+v", c)
		var stay []bool
		require.NoError(t, e.do(func() error {
			for _, ticket := range tickets {
				stay = append(stay, ticket.r.seq != nil)
			}
			return nil
		}))
		require.Equal(t, []bool{c.stay > 0, c.stay > 1}, stay, "%+v", c)
		for _, ticket := range tickets {
			require.Len(t, whole(t, ticket), 400+1)
		}
		require.NoError(t, e.Close())
	}
}

// TestASearchLeavesRoomBesideUnreadAnswers has a search run beside an answer that waits for its reader: a request that fits beside the
// search alone is answered before it ends.
func TestASearchLeavesRoomBesideUnreadAnswers(t *testing.T) {
	e := openWritten(t, Options{Context: 512, KVTokens: 640}, nil) // 40 blocks: 16 of the answer, 27 of the search at worst
	var searching atomic.Bool
	slowUntil(e, func() bool { return !searching.Load() })
	unread := submit(t, e, request(1, 60, 400))
	until(t, "the answer waits for its reader", func() bool { return len(unread.out) >= outBuffer-maxGuesses-1 })
	searching.Store(true)
	ctx, leave := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := e.Beams(ctx, request(3, 40, 60), beams(5, 1)); ended <- err }()
	until(t, "the search runs", func() bool { var n int; _ = e.do(func() error { n = e.nSearches; return nil }); return n == 1 })
	require.Len(t, whole(t, submit(t, e, request(4, 10, 2))), 2+1)
	leave(errGone)
	require.ErrorIs(t, <-ended, errGone, "the search is still at it")
	searching.Store(false)
	require.Len(t, whole(t, unread), 400+1)
	require.NoError(t, e.Close())
}

package tensor

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharesTask marks the units it takes.
type sharesTask struct {
	shares
	taken []atomic.Int32
	did   []int
	slow  bool         // the first worker goes on once the others have taken four times as much, or all
	all   atomic.Int64 // units taken
}

func (t *sharesTask) Do(worker, _ int) {
	for {
		lo, hi, ok := t.take(worker)
		if !ok {
			return
		}
		t.did[worker] += hi - lo
		for i := lo; i < hi; i++ {
			t.taken[i].Add(1)
		}
		t.all.Add(int64(hi - lo))
		for worker == 0 && t.slow && t.all.Load() < int64(min(5*t.did[0], len(t.taken))) {
			runtime.Gosched()
		}
	}
}

func TestShares(t *testing.T) {
	for workers := 1; workers <= 4; workers++ {
		pool := NewPool(workers)
		for _, n := range []int{0, 1, 2, 7, 100, 5000} {
			task := &sharesTask{taken: make([]atomic.Int32, n), did: make([]int, workers)}
			task.parts = make([]workerShare, workers)
			for round := range 20 {
				task.deal(n, 1+round%5, 10+100*round)
				pool.RunAny(task)
				for i := range task.taken {
					require.Equal(t, int32(round+1), task.taken[i].Load(), "unit %d of %d", i, n)
				}
			}
		}
		pool.Close()
	}
}

func TestSharesAreStolenFromASlowWorker(t *testing.T) {
	const n = 10000
	pool := NewPool(3)
	defer pool.Close()
	task := &sharesTask{taken: make([]atomic.Int32, n), did: make([]int, 3), slow: true}
	task.parts = make([]workerShare, 3)
	task.deal(n, 10, 100)
	pool.RunAny(task)
	require.Less(t, task.did[0], n/4)
	require.Equal(t, n, task.did[0]+task.did[1]+task.did[2])
}

// TestSharesRuns checks the sizes of runs: a quarter of what is left, within the limits, so that neither a long tail nor a
// long wait for the last worker comes about.
func TestSharesRuns(t *testing.T) {
	s := shares{parts: make([]workerShare, 2)}
	for _, c := range []struct{ n, low, high int }{{20000, 10, 300}, {20000, 10, 1 << 20}, {100, 7, 9}, {5, 10, 20}} {
		s.deal(c.n, c.low, c.high)
		left := [2]int{c.n / 2, c.n - c.n/2}
		for left[0]+left[1] > 0 {
			part := 0 // who is done takes from the other
			if left[0] == 0 {
				part = 1
			}
			lo, hi, ok := s.take(0)
			require.True(t, ok)
			require.Equal(t, min(max(left[part]/4, c.low), c.high, left[part]), hi-lo, "%+v with %v left", c, left)
			left[part] -= hi - lo
		}
		_, _, ok := s.take(0)
		require.False(t, ok)
	}
}

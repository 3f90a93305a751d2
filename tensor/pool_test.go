package tensor

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// countTask counts its calls by worker, with a barrier in the middle.
type countTask struct {
	pool   *Pool
	calls  []int
	before atomic.Int32
	missed atomic.Int32
}

func (t *countTask) Do(worker, nWorkers int) {
	t.calls[worker]++
	for round := 1; round <= 3; round++ {
		t.before.Add(1)
		t.pool.Sync(round)
		if int(t.before.Load()) < nWorkers*round {
			t.missed.Add(1)
		}
	}
}

func TestPool(t *testing.T) {
	for _, n := range []int{-1, 1, 2, 3, 8} {
		p := NewPool(n)
		require.Equal(t, max(n, 1), p.N())
		task := &countTask{pool: p, calls: make([]int, p.N())}
		for range 200 {
			task.before.Store(0)
			p.Run(task)
		}
		for worker, calls := range task.calls {
			require.Equal(t, 200, calls, "worker %d of %d", worker, n)
		}
		require.Zero(t, task.missed.Load(), "a barrier let a worker through early")
		require.Zero(t, int(testing.AllocsPerRun(50, func() { task.before.Store(0); p.Run(task) })))
		p.Close()
		p.Close()
		require.Panics(t, func() { p.Run(task) })
	}
}

// sleepTask makes one worker late, longer than anybody spins.
type sleepTask struct{ late, runs int }

func (t *sleepTask) Do(worker, _ int) {
	if worker == t.late {
		time.Sleep(3 * spinTime)
		t.runs++
	}
}

func TestPoolParks(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	for late := range 3 {
		task := &sleepTask{late: late}
		for range 5 {
			p.Run(task)
		}
		require.Equal(t, 5, task.runs)
	}
	deadline := time.Now().Add(5 * time.Second)
	for i := range p.workers { // without work all workers go to sleep
		for p.workers[i].parked.Load() == 0 {
			require.True(t, time.Now().Before(deadline), "worker %d still spins", i+1)
			time.Sleep(spinTime)
		}
	}
	task := &sleepTask{late: 1}
	p.Run(task)
	require.Equal(t, 1, task.runs)
}

func TestPoolClosesWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	pools := make([]*Pool, 10)
	for i := range pools {
		pools[i] = NewPool(4)
	}
	for _, p := range pools {
		p.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(spinTime) {
		require.True(t, time.Now().Before(deadline), "%d goroutines, %d before", runtime.NumGoroutine(), before)
	}
}

// nestedTask runs the pool inside a task of the pool.
type nestedTask struct{ pool *Pool }

func (t *nestedTask) Do(worker, _ int) {
	if worker == 0 {
		t.pool.Run(t)
	}
}

func TestPoolRefusesNesting(t *testing.T) {
	p := NewPool(1)
	require.PanicsWithValue(t, "tensor: Pool.Run on a pool that is busy or closed (closed=false)", func() { p.Run(&nestedTask{p}) })
}

func TestShare(t *testing.T) {
	for n := range 40 {
		for workers := 1; workers < 9; workers++ {
			end := 0
			for w := range workers {
				lo, hi := share(n, w, workers)
				require.Equal(t, end, lo)
				require.LessOrEqual(t, hi-lo, n/workers+1)
				end = hi
			}
			require.Equal(t, n, end)
		}
	}
}

// BenchmarkPoolRun reports the median beside the mean: other processes on the machine make some runs a thousand times longer.
func BenchmarkPoolRun(b *testing.B) {
	p := NewPool(min(runtime.GOMAXPROCS(0), 2))
	defer p.Close()
	task := &sleepTask{late: -1}
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		p.Run(task)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "median-ns")
}

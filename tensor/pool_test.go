package tensor

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long tests wait for what must happen at once, on an emulated processor and beside others too.
const patience = 5 * time.Minute

// countTask counts its calls by worker.
type countTask struct{ calls []int }

func (t *countTask) Do(worker, _ int) { t.calls[worker]++ }

func TestPool(t *testing.T) {
	for _, n := range []int{-1, 1, 2, 3, 8} {
		p := NewPool(n)
		require.Equal(t, max(n, 1), p.N())
		task := &countTask{calls: make([]int, p.N())}
		for range 200 {
			p.Run(task)
		}
		for worker, calls := range task.calls {
			require.Equal(t, 200, calls, "worker %d of %d", worker, n)
		}
		require.Zero(t, allocations(func() { p.Run(task) }))
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
	deadline := time.Now().Add(patience)
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

// TestSpinIsBounded counts the looks at a clock that goes on by the microsecond that lies between two of them, and at one
// that stands still.
func TestSpinIsBounded(t *testing.T) {
	for _, c := range []struct {
		step  time.Duration
		looks int // at most
	}{{time.Microsecond, 1100}, {10 * time.Microsecond, 110}, {0, 4100}} {
		looks, at := 0, time.Unix(0, 0)
		clock := func() time.Time {
			looks++
			at = at.Add(c.step)
			return at
		}
		var never counter
		require.False(t, never.spinBy(clock, ^uint64(0), 1, true))
		require.LessOrEqual(t, looks, c.looks, "steps of %v", c.step)
		require.GreaterOrEqual(t, looks, c.looks/2, "steps of %v", c.step)
		require.True(t, never.spinBy(clock, ^uint64(0), 1, false))
	}
}

// anyTask is done by whoever comes: each unit is taken once.
type anyTask struct {
	shares
	sum    []int64 // of the units, by worker
	pauses bool    // some units take longer than anybody spins
}

func (t *anyTask) Do(worker, _ int) {
	for {
		lo, hi, ok := t.take(worker)
		if !ok {
			return
		}
		for i := lo; i < hi; i++ {
			t.sum[worker] += int64(i)
			if t.pauses && i%97 == 0 {
				time.Sleep(spinTime + spinTime/10*time.Duration(i%3))
			}
		}
	}
}

func TestPoolRunAny(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		p := NewPool(n)
		task := &anyTask{sum: make([]int64, n)}
		task.parts = make([]workerShare, n)
		every := &countTask{calls: make([]int, n)}
		for round := range 3000 {
			units := round % 200
			task.deal(units, 1, 1+round%20)
			clear(task.sum)
			task.pauses = round%300 == 7
			p.RunAny(task)
			total := int64(0)
			for _, s := range task.sum {
				total += s
			}
			require.Equal(t, int64(units*(units-1)/2), total, "round %d of %d workers", round, n)
			if round%10 == 0 {
				p.Run(every)
			}
			if round%500 == 0 {
				time.Sleep(2 * spinTime) // all park
			}
		}
		for worker, calls := range every.calls {
			require.Equal(t, 300, calls, "worker %d of %d", worker, n)
		}
		p.Close()
	}
}

// inTime fails the test when f does not return: the deadline is that of a hang and no goal.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "it hangs", what)
	}
}

// TestRunAnyWaitsForNobody has a worker that the system never lets run: the others do the whole task and RunAny returns without
// it, again and again.
func TestRunAnyWaitsForNobody(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		p := &Pool{n: 2, workers: make([]worker, 1), wake: make(chan struct{}, 1)}
		p.gate.Store(gateShut)
		p.workers[0].wake = make(chan struct{}, 1)
		if asleep {
			p.workers[0].parked.Store(1)
		}
		task := &anyTask{sum: make([]int64, 2)}
		task.parts = make([]workerShare, 2)
		for range 5 {
			task.deal(100, 1, 10)
			clear(task.sum)
			inTime(t, "RunAny waits for a worker that has not begun", func() { p.RunAny(task) })
			require.Equal(t, []int64{4950, 0}, task.sum)
		}
		require.Equal(t, asleep, len(p.workers[0].wake) == 1, "who sleeps is woken once")
	}
}

// heldTask has one worker wait, with the first run it took, until the others have done all the rest.
type heldTask struct {
	shares
	held      int
	units     int
	done      atomic.Int64 // units that are done
	rest      chan struct{}
	byWorker  []int
	firstRun  int // units that the held worker took
	heldStart chan struct{}
}

func (t *heldTask) Do(worker, _ int) {
	if worker != t.held {
		<-t.heldStart // so that the held worker has a run
	}
	for first := true; ; first = false {
		lo, hi, ok := t.take(worker)
		if !ok {
			return
		}
		if worker == t.held && first {
			t.firstRun = hi - lo
			close(t.heldStart)
			if t.done.Load() < int64(t.units-t.firstRun) {
				<-t.rest
			}
		}
		t.byWorker[worker] += hi - lo
		if t.done.Add(int64(hi-lo)) == int64(t.units-t.firstRun) {
			close(t.rest)
		}
	}
}

// TestWorkIsStolenFromAWorkerThatIsHeldUp: all that a worker has not taken is done by the others while it stands still, be it the
// caller or not.
func TestWorkIsStolenFromAWorkerThatIsHeldUp(t *testing.T) {
	for _, n := range []int{2, 3} {
		p := NewPool(n)
		for held := range n {
			for range 5 {
				task := &heldTask{held: held, units: 1000, byWorker: make([]int, n), rest: make(chan struct{}), heldStart: make(chan struct{})}
				task.parts = make([]workerShare, n)
				task.deal(task.units, 4, 40)
				inTime(t, "nobody does the work of a worker that is held up", func() { p.Run(task) })
				require.Equal(t, task.firstRun, task.byWorker[held], "held worker %d of %d", held, n)
				total := 0
				for _, units := range task.byWorker {
					total += units
				}
				require.Equal(t, task.units, total)
			}
		}
		p.Close()
	}
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
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(spinTime) {
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

// BenchmarkPoolRun reports the median and the 99th percentile beside the mean: other processes on the machine make some runs a
// thousand times longer.
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
	b.ReportMetric(float64(times[len(times)*99/100]), "p99-ns")
}

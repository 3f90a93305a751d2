package tensor

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// spinTime bounds how long a worker without work stays awake. A pass is a few hundred barriers some microseconds
	// apart, and sampling between two passes takes less than this, so workers sleep only when decoding pauses.
	spinTime = time.Millisecond
	// spinRound is the number of loads between two looks at the clock, about a microsecond.
	spinRound = 512
	// yieldRound is the number of loads between two offers of the processor to other goroutines, about 100 microseconds.
	// After 15, a worker that was late gave its place to the caller and the caller to it, on one processor for good: the
	// other one's thread did not wake in time to take either.
	yieldRound = 128 * spinRound
)

// Task is work that every worker of a Pool does a share of. worker is in [0, nWorkers); worker 0 is the goroutine that
// called Run. Implement it on a pointer that lives as long as the Pool's owner, so that a call allocates nothing.
type Task interface {
	Do(worker, nWorkers int)
}

// Pool is a fixed set of persistent workers. Between tasks they spin for a bounded time and then park. One goroutine at
// a time may call Run.
type Pool struct {
	n       int
	busy    atomic.Bool
	closed  bool
	task    Task
	workers []worker // n-1: the caller of Run is worker 0

	epoch   counter // number of tasks started; a change is the signal to begin
	pending counter // workers that have not finished the task
	arrived counter // workers that reached Sync, over all of this task's Syncs
	waiting counter // 1 while the caller is parked, waiting for pending to reach 0
	wake    chan struct{}
}

// counter is an atomic alone on its pair of cache lines (the prefetcher fetches lines in pairs).
type counter struct {
	_ [64]byte
	atomic.Uint32
	_ [60]byte
}

type worker struct {
	parked counter // 1 while it sleeps on wake
	wake   chan struct{}
}

// NewPool starts n-1 workers beside the calling goroutine; n < 1 counts as 1.
func NewPool(n int) *Pool {
	n = max(n, 1)
	p := &Pool{n: n, workers: make([]worker, n-1), wake: make(chan struct{}, 1)}
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		go p.work(i)
	}
	return p
}

// N is the number of workers, the caller of Run included.
func (p *Pool) N() int { return p.n }

// Close ends the workers. The pool must be idle and cannot be used again. Closing twice is harmless.
func (p *Pool) Close() {
	if p.closed {
		return
	}
	p.closed = true
	p.start(nil)
}

// Run has every worker do its share of the task and returns when all have finished. It panics when the pool is already
// running a task or is closed.
func (p *Pool) Run(task Task) {
	if p.closed || !p.busy.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("tensor: Pool.Run on a pool that is busy or closed (closed=%v)", p.closed))
	}
	if p.n > 1 {
		p.pending.Store(uint32(p.n - 1))
		p.arrived.Store(0)
		p.start(task)
	}
	task.Do(0, p.n)
	if p.n > 1 {
		p.finish()
	}
	p.busy.Store(false)
}

// Sync is a barrier inside a task: every worker must call it the same number of times, round being 1 for the first, 2
// for the second and so on. It only spins (yielding the processor after a while): all workers are awake in a task.
func (p *Pool) Sync(round int) {
	if p.n == 1 {
		return
	}
	want := uint32(p.n * round)
	p.arrived.Add(1)
	for spins := 1; p.arrived.Load() < want; spins++ {
		if spins%yieldRound == 0 {
			runtime.Gosched()
		}
	}
}

// start publishes the task and wakes the workers that sleep.
func (p *Pool) start(task Task) {
	p.task = task
	p.epoch.Add(1)
	for i := range p.workers {
		if w := &p.workers[i]; w.parked.Load() == 1 && w.parked.CompareAndSwap(1, 0) {
			w.wake <- struct{}{}
		}
	}
}

// finish waits until the other workers are done.
func (p *Pool) finish() {
	// A worker that is held up between its last count and its look at waiting may wake the caller of a later task, so
	// what counts is pending alone.
	for !spinUntil(&p.pending, 0) {
		p.waiting.Store(1)
		if p.pending.Load() == 0 && p.waiting.CompareAndSwap(1, 0) {
			return
		}
		<-p.wake
	}
}

// work is the life of a worker. It keeps a thread of its own, so that it never shares one with the caller: with free
// threads on a busy machine of 2 processors, half of all runs had both on one, and a barrier took 15 microseconds; now
// the median is half a microsecond.
func (p *Pool) work(i int) {
	runtime.LockOSThread()
	pin(p.n, i+1)
	w := &p.workers[i]
	for epoch := uint32(1); ; epoch++ {
		w.await(&p.epoch, epoch)
		task := p.task
		if task == nil {
			return
		}
		task.Do(i+1, p.n)
		if p.pending.Add(^uint32(0)) == 0 && p.waiting.CompareAndSwap(1, 0) {
			p.wake <- struct{}{}
		}
	}
}

// await returns when epoch has the wanted value: it spins first and then parks.
func (w *worker) await(epoch *counter, want uint32) {
	// As in finish: a start that is held up may wake the worker one task early.
	for !spinUntil(epoch, want) {
		w.parked.Store(1)
		if epoch.Load() == want && w.parked.CompareAndSwap(1, 0) {
			return
		}
		<-w.wake
	}
}

// spinUntil loads c until it has the wanted value, for spinTime at most; it reports whether it did.
func spinUntil(c *counter, want uint32) bool {
	for range spinRound {
		if c.Load() == want {
			return true
		}
	}
	start := time.Now()
	for spins := 1; ; spins++ {
		if c.Load() == want {
			return true
		}
		if spins%spinRound == 0 && time.Since(start) > spinTime {
			return false
		}
		if spins%yieldRound == 0 {
			runtime.Gosched()
		}
	}
}

// share returns the part [lo, hi) of n equal pieces of work that a worker does.
func share(n, worker, nWorkers int) (lo, hi int) {
	return n * worker / nWorkers, n * (worker + 1) / nWorkers
}

package tensor

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"quickdraft/machine"
)

const (
	// spinTime bounds how long a worker without work stays awake. A pass is a few hundred barriers some microseconds
	// apart, and sampling between two passes takes less than this, so workers sleep only when decoding pauses.
	spinTime = time.Millisecond
	// spinRound is the number of loads between two looks at the clock, about a microsecond.
	spinRound = 512
	// spinLooks bounds the looks at the clock: loads end even if it stands still.
	spinLooks = 4096
	// yieldRound is the number of loads between two offers of the processor to other goroutines, about 100 microseconds.
	// After 15, a worker that was late gave its place to the caller and the caller to it, on one processor for good: the
	// other one's thread did not wake in time to take either.
	yieldRound = 128 * spinRound
)

// Task is work that the workers of a Pool share. worker is in [0, nWorkers); worker 0 is the goroutine that called Run.
// Implement it on a pointer that lives as long as the Pool's owner, so that a call allocates nothing.
type Task interface {
	Do(worker, nWorkers int)
}

// Pool is a fixed set of persistent workers. Between tasks they spin for a bounded time and then park. One goroutine at
// a time may call Run or RunAny.
type Pool struct {
	n       int
	busy    atomic.Bool
	closed  bool
	task    Task // stable while the gate is open or someone is inside
	workers []worker
	cores   []int                         // CPUs that the workers keep to; nil: wherever the system puts them
	fault   atomic.Pointer[machine.Fault] // the first one of the task

	gate    counter // see gateShut
	done    counter // workers that have finished the task
	waiting counter // 1 while the caller is parked
	wake    chan struct{}
}

// The gate is the number of the task, whether it is shut, and the number of workers inside. Workers enter an open gate
// once a task; the caller of Run shuts it and waits until nobody is inside.
const (
	gateShut   = 1 << 15
	gateInside = gateShut - 1
	gateTask   = 1 << 16
)

// counter is an atomic alone on its pair of cache lines (the prefetcher fetches lines in pairs).
type counter struct {
	_ [64]byte
	atomic.Uint64
	_ [56]byte
}

type worker struct {
	parked counter // 1 while it sleeps on wake
	wake   chan struct{}
}

// NewPool starts n-1 workers beside the calling goroutine; n < 1 counts as 1, and 32768 is the most.
func NewPool(n int) *Pool { return NewPoolOn(n, nil) }

// NewPoolOn is NewPool with workers that keep to some CPUs. The calling goroutine does its share where it is: Confine.
func NewPoolOn(n int, cores []int) *Pool {
	n = min(max(n, 1), gateInside+1)
	p := &Pool{n: n, cores: cores, workers: make([]worker, n-1), wake: make(chan struct{}, 1)}
	p.gate.Store(gateShut)
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
// running a task or is closed, and with the machine.Fault of a worker that read mapped memory which is not there: the others
// have finished then and the pool can be used again. A task must not have workers wait for one that may still read such memory.
func (p *Pool) Run(task Task) { p.run(task, true) }

// RunAny is Run for a task that deals out its work by itself and is done when Do returns in any worker: those that have
// not begun by then take no part, so a worker that the system holds up, or that sleeps, keeps nobody waiting.
func (p *Pool) RunAny(task Task) { p.run(task, false) }

func (p *Pool) run(task Task, all bool) {
	if p.closed || !p.busy.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("tensor: Pool.Run on a pool that is busy or closed (closed=%v)", p.closed))
	}
	if p.n > 1 {
		p.done.Store(0)
		p.start(task)
	}
	p.own(task)
	if p.n > 1 {
		if all {
			p.await(&p.done, ^uint64(0), uint64(p.n-1))
		}
		p.gate.Or(gateShut)
		p.await(&p.gate, gateInside, 0)
	}
	fault := p.fault.Load()
	if fault != nil {
		p.fault.Store(nil)
	}
	p.busy.Store(false)
	if fault != nil {
		panic(*fault)
	}
}

// own is the caller's part of a task.
func (p *Pool) own(task Task) {
	defer func() {
		if x := recover(); x != nil {
			p.faulted(x)
		}
	}()
	task.Do(0, p.n)
}

// faulted keeps a panic that is a fault for the caller of Run; any other goes on.
func (p *Pool) faulted(x any) {
	fault, ok := x.(machine.Fault)
	if !ok {
		panic(x)
	}
	p.fault.CompareAndSwap(nil, &fault)
}

// start publishes the task, opens the gate and wakes the workers that sleep.
func (p *Pool) start(task Task) {
	p.task = task
	p.gate.Store((p.gate.Load()/gateTask + 1) * gateTask)
	for i := range p.workers {
		if w := &p.workers[i]; w.parked.Load() == 1 && w.parked.CompareAndSwap(1, 0) {
			w.wake <- struct{}{}
		}
	}
}

// await returns when the masked bits of c have the wanted value.
func (p *Pool) await(c *counter, mask, want uint64) {
	// A worker that leaves may wake the caller too early, even in a later task, so what counts is c alone.
	for !c.spin(mask, want, true) {
		p.waiting.Store(1)
		if c.Load()&mask == want && p.waiting.CompareAndSwap(1, 0) {
			return
		}
		<-p.wake
	}
}

// Confine keeps the calling goroutine on a thread of its own, and that to some CPUs where the system allows it: for the
// goroutine that runs tasks on a pool of NewPoolOn. It lasts as long as the goroutine.
func Confine(cores []int) {
	runtime.LockOSThread()
	restrict(cores)
}

// work is the life of a worker. It keeps a thread of its own, so that it never shares one with the caller: with free
// threads on a busy machine of 2 processors, half of all runs had both on one, and a barrier took 15 microseconds; now
// the median is half a microsecond.
func (p *Pool) work(i int) {
	runtime.LockOSThread()
	debug.SetPanicOnFault(true)
	if p.cores != nil {
		restrict(p.cores)
	} else {
		pin(p.n, i+1)
	}
	last := uint64(0) // task
	for p.serve(i, last) {
		last = p.gate.Load() / gateTask // as long as the worker is inside there is no other
		p.leave()
	}
}

// serve does a worker's part of every task after last until the pool closes. It returns true earlier when a part ends in a
// fault, with the worker inside its task: what recovers is set up once and not for every task.
func (p *Pool) serve(i int, last uint64) (faulted bool) {
	defer func() {
		if x := recover(); x != nil {
			p.faulted(x)
			faulted = true
		}
	}()
	for {
		p.workers[i].await(&p.gate, last)
		g := p.gate.Load()
		last = g / gateTask
		for g/gateTask == last && g&gateShut == 0 {
			if p.gate.CompareAndSwap(g, g+1) {
				if p.task == nil {
					return false
				}
				p.task.Do(i+1, p.n)
				p.leave()
				break
			}
			g = p.gate.Load()
		}
	}
}

// leave ends a worker's part of a task.
func (p *Pool) leave() {
	p.done.Add(1)
	p.gate.Add(^uint64(0))
	if p.waiting.Load() == 1 && p.waiting.CompareAndSwap(1, 0) {
		p.wake <- struct{}{}
	}
}

// await returns when the gate belongs to another task than last: it spins first and then parks.
func (w *worker) await(gate *counter, last uint64) {
	// A start that is held up may wake the worker one task early.
	for !gate.spin(^uint64(gateTask-1), last*gateTask, false) {
		w.parked.Store(1)
		if gate.Load()/gateTask != last && w.parked.CompareAndSwap(1, 0) {
			return
		}
		<-w.wake
	}
}

// spin loads c until its masked bits equal the value, or differ from it, for spinTime at most; it reports whether they did.
func (c *counter) spin(mask, value uint64, equal bool) bool {
	return c.spinBy(time.Now, mask, value, equal)
}

// spinBy is spin with a clock.
func (c *counter) spinBy(now func() time.Time, mask, value uint64, equal bool) bool {
	for range spinRound {
		if (c.Load()&mask == value) == equal {
			return true
		}
	}
	start := now()
	for spins := 1; ; spins++ {
		if (c.Load()&mask == value) == equal {
			return true
		}
		if spins%spinRound == 0 && (spins >= spinLooks*spinRound || now().Sub(start) > spinTime) {
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

// Package engine runs many generations over one model: it schedules, runs a pass, samples and emits, and knows only
// token ids. Text belongs to its callers.
//
// A pass carries the next token of every decoding request and a chunk of the prompts that wait (continuous batching
// with chunked prefill). Law 1 makes the batching invisible: a request's logits do not depend on its neighbours.
package engine

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// Engine owns a model, its KV cache and the goroutine that steps them. Safe for concurrent use.
type Engine struct {
	model      *model.Model
	cache      *kvcache.Cache
	pool       *tensor.Pool
	opts       Options
	contextLen int
	idleBlocks int // free KV blocks without a request
	forward    func(*model.Batch) (tensor.F32, error)
	now        func() time.Time  // for what decides: how long passes and drafting take
	samples    *sample.Workspace // of the samplers, unless the chooser's workers have their own

	mu     sync.Mutex
	wake   *sync.Cond
	queue  []*run           // waiting, in order of priority and arrival
	calls  []func(run bool) // to run between passes; false: the engine is closed
	closed bool
	order  uint64

	active    []*run // admitted, touched by the loop only
	nSearches int    // beam searches that may hold blocks
	searches  searches
	held      int // sequences that other goroutines copy; see hold
	holders   sync.WaitGroup
	walked    []*run // what running returned
	decoding  []*run // of the current pass
	readers   []*run // the same, in the order in which their draft models read
	starved   bool   // the last pass had no room for a prompt
	turns     uint64 // tokens of decoding requests that passes carried
	forks     []*run // of the current item
	rounds    []drafter.Round
	shown     drafter.Tree // of the observer that is called
	plan      plan
	chooser   chooser
	passes    passStats
	control   control
	beamPlans beamPlans

	specTotals  SpecStats        // guarded by mu
	draftCounts []drafter.Counts // (parts) guarded by mu, written by the loop: those of each drafter after its last round
	broken      error            // guarded by mu: why there are no answers any more
	done        chan struct{}
}

// Open loads the model at path (a GGUF file or a safetensors folder) and starts the engine.
func Open(path string, o Options) (*Engine, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	pool := tensor.NewPool(o.Threads)
	context := 0
	check := func(c model.Config) (err error) {
		if context, err = o.contextFor(c.ContextLen); err == nil && o.Check != nil {
			err = o.Check(c, context)
		}
		return err
	}
	m, err := model.Load(path, model.Options{
		F32: o.F32, Pool: pool, MaxBatch: o.Chunk, Progress: o.Progress, Check: check, Stop: o.Stop, TilesDir: o.TilesDir, Note: o.Note,
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	e := &Engine{
		model: m, pool: pool, opts: o, contextLen: context, done: make(chan struct{}), forward: m.Forward, now: time.Now,
		samples: sample.NewWorkspace(m.Config().Vocab),
	}
	e.chooser = chooser{e: e, spaces: []*sample.Workspace{e.samples}}
	e.passes.target = o.StallTarget
	e.specTotals.makeRoom(o.Spec.NMax)
	e.wake = sync.NewCond(&e.mu)
	if err := e.size(); err != nil {
		m.Close()
		pool.Close()
		return nil, err
	}
	go e.loop()
	return e, nil
}

// size makes the KV cache and the drafter.
func (e *Engine) size() error {
	cfg, err := e.cacheConfig(blocksFor(cmp.Or(e.opts.KVTokens, e.contextLen)))
	if err != nil {
		return err
	}
	cache, err := kvcache.New(cfg)
	if err != nil {
		return err
	}
	e.cache, e.idleBlocks = cache, cache.FreeBlocks()
	e.opts.NoPrefix = e.opts.NoPrefix || e.encodes()
	err, _ = e.guarded(func() error {
		err := e.openDrafter()
		if err == nil {
			e.newController()
		}
		return err
	})
	if err != nil {
		cache.Close()
	}
	return err
}

// cacheConfig is the KV cache that the options ask for. Layers with a window get what all running requests can hold of it,
// which in a long context is much less than the rest needs.
func (e *Engine) cacheConfig(blocks int) (kvcache.Config, error) {
	cfg := e.model.CacheConfig(blocks)
	for _, f := range []struct {
		flag, value string
		eight       *bool
	}{{"cache type k", e.opts.CacheTypeK, &cfg.K8}, {"cache type v", e.opts.CacheTypeV, &cfg.V8}} {
		switch f.value {
		case "", "f16":
		case "q8_0":
			*f.eight = true
		default:
			return cfg, fmt.Errorf("%s: %q, want f16 or q8_0", f.flag, f.value)
		}
	}
	if eight := cfg.K8 || cfg.V8; eight && (e.opts.F32 || e.model.Config().Arch == "t5") {
		return cfg, fmt.Errorf("cache type q8_0: not with %s and float32 %v", e.model.Config().Arch, e.opts.F32)
	}
	cfg.Contiguous = e.opts.Contiguous
	window, full := 0, false
	for _, w := range cfg.Windows {
		window, full = max(window, w), full || w <= 0
	}
	if window > 0 && full {
		held := blocksFor(window+kvcache.Slack+maxGuesses) + 3
		cfg.WindowBlocks = min(blocks, e.opts.MaxRunning*held+blocksFor(e.opts.Chunk))
	}
	return cfg, nil
}

// Model returns the loaded model, for its configuration and sizes.
func (e *Engine) Model() *model.Model { return e.model }

// ContextLen returns how many tokens a request may hold.
func (e *Engine) ContextLen() int { return e.contextLen }

// Spec returns how the engine speculates; without a Drafter it does not.
func (e *Engine) Spec() SpecOptions { return e.opts.Spec }

// StallTarget returns how long a pass may take that carries prompts beside running answers.
func (e *Engine) StallTarget() time.Duration { return e.opts.StallTarget }

// Threads returns how many workers share a pass.
func (e *Engine) Threads() int { return e.opts.Threads }

// Close ends every request with ErrClosed and frees everything, also when the drafter or the model reports an error.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.closed = true
	e.wake.Broadcast()
	e.mu.Unlock()
	<-e.done
	e.holders.Wait()
	var err error
	if d := e.opts.Spec.Drafter; d != nil {
		err, _ = e.guarded(d.Close)
	}
	e.control.calibration.end()
	e.cache.Close()
	e.pool.Close()
	return errors.Join(err, e.model.Close())
}

// loop steps while there is work and sleeps while there is none.
func (e *Engine) loop() {
	defer close(e.done)
	debug.SetPanicOnFault(true) // drafters read the target's weights too
	if e.opts.Spec.Cores != nil {
		tensor.Confine(e.opts.Spec.Cores)
	}
	for {
		e.mu.Lock()
		for len(e.queue) == 0 && len(e.active) == 0 && len(e.calls) == 0 && !e.closed {
			e.checkIdle()
			e.wake.Wait()
		}
		closed := e.closed
		e.mu.Unlock()
		if closed {
			e.answerCalls(false)
			e.abort(ErrClosed)
			return
		}
		e.answerCalls(true)
		e.check(false)
		if !e.Step() {
			time.Sleep(pauseTime)
		}
		e.check(false)
	}
}

// pauseTime is how long the loop waits for readers when every running answer is paused.
const pauseTime = time.Millisecond

// checkIdle verifies, when the options ask for it, that nothing is left of requests that have ended.
func (e *Engine) checkIdle() {
	if !e.opts.SelfCheck || e.nSearches > 0 || e.held > 0 {
		return
	}
	e.check(true)
	if free := e.cache.FreeBlocks(); free != e.idleBlocks {
		panic(fmt.Sprintf("engine: %d of %d KV blocks free with no request running", free, e.idleBlocks))
	}
}

// check verifies the caches when the options ask for it.
func (e *Engine) check(idle bool) {
	if !e.opts.SelfCheck {
		return
	}
	if err := e.cache.CheckIntegrity(); err != nil {
		panic(err)
	}
	if c, ok := e.opts.Spec.Drafter.(drafter.Checker); ok {
		if err := c.Check(idle); err != nil {
			panic(err)
		}
	}
}

// Step runs one pass: the due requests are admitted, their tokens scheduled, run, sampled and emitted. It reports false
// when no request could run. It belongs to the engine's loop.
func (e *Engine) Step() bool {
	e.reap()
	e.admit()
	began := e.now()
	p := e.schedule()
	if len(p.batch.Tokens) == 0 {
		return false
	}
	scheduled := e.now()
	logits, err := e.forward(&p.batch)
	ran := e.now()
	if err != nil {
		e.fail(p, err)
		return true
	}
	e.postprocess(p, logits)
	end := e.now()
	e.passes.add(p, scheduled.Sub(began), ran.Sub(scheduled), end.Sub(ran))
	e.passed(p, end.Sub(scheduled))
	e.calibrate()
	return true
}

package engine

import (
	"slices"
	"time"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/model"
)

const (
	// calibrationTime bounds what the calibration may take in all.
	calibrationTime = 400 * time.Millisecond
	// calibrationShare of the time of decoding is what it may take at any time where guesses pay, and idleShare where they do
	// not: short answers are not to pay for long ones, nor those that gain nothing for what might be gained.
	calibrationShare, idleShare = 0.02, 0.005
)

// calibration measures T(M) for widths that rounds have not measured by then, on a sequence of its own, between passes of
// speculating requests.
type calibration struct {
	next     int // width that comes next
	spent    time.Duration
	decoding time.Duration // of the passes of answers so far
	ended    bool
	cache    *kvcache.Cache
}

// calibrate measures the next width, when a request runs that speculates and there is one left.
func (e *Engine) calibrate() {
	k := &e.control.calibration
	speculates := func(r *run) bool { return r.spec.session != nil }
	if e.control.c == nil || k.ended || !slices.ContainsFunc(e.active, speculates) {
		return
	}
	c := e.control.c
	for k.next < len(drafter.CalibrationWidths) && c.Measured(drafter.CalibrationWidths[k.next]) {
		k.next++
	}
	if k.next == len(drafter.CalibrationWidths) || k.spent > calibrationTime {
		k.end()
		return
	}
	e.control.mu.Lock()
	width, share := drafter.CalibrationWidths[k.next], idleShare
	if _, pays := c.Expected(); pays {
		width, share = min(width, 8), calibrationShare // what is not measured is taken to be dear
	}
	price := float64(2 * c.PassSeconds(width))
	e.control.mu.Unlock()
	if k.spent.Seconds()+price > share*k.decoding.Seconds() {
		return
	}
	if e.measureNext() != nil {
		k.end()
	}
}

// end frees what the calibration holds.
func (k *calibration) end() {
	if k.ended = true; k.cache != nil {
		k.cache.Close()
		k.cache = nil
	}
}

// measureNext runs a pass of the next width twice, and the shorter one counts: a warm cache is what decoding will find, and
// a shared machine only ever adds.
func (e *Engine) measureNext() error {
	k := &e.control.calibration
	if k.cache == nil {
		cfg, err := e.cacheConfig(blocksFor(slices.Max(drafter.CalibrationWidths)))
		if err != nil {
			return err
		}
		cfg.Contiguous = false
		if k.cache, err = kvcache.New(cfg); err != nil {
			return err
		}
	}
	n := drafter.CalibrationWidths[k.next]
	if k.next++; n > e.opts.Chunk {
		return nil
	}
	seq := k.cache.NewSeq()
	defer seq.Free()
	if err := seq.Reserve(n); err != nil {
		return err
	}
	b := model.Batch{Tokens: make([]int32, n), Spans: []model.Span{{Seq: seq, N: n}}}
	for i := range n {
		b.Logits = append(b.Logits, int32(i))
	}
	var best time.Duration
	for range 2 {
		e.reap() // who has left does not wait for these passes
		start := e.now()
		if _, err := e.forward(&b); err != nil {
			return err
		}
		took := e.now().Sub(start)
		if k.spent += took; best == 0 || took < best {
			best = took
		}
	}
	e.control.mu.Lock()
	e.control.c.Calibrate(n, best.Seconds())
	e.control.mu.Unlock()
	return nil
}

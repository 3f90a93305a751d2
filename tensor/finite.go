package tensor

import (
	"math"
	"sync/atomic"
)

const (
	topsBlock  = 128 // floats that the kernel behind Finite sums up in one result
	topsBlocks = 64  // results at a time
	infBits32  = 0x7f800000
)

// finiteTask looks for values that are no numbers.
type finiteTask struct {
	x       []float32
	kernels *kernelSet
	tops    []topsOfWorker
	bad     atomic.Bool
}

// topsOfWorker is a worker's results, on cache lines of their own.
type topsOfWorker struct {
	tops [topsBlocks]float32
	_    [64]byte
}

// Finite says whether all values are numbers.
func (c *CPU) Finite(x []float32) bool {
	t := &c.finite
	t.x = x
	t.bad.Store(false)
	c.run(t, len(x))
	return !t.bad.Load()
}

// Do looks at a worker's share.
func (t *finiteTask) Do(worker, nWorkers int) {
	lo, hi := share(ceilDiv(len(t.x), topsBlock), worker, nWorkers)
	if x := t.x[lo*topsBlock : min(hi*topsBlock, len(t.x))]; !t.kernels.finite(x, &t.tops[worker].tops) {
		t.bad.Store(true)
	}
}

func (k *kernelSet) finite(x []float32, tops *[topsBlocks]float32) bool {
	const run = topsBlock * topsBlocks
	for len(x) >= topsBlock && k.tops != nil {
		n := min(len(x), run) / topsBlock
		if k.tops(&tops[0], &x[0], n) >= infBits32 {
			return false
		}
		x = x[n*topsBlock:]
	}
	for _, v := range x {
		if math.Float32bits(v)&infBits32 == infBits32 {
			return false
		}
	}
	return true
}

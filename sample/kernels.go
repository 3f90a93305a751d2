package sample

import (
	"fmt"
	"math"

	"quickdraft/asm/cpu"
	"quickdraft/internal/detmath"
)

// blockSize is the number of entries of a row that the kernels sum up in one result.
const blockSize = 128

func nBlocks(n int) int { return (n + blockSize - 1) / blockSize }

// kernelSet is the assembly of the trips over a row of logits at one instruction set level. The functions count in whole
// blocks (widen in runs of 16); methods of the set do the rest in Go, and everything where a function is nil. The Go loops
// define the bits.
type kernelSet struct {
	level cpu.Level

	tops      func(tops, x *float32, n int) uint32
	tops64    func(tops, x *float64, n int)
	widen     func(dst *float64, x *float32, n int)
	expSums   func(w, sums *float64, x *float32, table *float64, n int, top, inv float64)
	expSums64 func(w, sums, x, table *float64, n int, top, inv float64)

	atLeast   func(bits *uint64, x *float32, n int, low float32)
	atLeast64 func(bits *uint64, x *float64, n int, low float64)
	sumWhere  func(sums, w, x *float64, n int, low float64)

	surprise   func(lanes *float64, x *float32, w *float64, n int, top, inv float64)
	surprise64 func(lanes, x, w *float64, n int, top, inv float64)
	nearness   func(keys, x *float64, n int, top, inv, logSum, entropy float64) float64
	forbid     func(logit, w, keys *float64, n int, low float64)
}

// kernelSets lists the sets, best level first, the Go loops last.
var kernelSets = append(assembly(), &kernelSet{level: cpu.Go})

// active are the kernels of this machine.
var active = pickKernels()

// pickKernels returns the first set that may run here.
func pickKernels() *kernelSet {
	for _, k := range kernelSets {
		if cpu.Active(k.level) {
			return k
		}
	}
	panic(fmt.Sprintf("sample: no kernels for level %v", cpu.Best()))
}

// Bit patterns of float32 without the sign.
const (
	absMask = 0x7fffffff
	infBits = 0x7f800000 // everything above is NaN
)

// whole is the number of whole runs of n entries if the set has the kernel, and 0 otherwise.
func whole(has bool, n, run int) int {
	if !has {
		return 0
	}
	return n / run
}

// topsOf sets tops to the highest entries of the blocks of x and returns the largest bit pattern of all without signs. NaN
// is passed over.
func (k *kernelSet) topsOf(tops, x []float32) (bits uint32) {
	n := whole(k.tops != nil, len(x), blockSize)
	if n > 0 {
		bits = k.tops(&tops[0], &x[0], n)
	}
	tops, x = tops[n:], x[n*blockSize:]
	goTops(tops, x)
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&absMask)
	}
	return bits
}

func (k *kernelSet) tops64Of(tops, x []float64) {
	n := whole(k.tops64 != nil, len(x), blockSize)
	if n > 0 {
		k.tops64(&tops[0], &x[0], n)
	}
	goTops(tops[n:], x[n*blockSize:])
}

func goTops[T float32 | float64](tops, x []T) {
	for b := range nBlocks(len(x)) {
		top := T(math.Inf(-1))
		for _, v := range x[b*blockSize : min((b+1)*blockSize, len(x))] {
			if v > top {
				top = v
			}
		}
		tops[b] = top
	}
}

const widenRun = 16

func (k *kernelSet) widened(dst []float64, x []float32) {
	n := whole(k.widen != nil, len(x), widenRun)
	if n > 0 {
		k.widen(&dst[0], &x[0], n)
	}
	for i, v := range x[n*widenRun:] {
		dst[n*widenRun+i] = float64(v)
	}
}

// weights sets w to e^((x-top)*inv) and sums to the sums of its blocks.
func (k *kernelSet) weights(w, sums []float64, x []float32, top, inv float64) {
	n := whole(k.expSums != nil, len(x), blockSize)
	if n > 0 {
		k.expSums(&w[0], &sums[0], &x[0], detmath.ExpSumTable(), n, top, inv)
	}
	goWeights(w[n*blockSize:], sums[n:], x[n*blockSize:], top, inv)
}

func (k *kernelSet) weights64(w, sums, x []float64, top, inv float64) {
	n := whole(k.expSums64 != nil, len(x), blockSize)
	if n > 0 {
		k.expSums64(&w[0], &sums[0], &x[0], detmath.ExpSumTable(), n, top, inv)
	}
	goWeights(w[n*blockSize:], sums[n:], x[n*blockSize:], top, inv)
}

func goWeights[T float32 | float64](w, sums []float64, x []T, top, inv float64) {
	for b := range nBlocks(len(x)) {
		lo, hi := b*blockSize, min((b+1)*blockSize, len(x))
		sums[b] = detmath.ExpSum(w[lo:hi], x[lo:hi], top, inv)
	}
}

// mask says of the entries of a block which are meant: bit i%64 of word i/64.
type mask [blockSize / 64]uint64

// atLeast32 marks the entries of a block, x, that are low or more.
func (k *kernelSet) atLeast32(m *mask, x []float32, low float32) {
	if k.atLeast != nil && len(x) == blockSize {
		k.atLeast(&m[0], &x[0], 1, low)
		return
	}
	goAtLeast(m, x, low)
}

func (k *kernelSet) atLeast64Of(m *mask, x []float64, low float64) {
	if k.atLeast64 != nil && len(x) == blockSize {
		k.atLeast64(&m[0], &x[0], 1, low)
		return
	}
	goAtLeast(m, x, low)
}

func goAtLeast[T float32 | float64](m *mask, x []T, low T) {
	*m = mask{}
	for i, v := range x {
		if v >= low {
			m[i/64] |= 1 << (i % 64)
		}
	}
}

// sumsWhere sets sums to those of each block's w whose x is low or more, in the order of detmath.Sum.
func (k *kernelSet) sumsWhere(sums, w, x []float64, low float64) {
	n := whole(k.sumWhere != nil, len(x), blockSize)
	if n > 0 {
		k.sumWhere(&sums[0], &w[0], &x[0], n, low)
	}
	for b := n; b < nBlocks(len(x)); b++ {
		lo, hi := b*blockSize, min((b+1)*blockSize, len(x))
		sums[b] = detmath.SumWhere(w[lo:hi], x[lo:hi], low)
	}
}

// forbidden gives -Inf and no weight to the entries whose key is not low or more.
func (k *kernelSet) forbidden(logit, w, keys []float64, low float64) {
	n := whole(k.forbid != nil, len(keys), blockSize)
	if n > 0 {
		k.forbid(&logit[0], &w[0], &keys[0], n, low)
	}
	for i := n * blockSize; i < len(keys); i++ {
		if !(keys[i] >= low) {
			logit[i], w[i] = negInf, 0
		}
	}
}

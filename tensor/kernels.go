package tensor

import (
	"fmt"
	"math"

	"quickdraft/asm/cpu"
)

// kernelSet is the assembly of the operations at one instruction set level. The functions count in runs of 16 floats;
// methods of the set do the rest in Go, and everything where a function is nil. The Go loops define the bits.
type kernelSet struct {
	level cpu.Level

	add        func(dst, a *float32, n int)
	scale      func(dst *float32, n int, s float32)
	divide     func(dst, x *float32, n int, by float32)
	silu, gelu func(dst, gate, up *float32, n int)
	softcap    func(dst *float32, n int, cap float32)
	sumSquares func(lanes, x *float32, n int)
	mulWeights func(dst, x, w *float32, n int, inv float32)
	rotate     func(lo, hi, cos, sin *float32, n int)
	softmax    func(scores *float32, step, n int, lanes *float32, scale float32)

	// by number of queries, up to the level's most; nil at level Go
	scores  []func(dst, q *float32, k *uint16, blocks *int32, nBlocks, nStored, blockStride, dim int)
	addRows []func(dst *float32, dstStride int, e *float32, eStep, lane int, v, ahead *uint16, vStride, nRows, n int)

	scoresF32  []func(dst, q, k *float32, blocks *int32, nBlocks, nStored, blockStride, dim int)
	addRowsF32 []func(dst *float32, dstStride int, e *float32, eStep, lane int, v, ahead *float32, vStride, nRows, n int)

	tops func(tops, x *float32, n int) uint32 // counts in blocks of 128

	decodeKeys8, decodeValues8 func(dst *float32, codes *int8, scales *uint16, dim int)
	halves                     func(dst *float32, src *uint16, n int)
	toHalves                   func(dst *uint16, src *float32, n int)
}

// laneSums is the memory of 16 partial sums, a cache line of its own.
type laneSums struct {
	sums [Lanes]float32
	_    [64]byte
}

// kernelSets lists the sets, best level first, the Go loops last.
var kernelSets = append(assembly(), &kernelSet{level: cpu.Go})

// pickKernels returns the first set that may run here.
func pickKernels() *kernelSet {
	for _, k := range kernelSets {
		if cpu.Active(k.level) {
			return k
		}
	}
	panic(fmt.Sprintf("tensor: no kernels for level %v", cpu.Best()))
}

// whole is the number of runs of 16 of n floats if the set has the kernel, and 0 otherwise.
func whole(has bool, n int) int {
	if !has {
		return 0
	}
	return n / Lanes
}

func (k *kernelSet) addTo(dst, a []float32) {
	a = a[:len(dst)]
	n := whole(k.add != nil, len(dst))
	if n > 0 {
		k.add(&dst[0], &a[0], n)
	}
	addTo(dst[n*Lanes:], a[n*Lanes:])
}

func (k *kernelSet) scaleBy(dst []float32, s float32) {
	n := whole(k.scale != nil, len(dst))
	if n > 0 {
		k.scale(&dst[0], n, s)
	}
	for i := n * Lanes; i < len(dst); i++ {
		dst[i] *= s
	}
}

// divideBy is dst = x/by.
func (k *kernelSet) divideBy(dst, x []float32, by float32) {
	x = x[:len(dst)]
	n := whole(k.divide != nil, len(dst))
	if n > 0 {
		k.divide(&dst[0], &x[0], n, by)
	}
	for i := n * Lanes; i < len(dst); i++ {
		dst[i] = x[i] / by
	}
}

func (k *kernelSet) siluMul(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	n := whole(k.silu != nil, len(dst))
	if n > 0 {
		k.silu(&dst[0], &gate[0], &up[0], n)
	}
	siluMul(dst[n*Lanes:], gate[n*Lanes:], up[n*Lanes:])
}

func (k *kernelSet) geluTanhMul(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	n := whole(k.gelu != nil, len(dst))
	if n > 0 {
		k.gelu(&dst[0], &gate[0], &up[0], n)
	}
	geluTanhMul(dst[n*Lanes:], gate[n*Lanes:], up[n*Lanes:])
}

func (k *kernelSet) softcapAll(dst []float32, cap float32) {
	n := whole(k.softcap != nil, len(dst))
	if n > 0 {
		k.softcap(&dst[0], n, cap)
	}
	softcap(dst[n*Lanes:], cap)
}

// rmsNorm is one row of RMSNorm; lanes is memory.
func (k *kernelSet) rmsNorm(dst, x, w []float32, eps float32, lanes *laneSums) {
	clear(lanes.sums[:])
	n := whole(k.sumSquares != nil, len(x))
	if n > 0 {
		k.sumSquares(&lanes.sums[0], &x[0], n)
	}
	sum := sumSquares(&lanes.sums, x[n*Lanes:])
	mean := sum / float32(len(x))
	inv := 1 / float32(math.Sqrt(float64(mean+eps)))
	x, w = x[:len(dst)], w[:len(dst)]
	n = whole(k.mulWeights != nil, len(x))
	if n > 0 {
		k.mulWeights(&dst[0], &x[0], &w[0], n, inv)
	}
	mulWeights(dst[n*Lanes:], x[n*Lanes:], w[n*Lanes:], inv)
}

// rotatePairs turns the pairs (x[i], x[i+half]) by the angles whose cosines and sines are given.
func (k *kernelSet) rotatePairs(x, cosSin []float32) {
	half := len(x) / 2
	lo, hi := x[:half], x[half:][:half]
	cos, sin := cosSin[:half], cosSin[half:][:half]
	n := whole(k.rotate != nil, half)
	if n > 0 {
		k.rotate(&lo[0], &hi[0], &cos[0], &sin[0], n)
	}
	rotate(lo[n*Lanes:], hi[n*Lanes:], cos[n*Lanes:], sin[n*Lanes:])
}

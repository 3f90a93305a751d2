package tensor

import "quickdraft/quant"

// halves converts every binary16 bit pattern: 256 KiB that live in the L2 cache, one load a value where bit tricks take
// seven operations.
var halves = func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for i := range t {
		t[i] = quant.HalfToFloat(uint16(i))
	}
	return t
}()

// fromHalves converts len(src) values.
func fromHalves(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = halves[h]
	}
}

// bestKernels are those of the best level that may run here, for what needs no CPU.
var bestKernels = pickKernels()

// ToHalves rounds len(src) values to float16, ties to even.
func ToHalves(dst []uint16, src []float32) { bestKernels.roundToHalves(dst, src) }

func (k *kernelSet) roundToHalves(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := whole(k.toHalves != nil, len(src))
	if n > 0 {
		k.toHalves(&dst[0], &src[0], n)
	}
	for i := n * Lanes; i < len(src); i++ {
		dst[i] = quant.FloatToHalf(src[i])
	}
}

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

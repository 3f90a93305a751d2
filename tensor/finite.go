package tensor

import "math"

const (
	topsBlock  = 128 // floats that the kernel behind Finite sums up in one result
	topsBlocks = 64  // results at a time
	infBits32  = 0x7f800000
)

// Finite says whether all values are numbers.
func (c *CPU) Finite(x []float32) bool {
	const run = topsBlock * topsBlocks
	for len(x) >= topsBlock && c.kernels.tops != nil {
		n := min(len(x), run) / topsBlock
		if c.kernels.tops(&c.tops[0], &x[0], n) >= infBits32 {
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

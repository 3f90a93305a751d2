package quant

import (
	"unsafe"

	"quickdraft/asm/cpu"
)

// QuantizeFunc is QuantizeRow for n blocks of 32 columns, with pointers instead of slices.
type QuantizeFunc func(dst *byte, x *float32, n int)

// Quantizer is one implementation of QuantizeRow.
type Quantizer struct {
	Level    cpu.Level
	Name     string // package.Function of a kernel, "go.Quantize" for the reference
	Quantize QuantizeFunc
}

var quantizers = append(quantizeKernels(), Quantizer{Level: cpu.Go, Name: "go.Quantize", Quantize: quantizeGo})

// quantize is the first implementation that may run here.
var quantize = func() QuantizeFunc {
	for _, q := range quantizers {
		if cpu.Active(q.Level) {
			return q.Quantize
		}
	}
	return quantizeGo
}()

// Quantizers returns the implementations of QuantizeRow, best level first, the Go reference last. The slice is shared: do
// not change it.
func Quantizers() []Quantizer { return quantizers }

// QuantizeRow quantises one activation row; len(x) is a multiple of 32 and dst has ActBytes(len(x)) bytes.
func QuantizeRow(dst []byte, x []float32) {
	if len(x)%ActBlockCols != 0 {
		panic("quant: activation row is not a multiple of 32 columns")
	}
	if len(x) == 0 {
		return
	}
	dst = dst[:ActBytes(len(x))]
	quantize(&dst[0], &x[0], len(x)/ActBlockCols)
}

func quantizeGo(dst *byte, x *float32, n int) {
	blocks, values := unsafe.Slice(dst, n*ActBlockBytes), unsafe.Slice(x, n*ActBlockCols)
	for b := range n {
		quantizeBlock(blocks[b*ActBlockBytes:][:ActBlockBytes], values[b*ActBlockCols:][:ActBlockCols])
	}
}

package quant

import (
	"unsafe"

	"quickdraft/asm/cpu"
)

// QuantizeFunc is QuantizeStrided for n blocks of 32 columns, with pointers instead of slices.
type QuantizeFunc func(dst *byte, dstStride int, x *float32, n int)

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

// QuantizeRow quantises one activation row; len(x) is a multiple of 32 and dst has ActBytes(len(x)) bytes.
func QuantizeRow(dst []byte, x []float32) { QuantizeStrided(dst, ActBlockBytes, x) }

// QuantizeStrided is QuantizeRow with dstStride bytes from block to block: rows of a pass lie block beside block.
func QuantizeStrided(dst []byte, dstStride int, x []float32) {
	if len(x)%ActBlockCols != 0 {
		panic("quant: activation row is not a multiple of 32 columns")
	}
	if len(x) == 0 {
		return
	}
	n := len(x) / ActBlockCols
	dst = dst[:(n-1)*dstStride+ActBlockBytes]
	quantize(&dst[0], dstStride, &x[0], n)
}

func quantizeGo(dst *byte, dstStride int, x *float32, n int) {
	if n == 0 {
		return
	}
	blocks, values := unsafe.Slice(dst, (n-1)*dstStride+ActBlockBytes), unsafe.Slice(x, n*ActBlockCols)
	for b := range n {
		quantizeBlock(blocks[b*dstStride:][:ActBlockBytes], values[b*ActBlockCols:][:ActBlockCols])
	}
}

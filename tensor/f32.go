// Package tensor holds packed weight matrices, activation buffers, the worker pool and the operations of a forward pass.
//
// Every operation gives the same bits whatever the number of tokens in the call, the number of workers or the
// instruction set. Each fixes one order of float32 operations; a product that is added to something is written
// float32(x*y) + z, which no compiler may turn into a fused multiply-add.
package tensor

// Lanes is the number of independent partial sums of every reduction: index i (or position i) goes to lane i mod Lanes,
// and the lanes are added in a fixed tree (see sumLanes).
const Lanes = 16

// F32 is a row-major matrix of float32, one row a token.
type F32 struct {
	Data       []float32 // (Rows, Cols)
	Rows, Cols int
}

// NewF32 returns a zeroed matrix on the heap.
func NewF32(rows, cols int) F32 {
	return F32{Data: make([]float32, rows*cols), Rows: rows, Cols: cols}
}

// Row returns row i, (Cols).
func (x F32) Row(i int) []float32 {
	return x.Data[i*x.Cols : (i+1)*x.Cols : (i+1)*x.Cols]
}

// Head returns the first n rows; it shares memory with x.
func (x F32) Head(n int) F32 {
	return F32{Data: x.Data[: n*x.Cols : n*x.Cols], Rows: n, Cols: x.Cols}
}

// sumLanes adds 16 partial sums in the fixed tree: (i)+(i+8), then (i)+(i+4), (i)+(i+2), (0)+(1).
func sumLanes(s *[Lanes]float32) float32 {
	for half := Lanes / 2; half > 0; half /= 2 {
		for i := range half {
			s[i] += s[i+half]
		}
	}
	return s[0]
}

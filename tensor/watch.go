package tensor

import "time"

// Watch looks on while a CPU works: statistics of activations, and where the time of passes goes. Without one, an
// operation compares a pointer with nil.
type Watch struct {
	// MatMul, if set, is called after each product with the matrix and its activations, (tokens, w.Cols), which it must
	// not keep.
	MatMul func(w *Mat, x F32)

	Products  time.Duration // spent in MatMuls, activation quantisation and biases included
	Attention time.Duration // spent in Attend
}

// SetWatch has w look on from now on; nil ends it. It must not be called during an operation.
func (c *CPU) SetWatch(w *Watch) { c.watch = w }

// begin is the time at which an operation begins, if someone looks on.
func (w *Watch) begin() time.Time {
	if w == nil {
		return time.Time{}
	}
	return time.Now()
}

// multiplied notes a MatMuls.
func (w *Watch) multiplied(began time.Time, t *matmulTask) {
	if w == nil {
		return
	}
	w.Products += time.Since(began)
	if w.MatMul != nil {
		for i := range t.nOut {
			w.MatMul(t.out[i].W, t.x)
		}
	}
}

// attended notes an Attend.
func (w *Watch) attended(began time.Time) {
	if w != nil {
		w.Attention += time.Since(began)
	}
}

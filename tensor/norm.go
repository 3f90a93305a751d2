package tensor

import "fmt"

// rowsTask does operations that need a whole row (or a whole head of a row) at a time.
type rowsTask struct {
	op      rowsOp
	dst, x  F32
	weight  []float32
	eps     float32
	headDim int
	kernels *kernelSet
	lanes   []laneSums // of each worker
	rope    *Rope
	table   *ropeTable
}

type rowsOp uint8

const (
	rowsNorm rowsOp = iota
	rowsNormHeads
	rowsRopeTable
	rowsRope
)

// RMSNorm is dst = x / sqrt(mean(x^2) + eps) * w, row by row; w is (Cols). dst may be x. The squares are summed in 16
// lanes (index mod 16) and the fixed tree; then one square root and one division.
func (c *CPU) RMSNorm(dst, x F32, w []float32, eps float32) {
	mustSame("RMSNorm", dst, x)
	if len(w) != x.Cols {
		panic(fmt.Sprintf("tensor: RMSNorm of %d columns with %d weights", x.Cols, len(w)))
	}
	c.rows = rowsTask{op: rowsNorm, dst: dst, x: x, weight: w, eps: eps}
	c.runRows(len(x.Data))
}

// RMSNormHeads norms every head of headDim columns on its own, in place; w is (headDim).
func (c *CPU) RMSNormHeads(x F32, headDim int, w []float32, eps float32) {
	mustHeads("RMSNormHeads", x, headDim)
	if len(w) != headDim {
		panic(fmt.Sprintf("tensor: RMSNormHeads of %d columns with %d weights", headDim, len(w)))
	}
	c.rows = rowsTask{op: rowsNormHeads, dst: x, x: x, weight: w, eps: eps, headDim: headDim}
	c.runRows(len(x.Data))
}

// runRows is run, but one row is never worth a second worker.
func (c *CPU) runRows(elements int) {
	c.rows.kernels, c.rows.lanes = c.kernels, c.lanes
	if c.rows.x.Rows == 1 {
		elements = 0
	}
	c.run(&c.rows, elements)
}

// Do does a worker's share of the rows.
func (t *rowsTask) Do(worker, nWorkers int) {
	lo, hi := share(t.x.Rows, worker, nWorkers)
	for i := lo; i < hi; i++ {
		switch t.op {
		case rowsNorm:
			t.kernels.rmsNorm(t.dst.Row(i), t.x.Row(i), t.weight, t.eps, &t.lanes[worker])
		case rowsNormHeads:
			row := t.x.Row(i)
			for ; len(row) > 0; row = row[t.headDim:] {
				t.kernels.rmsNorm(row[:t.headDim], row[:t.headDim], t.weight, t.eps, &t.lanes[worker])
			}
		case rowsRopeTable:
			t.table.fill(i, t.rope)
		case rowsRope:
			row, cosSin := t.x.Row(i), t.table.row(i)
			for ; len(row) > 0; row = row[t.headDim:] {
				t.kernels.rotatePairs(row[:t.rope.RotDim], cosSin)
			}
		}
	}
}

// mulWeights is dst = x*inv*w.
func mulWeights(dst, x, w []float32, inv float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	for i := range dst {
		dst[i] = float32(x[i]*inv) * w[i]
	}
}

// sumSquares adds x[i]*x[i] to lane i mod 16, then the lanes in the fixed tree.
func sumSquares(s *[Lanes]float32, x []float32) float32 {
	for ; len(x) >= Lanes; x = x[Lanes:] {
		v := (*[Lanes]float32)(x)
		for i := range s {
			s[i] += float32(v[i] * v[i])
		}
	}
	for i, v := range x {
		s[i] += float32(v * v)
	}
	return sumLanes(s)
}

func mustHeads(op string, x F32, headDim int) {
	if headDim < 1 || x.Cols%headDim != 0 {
		panic(fmt.Sprintf("tensor: %s of %d columns in heads of %d", op, x.Cols, headDim))
	}
}

package tensor

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"quickdraft/quant"
)

// Proj is one matrix of a MatMuls call.
type Proj struct {
	Dst  F32       // (tokens, W.Rows)
	W    *Mat      // (W.Rows, W.Cols)
	Bias []float32 // (W.Rows), added to every row; nil for none
}

// maxProj is the largest number of matrices in one MatMuls call.
const maxProj = 8

// blockBytes is the weight that a worker multiplies with all tokens before it goes on, when there are more tokens than
// one kernel takes: it stays in the L2 cache beside the activations.
const blockBytes = 256 << 10

// Bytes of weights that a worker takes at a time: enough that reading goes on in long streams, little enough that all
// workers end together (32 KiB are 1 to 2 microseconds of one core's share of the memory's bandwidth).
const (
	lowRun  = 32 << 10
	highRun = blockBytes
)

// serialBlocks is the number of activation blocks that the caller quantises alone: a block takes 10 to 20 ns, a barrier
// half a microsecond.
const serialBlocks = 96

// Activation blocks that a worker prepares at a time.
const (
	lowBlocks  = 16
	highBlocks = 1024
)

// MatMul is dst = x * w^T: dst is (tokens, w.Rows), x is (tokens, w.Cols).
func (c *CPU) MatMul(dst F32, w *Mat, x F32) {
	c.MatMuls(x, Proj{Dst: dst, W: w})
}

// MatMulSiLU is SiLUMul(gate, gate, up) and MatMuls(gate, out), in one task.
func (c *CPU) MatMulSiLU(gate, up F32, out Proj) {
	c.matMulGated("MatMulSiLU", flatSiLU, gate, up, out)
}

// MatMulGELUTanh is GELUTanhMul(gate, gate, up) and MatMuls(gate, out), in one task.
func (c *CPU) MatMulGELUTanh(gate, up F32, out Proj) {
	c.matMulGated("MatMulGELUTanh", flatGELU, gate, up, out)
}

func (c *CPU) matMulGated(name string, op flatOp, gate, up F32, out Proj) {
	mustSame(name, gate, up)
	c.mm.gate, c.mm.up = op, up.Data
	c.MatMuls(gate, out)
	c.mm.up = nil
}

// MatMuls multiplies several matrices with the same x, (tokens, Cols): activations are quantised once and the workers
// are woken once. Each result is a function of its row of x and of the matrix alone.
func (c *CPU) MatMuls(x F32, out ...Proj) {
	t, began := &c.mm, c.watch.begin()
	if len(out) > maxProj || x.Rows > c.maxTokens {
		panic(fmt.Sprintf("tensor: MatMuls of %d matrices and %d tokens, at most %d and %d", len(out), x.Rows, maxProj,
			c.maxTokens))
	}
	t.x, t.nOut, t.quantised, t.bytes = x, len(out), false, 0
	for i, p := range out {
		if p.W.Cols != x.Cols || p.Dst.Cols != p.W.Rows || p.Dst.Rows != x.Rows || p.Bias != nil && len(p.Bias) != p.W.Rows {
			panic(fmt.Sprintf("tensor: MatMuls of %q (%d x %d) with x (%d, %d) into (%d, %d), %d biases", p.W.Name, p.W.Rows,
				p.W.Cols, x.Rows, x.Cols, p.Dst.Rows, p.Dst.Cols, len(p.Bias)))
		}
		t.out[i] = p
		t.bytes += len(p.W.Tiles)
		t.quantised = t.quantised || !p.W.format.Float
	}
	if t.quantised && x.Rows*quant.ActBytes(x.Cols) > len(t.acts) {
		panic(fmt.Sprintf("tensor: MatMuls of (%d, %d), more than NewCPU was told", x.Rows, x.Cols))
	}
	t.splitTokens()
	t.shares.deal(t.bytes, lowRun, highRun)
	t.blocks = ceilDiv(x.Rows*x.Cols, quant.ActBlockCols)
	switch {
	case !t.quantised && t.up == nil:
		t.blocks = 0
	case t.up == nil && t.blocks <= serialBlocks:
		t.prepare(0, t.blocks)
		t.blocks = 0
	}
	t.activations.deal(t.blocks, lowBlocks, highBlocks)
	t.ready.Store(0)
	c.runAny(t, t.bytes*x.Rows)
	c.watch.multiplied(began, t)
}

// matmulTask is the work of one MatMuls call.
type matmulTask struct {
	kernels   *kernelSet
	x         F32
	out       [maxProj]Proj
	nOut      int
	bytes     int  // of all tiles
	quantised bool // some matrix takes int8 activations
	gate      flatOp
	up        []float32 // x is to become gate(x)*up first; nil for none
	shares    shares    // of the bytes

	blocks      int    // of 32 columns, over all rows, that the workers prepare before they multiply
	activations shares // of the blocks
	ready       atomic.Int64

	chunks  [2]chunk    // the token counts of the kernels in use
	acts    []byte      // for each kernel call: (Cols/32, its tokens, 64)
	scratch [][]float32 // a worker's output of a partial tile, (WideM, TileRows)
}

// chunk says that times kernels of m tokens each follow one another.
type chunk struct{ m, times int }

func (t *matmulTask) init(pool *Pool, maxTokens, maxCols int, kernels *kernelSet) {
	t.kernels = kernels
	t.shares.parts, t.activations.parts = make([]workerShare, pool.N()), make([]workerShare, pool.N())
	t.acts = make([]byte, maxTokens*quant.ActBytes(roundUp(maxCols, quant.ActBlockCols)))
	t.scratch = make([][]float32, pool.N())
	for i := range t.scratch {
		t.scratch[i] = make([]float32, quant.WideM*quant.TileRows)
	}
}

// splitTokens splits the tokens into wide kernels of 16 and one for the others.
func (t *matmulTask) splitTokens() {
	n := t.x.Rows
	wide, rest := n/quant.WideM, n%quant.WideM
	t.chunks = [2]chunk{{quant.WideM, wide}}
	if rest > 0 {
		t.chunks[1] = chunk{rest, 1}
	}
}

// chunkOf returns the first row and the rows of the kernel call that a row belongs to.
func (t *matmulTask) chunkOf(row int) (first, rows int) {
	for _, c := range t.chunks {
		if n := c.m * c.times; row >= first+n {
			first += n
			continue
		}
		return first + (row-first)/c.m*c.m, c.m
	}
	panic("tensor: no such row")
}

// Do prepares runs of activations, waits until all are ready, and multiplies runs of tiles until none is left.
func (t *matmulTask) Do(worker, _ int) {
	for {
		lo, hi, ok := t.activations.take(worker)
		if !ok {
			break
		}
		t.prepare(lo, hi)
		t.ready.Add(int64(hi - lo))
	}
	for spins := 1; t.ready.Load() < int64(t.blocks); spins++ {
		if spins%yieldRound == 0 {
			runtime.Gosched()
		}
	}
	for {
		lo, hi, ok := t.shares.take(worker)
		if !ok {
			return
		}
		t.multiplyBytes(lo, hi, t.scratch[worker])
	}
}

// multiplyBytes multiplies the tiles that begin in bytes [lo, hi) of all matrices, one after the other.
func (t *matmulTask) multiplyBytes(lo, hi int, scratch []float32) {
	for i := range t.nOut {
		w := t.out[i].W
		n := w.nTiles()
		tile0 := min(max(ceilDiv(lo, w.tileSize), 0), n)
		tile1 := min(max(ceilDiv(hi, w.tileSize), 0), n)
		lo, hi = lo-len(w.Tiles), hi-len(w.Tiles)
		if tile0 < tile1 {
			t.multiply(i, tile0, tile1, scratch)
		}
	}
}

// prepare gates and quantises blocks [lo, hi) of 32 columns, counted over all rows of x.
func (t *matmulTask) prepare(lo, hi int) {
	if t.up != nil {
		from, to := lo*quant.ActBlockCols, min(hi*quant.ActBlockCols, t.x.Rows*t.x.Cols)
		x := t.x.Data[from:to]
		if t.gate == flatSiLU {
			t.kernels.siluMul(x, x, t.up[from:to])
		} else {
			t.kernels.geluTanhMul(x, x, t.up[from:to])
		}
	}
	if !t.quantised {
		return
	}
	for perRow := t.x.Cols / quant.ActBlockCols; lo < hi; {
		row, from := lo/perRow, lo%perRow
		n := min(hi-lo, perRow-from)
		first, rows := t.chunkOf(row)
		at := (first*perRow + from*rows + row - first) * quant.ActBlockBytes
		quant.QuantizeStrided(t.acts[at:], rows*quant.ActBlockBytes, t.x.Row(row)[from*quant.ActBlockCols:][:n*quant.ActBlockCols])
		lo += n
	}
}

// multiply computes the rows of tiles [tile0, tile1) of matrix i for all tokens.
func (t *matmulTask) multiply(i, tile0, tile1 int, scratch []float32) {
	p := &t.out[i]
	row0, row1 := tile0*quant.TileRows, min(tile1*quant.TileRows, p.W.Rows)
	full := min(tile1, p.W.Rows/quant.TileRows) // tiles before the partial one
	if t.x.Rows <= quant.WideM {
		t.block(i, tile0, full)
	} else {
		for run := max(blockBytes/p.W.tileSize, 1); tile0 < full; tile0 += run {
			t.block(i, tile0, min(tile0+run, full))
		}
	}
	if full < tile1 {
		t.partial(i, scratch)
	}
	if p.Bias != nil {
		for r := range t.x.Rows {
			t.kernels.addTo(p.Dst.Row(r)[row0:row1], p.Bias[row0:row1])
		}
	}
}

// block runs the kernels of all tokens over whole tiles.
func (t *matmulTask) block(i, tile0, tile1 int) {
	p := &t.out[i]
	if tile0 >= tile1 {
		return
	}
	tiles := &p.W.Tiles[tile0*p.W.tileSize]
	row, stride := 0, p.Dst.Cols
	for _, c := range t.chunks {
		for range c.times {
			act, actStride := t.act(p.W, row, c.m)
			dst := &p.Dst.Data[row*stride+tile0*quant.TileRows]
			p.W.kernels[c.m](dst, stride, tiles, tile1-tile0, act, actStride, p.W.Cols/p.W.format.BlockSize)
			row += c.m
		}
	}
}

// partial computes the last tile of matrix i, of which only some rows exist, through scratch.
func (t *matmulTask) partial(i int, scratch []float32) {
	p := &t.out[i]
	row0 := p.W.Rows / quant.TileRows * quant.TileRows
	tiles := &p.W.Tiles[row0/quant.TileRows*p.W.tileSize]
	row := 0
	for _, c := range t.chunks {
		for range c.times {
			act, actStride := t.act(p.W, row, c.m)
			p.W.kernels[c.m](&scratch[0], quant.TileRows, tiles, 1, act, actStride, p.W.Cols/p.W.format.BlockSize)
			for m := range c.m {
				copy(p.Dst.Row(row + m)[row0:], scratch[m*quant.TileRows:(m+1)*quant.TileRows])
			}
			row += c.m
		}
	}
}

// act returns the activations of m rows from a row on, in the form and with the stride that the matrix's kernels take.
func (t *matmulTask) act(w *Mat, row, m int) (act *byte, stride int) {
	if w.format.Float {
		return &bytesOf(t.x.Row(row))[0], t.x.Cols * 4
	}
	return &t.acts[row*quant.ActBytes(t.x.Cols)], m * quant.ActBlockBytes
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

package tensor

import (
	"fmt"
	"math"
)

// keyRunBytes is how much of the keys all queries of a group meet before the next run: it stays in the L1 cache.
const keyRunBytes = 16 << 10

// attendKernels is attend with the level's kernels.
func (t *attendTask) attendKernels(w *attendWorker, s *KVSpan, kvHead int, pairs []attendPair, origin, slots int) {
	dim := t.p.HeadDim
	blocks := s.View.Blocks[(origin-s.View.First)/KVBlock : ceilDiv(slots-s.View.First, KVBlock)]
	t.mustHold(&s.View, blocks)
	t.score(w, s, kvHead, pairs, blocks)
	base := s.View.Len - s.N
	for i := range pairs {
		pairs[i].walkToPositions(origin, base)
		pairs[i].softmaxKernel(t.kernels, &t.p, origin, &w.lanes)
	}
	outs := w.outs[:len(pairs)*dim]
	clear(outs)
	size := dim * KVBlock
	for b, block := range blocks {
		at := (int(block)*t.p.KVHeads + kvHead) * size
		t.addBlock(w, pairs, t.valuesOf(w, &s.View, at, size), origin+b*KVBlock, origin, base)
	}
	for i := range pairs {
		t.kernels.divideBy(pairs[i].out, outs[i*dim:], pairs[i].sum)
	}
}

// kernelsRead reports whether the kernels read a view's format.
func (t *attendTask) kernelsRead(v *KVView) bool {
	return t.kernels.scores != nil && (v.V8.Codes == nil || t.p.HeadDim%Lanes == 0)
}

// mustHold panics when a block lies outside the store: kernels do not check.
func (t *attendTask) mustHold(v *KVView, blocks []int32) {
	stored := min(max(len(v.K), len(v.K32), len(v.K8.Codes)), max(len(v.V), len(v.V32), len(v.V8.Codes)))
	stored /= t.p.KVHeads * t.p.HeadDim * KVBlock
	for _, b := range blocks {
		if b < 0 || int(b) >= stored {
			panic(fmt.Sprintf("tensor: Attend of block %d, the layer stores %d", b, stored))
		}
	}
}

// score fills the pairs' scores of all blocks. Queries are turned to (dim, 16) so that one pointer reaches all. Keys in 8
// bits are decoded to float32 block by block.
func (t *attendTask) score(w *attendWorker, s *KVSpan, kvHead int, pairs []attendPair, blocks []int32) {
	dim := t.p.HeadDim
	for i := range pairs {
		for d, x := range pairs[i].q {
			w.queries[d*maxGroup+i] = x
		}
	}
	k, v, size := t.kernels, &s.View, dim*KVBlock
	switch {
	case v.K8.Codes != nil:
		for b, block := range blocks {
			codes, scales := v.K8.head((int(block)*t.p.KVHeads+kvHead)*size, size)
			k.decodeKeys8(&w.block[0], &codes[0], &scales[0], dim)
			scoreRuns(t, w, k.scoresF32, w.block, w.zero[:], b, len(pairs))
		}
	case v.K32 != nil:
		scoreRuns(t, w, k.scoresF32, v.K32[kvHead*size:], blocks, 0, len(pairs))
	default:
		scoreRuns(t, w, k.scores, v.K[kvHead*size:], blocks, 0, len(pairs))
	}
}

// scoreRuns scores n pairs against blocks of keys, the first of which is block number at of the group.
func scoreRuns[T uint16 | float32](t *attendTask, w *attendWorker, kernels []func(*float32, int, *float32, *T, *int32, int, int, int),
	keys []T, blocks []int32, at, nPairs int) {
	size := t.p.HeadDim * KVBlock
	chunk := t.chunk(nPairs)
	run := len(blocks)
	if chunk < nPairs {
		run = max(keyRunBytes/(2*size), 1)
	}
	for b := 0; b < len(blocks); b += run {
		n := min(run, len(blocks)-b)
		for i := 0; i < nPairs; i += chunk {
			kernels[min(chunk, nPairs-i)](&w.scores[i*w.stride+(at+b)*KVBlock], w.stride, &w.queries[i], &keys[0],
				&blocks[b], n, t.p.KVHeads*size, t.p.HeadDim)
		}
	}
}

// valueBlock is one head's values of a block, (16, dim), in float16 or float32.
type valueBlock struct {
	halves []uint16
	floats []float32
}

// valuesOf returns the values [at, at+size) of a view; those in 8 bits are decoded into the worker's block.
func (t *attendTask) valuesOf(w *attendWorker, v *KVView, at, size int) valueBlock {
	switch {
	case v.V8.Codes != nil:
		codes, scales := v.V8.head(at, size)
		t.kernels.decodeValues8(&w.block[0], &codes[0], &scales[0], t.p.HeadDim)
		return valueBlock{floats: w.block[:size]}
	case v.V32 != nil:
		return valueBlock{floats: v.V32[at : at+size]}
	}
	return valueBlock{halves: v.V[at : at+size]}
}

// chunk splits n queries into even parts that kernels take.
func (t *attendTask) chunk(n int) int {
	return ceilDiv(n, ceilDiv(n, len(t.kernels.addRows)-1))
}

// addBlock adds the visible values of one block, (16, dim), whose first slot is given. Neighbouring pairs that see the same
// positions share the kernel.
func (t *attendTask) addBlock(w *attendWorker, pairs []attendPair, block valueBlock, slot, origin, base int) {
	for i := 0; i < len(pairs); {
		lo, hi := pairs[i].run(slot, base)
		n := 1
		for i+n < len(pairs) {
			if l, h := pairs[i+n].run(slot, base); l != lo || h != hi {
				break
			}
			n++
		}
		if lo < hi {
			t.addRows(w, i, n, lo-origin, hi-lo, block, lo-slot)
		}
		i += n
	}
	for i := 0; i < len(pairs); {
		p := &pairs[i]
		n := 1
		for i+n < len(pairs) && pairs[i+n].row == p.row {
			n++
		}
		for ; p.walked < len(p.path) && base+int(p.path[p.walked]) < slot+KVBlock; p.walked++ {
			if pos := base + p.walked; pos >= p.lo {
				t.addRows(w, i, n, pos-origin, 1, block, base+int(p.path[p.walked])-slot)
			}
		}
		i += n
	}
}

// run is the visible positions of the block that lie in the slots of the same number.
func (p *attendPair) run(slot, base int) (lo, hi int) {
	end := p.end
	if p.path != nil {
		end = min(end, base)
	}
	return max(p.lo, slot), min(end, slot+KVBlock)
}

// addRows adds rows of values from the given one on to the outputs of n pairs from i on; at is the place of the first row's
// e in the scores.
func (t *attendTask) addRows(w *attendWorker, i, n, at, rows int, v valueBlock, row int) {
	if v.floats != nil {
		addRowRuns(t, w, t.kernels.addRowsF32, i, n, at, rows, v.floats[row*t.p.HeadDim:])
	} else {
		addRowRuns(t, w, t.kernels.addRows, i, n, at, rows, v.halves[row*t.p.HeadDim:])
	}
	if t.p.HeadDim%Lanes == 0 {
		return
	}
	for k := i; k < i+n; k++ {
		addRowTails(w.outs[k*t.p.HeadDim:(k+1)*t.p.HeadDim], w.scores[k*w.stride+at:][:rows], v, row)
	}
}

func addRowRuns[T uint16 | float32](t *attendTask, w *attendWorker, kernels []func(*float32, int, *float32, int, *T, int, int, int),
	i, n, at, rows int, v []T) {
	dim := t.p.HeadDim
	for chunk := t.chunk(n); n > 0; {
		m := min(chunk, n)
		kernels[m](&w.outs[i*dim], dim, &w.scores[i*w.stride+at], w.stride, &v[0], dim, rows, dim/Lanes)
		i, n = i+m, n-m
	}
}

// addRowTails is addRows for the columns after the last multiple of 16.
func addRowTails(out, e []float32, v valueBlock, row int) {
	for d := len(out) / Lanes * Lanes; d < len(out); d++ {
		for r, x := range e {
			at := (row+r)*len(out) + d
			if v.floats != nil {
				out[d] += float32(x * v.floats[at])
			} else {
				out[d] += float32(x * halves[v.halves[at]])
			}
		}
	}
}

// softmaxKernel is softmax of whole runs of 16 scores: hidden positions count as -Inf, whose e is 0 and leaves a sum as it
// was.
func (p *attendPair) softmaxKernel(k *kernelSet, params *AttnParams, origin int, lanes *laneSums) {
	lo, end := p.lo-origin, p.end-origin
	first, last := lo/Lanes*Lanes, roundUp(end, Lanes)
	scale := params.Scale
	if params.Softcap > 0 || !(scale > 0) { // -Inf must stay the smallest
		k.scaleBy(p.scores[lo:end], scale)
		scale = 1
	}
	if params.Softcap > 0 {
		k.softcapAll(p.scores[lo:end], params.Softcap)
	}
	hidden := float32(math.Inf(-1))
	for i := first; i < lo; i++ {
		p.scores[i] = hidden
	}
	for i := end; i < last; i++ {
		p.scores[i] = hidden
	}
	k.softmax(&p.scores[first], (last-first)/Lanes, &lanes.sums[0], scale)
	p.sum = sumLanes(&lanes.sums)
}

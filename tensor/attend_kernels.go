package tensor

import (
	"fmt"
	"math"
)

// keyRunBytes is how much of the keys all queries of a group meet before the next run: it stays in the L1 cache.
const keyRunBytes = 16 << 10

// attendKernels is attend with the level's kernels, for float16 keys and values.
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
		t.addBlock(w, pairs, s.View.V[at:at+size], origin+b*KVBlock, origin, base)
	}
	for i := range pairs {
		t.kernels.divideBy(pairs[i].out, outs[i*dim:], pairs[i].sum)
	}
}

// mustHold panics when a block lies outside the store: kernels do not check.
func (t *attendTask) mustHold(v *KVView, blocks []int32) {
	stored := min(len(v.K), len(v.V)) / (t.p.KVHeads * t.p.HeadDim * KVBlock)
	for _, b := range blocks {
		if b < 0 || int(b) >= stored {
			panic(fmt.Sprintf("tensor: Attend of block %d, the layer stores %d", b, stored))
		}
	}
}

// score fills the pairs' scores of all blocks. Queries are turned to (dim, 16) so that one pointer reaches all.
func (t *attendTask) score(w *attendWorker, s *KVSpan, kvHead int, pairs []attendPair, blocks []int32) {
	dim := t.p.HeadDim
	for i := range pairs {
		for d, x := range pairs[i].q {
			w.queries[d*maxGroup+i] = x
		}
	}
	size := dim * KVBlock
	keys := &s.View.K[kvHead*size]
	chunk := t.chunk(len(pairs))
	run := len(blocks)
	if chunk < len(pairs) {
		run = max(keyRunBytes/(2*size), 1)
	}
	for b := 0; b < len(blocks); b += run {
		n := min(run, len(blocks)-b)
		for i := 0; i < len(pairs); i += chunk {
			t.kernels.scores[min(chunk, len(pairs)-i)](&w.scores[i*w.stride+b*KVBlock], w.stride, &w.queries[i], keys,
				&blocks[b], n, t.p.KVHeads*size, dim)
		}
	}
}

// chunk splits n queries into even parts that kernels take.
func (t *attendTask) chunk(n int) int {
	return ceilDiv(n, ceilDiv(n, len(t.kernels.addRows)-1))
}

// addBlock adds the visible values of one block, (16, dim), whose first slot is given. Neighbouring pairs that see the same
// positions share the kernel.
func (t *attendTask) addBlock(w *attendWorker, pairs []attendPair, block []uint16, slot, origin, base int) {
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
			t.addRows(w, i, n, lo-origin, hi-lo, block[(lo-slot)*t.p.HeadDim:])
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
				t.addRows(w, i, n, pos-origin, 1, block[(base+int(p.path[p.walked])-slot)*t.p.HeadDim:])
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

// addRows adds rows of values to the outputs of n pairs from i on; at is the place of the first row's e in the scores.
func (t *attendTask) addRows(w *attendWorker, i, n, at, rows int, v []uint16) {
	dim := t.p.HeadDim
	for chunk := t.chunk(n); n > 0; {
		m := min(chunk, n)
		t.kernels.addRows[m](&w.outs[i*dim], dim, &w.scores[i*w.stride+at], w.stride, &v[0], dim, rows, dim/Lanes)
		if dim%Lanes != 0 {
			for k := i; k < i+m; k++ {
				addRowTails(w.outs[k*dim:(k+1)*dim], w.scores[k*w.stride+at:][:rows], v)
			}
		}
		i, n = i+m, n-m
	}
}

// addRowTails is addRows for the columns after the last multiple of 16, from float16.
func addRowTails(out, e []float32, v []uint16) {
	for d := len(out) / Lanes * Lanes; d < len(out); d++ {
		for r, x := range e {
			out[d] += float32(x * halves[v[r*len(out)+d]])
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

package tensor

import (
	"fmt"
	"math"
)

// chunkQueries is the number of queries that lie side by side for the kernels; none takes more.
const chunkQueries = 8

// runFloats is how many converted keys or values all queries of a group meet before the next run: they stay in the L2 cache.
const runFloats = 16 << 10

// chunkOfPairs is the pairs that share a kernel call, and the blocks [lo, hi) of the group that they see.
type chunkOfPairs struct {
	first, n, lo, hi int
	scores           []float32 // (blocks, n, 16)
}

// attendKernels is attend with the level's kernels.
func (t *attendTask) attendKernels(w *attendWorker, s *KVSpan, kvHead int, pairs []attendPair, origin, slots int) {
	dim := t.p.HeadDim
	r := &w.reader
	*r = blockReader{
		k: t.kernels, v: &s.View, size: dim * KVBlock, kvHead: kvHead, kvHeads: t.p.KVHeads, memory: w.block,
		blocks: s.View.Blocks[(origin-s.View.First)/KVBlock : ceilDiv(slots-s.View.First, KVBlock)],
	}
	t.mustHold(r.v, r.blocks)
	chunks := t.chunkPairs(w, pairs, origin)
	t.score(w, r, chunks)
	base := s.View.Len - s.N
	for i := range chunks {
		scale := t.scaleChunk(&chunks[i])
		for j := range chunks[i].n {
			p := &pairs[chunks[i].first+j]
			p.walkToPositions(origin, base)
			p.softmaxKernel(t.kernels, scale, origin, &w.lanes)
		}
	}
	clear(w.outs[:len(pairs)*dim])
	t.addValues(w, r, pairs, chunks, origin, base)
	for i := range pairs {
		t.kernels.divideBy(pairs[i].out, w.outs[i*dim:], pairs[i].sum)
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

// maxQueries is the most queries that a kernel takes.
func (t *attendTask) maxQueries() int { return len(t.kernels.addRows) - 1 }

// chunkPairs splits the pairs into even chunks and turns their queries to (headDim, chunkQueries), so that one pointer reaches
// all.
func (t *attendTask) chunkPairs(w *attendWorker, pairs []attendPair, origin int) []chunkOfPairs {
	n := ceilDiv(len(pairs), t.maxQueries())
	for i := range n {
		from, to := share(len(pairs), i, n)
		c := chunkOfPairs{first: from, n: to - from, lo: math.MaxInt, scores: w.scores[from*t.stride : to*t.stride]}
		queries := w.queries[i*chunkQueries*t.p.HeadDim:]
		for j := range c.n {
			p := &pairs[from+j]
			p.scores, p.step = c.scores[j*Lanes:], c.n*Lanes
			for d, x := range p.q {
				queries[d*chunkQueries+j] = x
			}
			c.lo = min(c.lo, (p.lo-origin)/KVBlock)
			c.hi = max(c.hi, ceilDiv(p.slots-origin, KVBlock))
		}
		w.chunks[i] = c
	}
	return w.chunks[:n]
}

// directChunks is the most chunks that read keys and values in float16 as they are stored; if there are more, converting them
// once for all is faster.
const directChunks = 4

// score fills the chunks' scores of their blocks.
func (t *attendTask) score(w *attendWorker, r *blockReader, chunks []chunkOfPairs) {
	v, at, stride := r.v, r.kvHead*r.size, r.kvHeads*r.size
	switch {
	case v.K8.Codes == nil && v.K32 != nil:
		scoreRuns(t, w, t.kernels.scoresF32, chunks, v.K32[at:], r.blocks, stride, 0, max(runFloats/r.size, 1))
	case v.K8.Codes == nil && len(chunks) <= directChunks:
		scoreRuns(t, w, t.kernels.scores, chunks, v.K[at:], r.blocks, stride, 0, max(2*runFloats/r.size, 1))
	default:
		run := r.run()
		for b := 0; b < len(r.blocks); b += run {
			n := min(run, len(r.blocks)-b)
			scoreRuns(t, w, t.kernels.scoresF32, chunks, r.keys(b, n), ascending[:n], r.size, b, n)
		}
	}
}

// scoreRuns scores the chunks against blocks of keys, a run after the other; the first is block number at of the group.
func scoreRuns[T uint16 | float32](t *attendTask, w *attendWorker, kernels []func(dst, q *float32, k *T, blocks *int32, nBlocks, nStored, stride, dim int),
	chunks []chunkOfPairs, keys []T, blocks []int32, stride, at, run int) {
	if len(chunks) == 1 {
		run = len(blocks)
	}
	for b := 0; b < len(blocks); b += run {
		for i := range chunks {
			c := &chunks[i]
			if lo, hi := max(c.lo-at, b), min(c.hi-at, b+run, len(blocks)); lo < hi {
				kernels[c.n](&c.scores[(at+lo)*c.n*Lanes], &w.queries[i*chunkQueries*t.p.HeadDim], &keys[0], &blocks[lo], hi-lo,
					len(blocks)-lo, stride, t.p.HeadDim)
			}
		}
	}
}

// scaleChunk does to the scores what must come before the softmax and returns the factor that is left to it.
func (t *attendTask) scaleChunk(c *chunkOfPairs) float32 {
	scale, scores := t.p.Scale, c.scores[c.lo*c.n*Lanes:c.hi*c.n*Lanes]
	if t.p.Softcap > 0 || !(scale > 0) { // -Inf must stay the smallest
		t.kernels.scaleBy(scores, scale)
		scale = 1
	}
	if t.p.Softcap > 0 {
		t.kernels.softcapAll(scores, t.p.Softcap)
	}
	return scale
}

// valueRun is one head's values of n positions, (n, headDim), in float16 or float32, and what is to be requested meanwhile. slot
// is the first one's.
type valueRun struct {
	halves, halvesAhead []uint16
	floats, floatsAhead []float32
	slot, n             int
}

// addValues adds the visible values of all blocks to the pairs' outputs.
func (t *attendTask) addValues(w *attendWorker, r *blockReader, pairs []attendPair, chunks []chunkOfPairs, origin, base int) {
	asStored := r.v.V8.Codes == nil && (r.v.V32 != nil || len(chunks) <= directChunks)
	run := r.run()
	if asStored {
		run = 1 // blocks are anywhere
	}
	for b := 0; b < len(r.blocks); b += run {
		n := min(run, len(r.blocks)-b)
		v := valueRun{slot: origin + b*KVBlock, n: n * KVBlock}
		if asStored {
			v.halves, v.floats = r.stored(b)
			v.halvesAhead, v.floatsAhead = r.stored(min(b+1, len(r.blocks)-1))
		} else {
			v.floats = r.values(b, n)
			v.floatsAhead = v.floats
		}
		for i := range chunks {
			c := &chunks[i]
			t.addRun(w, pairs[c.first:c.first+c.n], c.first, &v, origin, base)
		}
	}
}

// addRun adds the visible values of a run to a chunk whose first pair is given. Neighbouring pairs that see the same positions
// share the kernel.
func (t *attendTask) addRun(w *attendWorker, pairs []attendPair, first int, v *valueRun, origin, base int) {
	for i := 0; i < len(pairs); {
		lo, hi := pairs[i].run(v, base)
		n := 1
		for i+n < len(pairs) {
			if l, h := pairs[i+n].run(v, base); l != lo || h != hi {
				break
			}
			n++
		}
		if lo < hi {
			t.addRows(w, pairs[i:i+n], first+i, lo-origin, hi-lo, v, lo-v.slot)
		}
		i += n
	}
	for i := 0; i < len(pairs); {
		p := &pairs[i]
		n := 1
		for i+n < len(pairs) && pairs[i+n].row == p.row {
			n++
		}
		for ; p.walked < len(p.path) && base+int(p.path[p.walked]) < v.slot+v.n; p.walked++ {
			if pos := base + p.walked; pos >= p.lo {
				t.addRows(w, pairs[i:i+n], first+i, pos-origin, 1, v, base+int(p.path[p.walked])-v.slot)
			}
		}
		i += n
	}
}

// run is the visible positions of a run that lie in the slots of the same number.
func (p *attendPair) run(v *valueRun, base int) (lo, hi int) {
	end := p.end
	if p.path != nil {
		end = min(end, base)
	}
	return max(p.lo, v.slot), min(end, v.slot+v.n)
}

// addRows adds rows of values from the given one on to the outputs of neighbouring pairs of a chunk; at is the position, after
// the origin, of the first row's e.
func (t *attendTask) addRows(w *attendWorker, pairs []attendPair, first, at, rows int, v *valueRun, row int) {
	dim, p := t.p.HeadDim, &pairs[0]
	out, e := &w.outs[first*dim], &p.scores[p.place(at)]
	if v.floats != nil {
		t.kernels.addRowsF32[len(pairs)](out, dim, e, p.step, at%Lanes, &v.floats[row*dim], &v.floatsAhead[row*dim], dim, rows, dim/Lanes)
	} else {
		t.kernels.addRows[len(pairs)](out, dim, e, p.step, at%Lanes, &v.halves[row*dim], &v.halvesAhead[row*dim], dim, rows, dim/Lanes)
	}
	if dim%Lanes == 0 {
		return
	}
	for i := range pairs {
		addRowTails(w.outs[(first+i)*dim:][:dim], &pairs[i], at, rows, v, row)
	}
}

// addRowTails is addRows for the columns after the last multiple of 16.
func addRowTails(out []float32, p *attendPair, at, rows int, v *valueRun, row int) {
	for d := len(out) / Lanes * Lanes; d < len(out); d++ {
		for r := range rows {
			x, i := p.scores[p.place(at+r)], (row+r)*len(out)+d
			if v.floats != nil {
				out[d] += float32(x * v.floats[i])
			} else {
				out[d] += float32(x * halves[v.halves[i]])
			}
		}
	}
}

// softmaxKernel is softmax of whole runs of 16 scores: hidden positions count as -Inf, whose e is 0 and leaves a sum as it
// was.
func (p *attendPair) softmaxKernel(k *kernelSet, scale float32, origin int, lanes *laneSums) {
	lo, end := p.lo-origin, p.end-origin
	first, last := lo/Lanes*Lanes, roundUp(end, Lanes)
	hidden := float32(math.Inf(-1))
	for i := first; i < lo; i++ {
		p.scores[p.place(i)] = hidden
	}
	for i := end; i < last; i++ {
		p.scores[p.place(i)] = hidden
	}
	k.softmax(&p.scores[p.place(first)], p.step, (last-first)/Lanes, &lanes.sums[0], scale)
	p.sum = sumLanes(&lanes.sums)
}

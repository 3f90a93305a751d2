package tensor

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
)

// AttnParams are a layer's constants of attention.
type AttnParams struct {
	HeadDim, Heads, KVHeads int     // Heads is a multiple of KVHeads; head h reads KV head h/(Heads/KVHeads)
	Scale                   float32 // factor of q·k
	Softcap                 float32 // 0 for none
	Window                  int     // a row sees this many positions up to its own; 0 is all
}

// A group is (row, head) pairs of one KV head that are worked on together: at most maxGroup, and in long sequences as many as
// have room for their scores in groupScores floats, but minGroup always.
const (
	minGroup    = 16
	maxGroup    = 96
	groupScores = 1 << 18
)

// Attend is softmax(q k) v for every row and head: dst and q are (rows, Heads*HeadDim). The arithmetic, per row and head:
//
//	score_p  sum over d in order of q[d]*k_p[d], times Scale, then the cap
//	e_p      Exp32(score_p - the largest score)
//	sum      e_p in lane p mod 16, each lane in the order of positions, then the fixed tree
//	out[d]   sum over p in the order of positions of e_p*v_p[d], divided by sum
//
// over the visible positions p alone: hidden ones are skipped, so a tree node gets the bits that a chain would give.
func (c *CPU) Attend(dst, q F32, spans []KVSpan, p AttnParams) {
	t, began := &c.attend, c.watch.begin()
	mustSame("Attend", dst, q)
	if p.HeadDim < 1 || p.KVHeads < 1 || p.Heads%p.KVHeads != 0 || q.Cols != p.Heads*p.HeadDim {
		panic(fmt.Sprintf("tensor: Attend of %d columns with %+v", q.Cols, p))
	}
	t.dst, t.q, t.p = dst, q, p
	t.spans = append(t.spans[:0], spans...)
	work, longest, tree := 0, 0, 0
	for i := range spans {
		s := &spans[i]
		if s.N < 1 || s.N > c.maxTokens || s.Row0 < 0 || s.Row0+s.N > q.Rows || s.N > s.View.Len-s.View.First ||
			s.Parents != nil && len(s.Parents) != s.N {
			panic(fmt.Sprintf("tensor: Attend of rows %d+%d of %d, %d parents, view of positions %d..%d", s.Row0, s.N, q.Rows,
				len(s.Parents), s.View.First, s.View.Len))
		}
		stored := s.View.Len - s.View.First
		longest = max(longest, stored)
		work += s.N * stored
		if s.Parents != nil {
			tree = max(tree, s.N)
		}
	}
	t.split(longest)
	t.reserve(tree)
	t.next.Store(0)
	c.runAny(t, work*q.Cols)
	c.watch.attended(began)
}

// attendTask is the work of one Attend call: groups of (row, head) pairs that the workers take one by one. The result
// of a pair does not depend on who computes it or beside what.
type attendTask struct {
	dst, q  F32
	p       AttnParams
	spans   []KVSpan
	group   int // pairs of a group
	stride  int // floats of a pair's scores
	kernels *kernelSet
	workers []attendWorker
	next    atomic.Int64
}

// attendWorker is a worker's memory.
type attendWorker struct {
	block  []float32 // one KV head of some blocks, converted: each (headDim, 16) or (16, headDim)
	scores []float32 // (group, stride); for the kernels each chunk has (blocks, pairs, 16)
	// for the kernels: the group's queries, (chunks, headDim, chunkQueries), and outputs, (group, headDim)
	queries, outs []float32
	chunks        [maxGroup]chunkOfPairs
	reader        blockReader
	lanes         laneSums
	pairs         [maxGroup]attendPair
	paths         []int32 // (group, rows of the largest tree)
	_             [64]byte
}

// attendPair is one row and head of a group.
type attendPair struct {
	q, out []float32 // (headDim)
	scores []float32 // score by slot, then e_p by position, from the group's first block on; see place
	step   int       // floats from 16 scores to the next 16
	lo     int       // first visible position
	end    int       // one past the own position
	slots  int       // one past the own slot; end for a chain
	path   []int32   // tree: rows of the span from the root to the own; nil for a chain
	row    int       // of the span
	walked int       // tree: rows of the path whose value was added
	sum    float32   // of e_p
}

func (t *attendTask) init(pool *Pool, kernels *kernelSet) {
	t.kernels = kernels
	t.workers = make([]attendWorker, pool.N())
}

// split chooses the group size: large groups convert a block once for many pairs, small ones share evenly. The cost of
// a group is its pairs and two more for the conversion.
func (t *attendTask) split(longest int) {
	t.stride = (ceilDiv(longest, KVBlock) + 1) * KVBlock
	best := math.MaxInt
	for size := 1; size <= min(max(groupScores/t.stride, minGroup), maxGroup); size++ {
		if cost := ceilDiv(t.nGroups(size), len(t.workers)) * (size + 2); cost <= best {
			best, t.group = cost, size
		}
	}
}

// reserve grows the workers' memory to the group size and to trees of the given number of rows.
func (t *attendTask) reserve(tree int) {
	dim := t.p.HeadDim
	for i := range t.workers {
		w := &t.workers[i]
		grow(&w.block, max(dim*KVBlock, runFloats))
		grow(&w.queries, maxGroup*dim*2) // chunks of half the size are possible
		grow(&w.outs, maxGroup*dim)
		grow(&w.scores, t.group*t.stride)
		grow(&w.paths, t.group*tree)
	}
}

// grow makes s at least n long, in powers of two; the content is lost.
func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, 1<<bits.Len(uint(n-1)))
	}
}

// pairs is the number of (row, head) pairs of a span that read the same KV head.
func (t *attendTask) pairs(s *KVSpan) int { return s.N * (t.p.Heads / t.p.KVHeads) }

func (t *attendTask) nGroups(size int) int {
	n := 0
	for i := range t.spans {
		n += ceilDiv(t.pairs(&t.spans[i]), size) * t.p.KVHeads
	}
	return n
}

// Do takes groups until none is left.
func (t *attendTask) Do(worker, _ int) {
	w := &t.workers[worker]
	for {
		g := int(t.next.Add(1)) - 1
		for i := range t.spans {
			s := &t.spans[i]
			perHead := ceilDiv(t.pairs(s), t.group)
			if n := perHead * t.p.KVHeads; g >= n {
				g -= n
				continue
			}
			lo := g % perHead * t.group
			t.attend(w, s, g/perHead, lo, min(lo+t.group, t.pairs(s)))
			g = -1
			break
		}
		if g >= 0 {
			return
		}
	}
}

// attend computes pairs [pair0, pair1) of one KV head of a span.
func (t *attendTask) attend(w *attendWorker, s *KVSpan, kvHead, pair0, pair1 int) {
	pairs := w.pairs[:pair1-pair0]
	perHead := t.p.Heads / t.p.KVHeads
	lo, slots := s.View.Len, 0
	for i := range pairs {
		row, head := (pair0+i)/perHead, kvHead*perHead+(pair0+i)%perHead
		t.place(w, &pairs[i], i, s, row, head)
		lo, slots = min(lo, pairs[i].lo), max(slots, pairs[i].slots)
	}
	origin := lo / KVBlock * KVBlock
	if t.kernelsRead(&s.View) {
		t.attendKernels(w, s, kvHead, pairs, origin, slots)
		return
	}
	size := t.p.HeadDim * KVBlock
	for slot := origin; slot < slots; slot += KVBlock {
		at := (int(s.View.Blocks[(slot-s.View.First)/KVBlock])*t.p.KVHeads + kvHead) * size
		block := s.View.keys(w.block, at, size)
		for i := range pairs {
			if p := &pairs[i]; slot+KVBlock > p.lo && slot < p.slots {
				scoreBlock((*[KVBlock]float32)(p.scores[slot-origin:]), p.q, block)
			}
		}
	}
	base := s.View.Len - s.N
	for i := range pairs {
		pairs[i].softmax(&t.p, origin, base)
	}
	for slot := origin; slot < slots; slot += KVBlock {
		at := (int(s.View.Blocks[(slot-s.View.First)/KVBlock])*t.p.KVHeads + kvHead) * size
		block := s.View.values(w.block, at, size)
		for i := range pairs {
			pairs[i].addValues(block, slot, origin, base)
		}
	}
	for i := range pairs {
		pairs[i].divide()
	}
}

// place fills in the pair number i of a group.
func (t *attendTask) place(w *attendWorker, p *attendPair, i int, s *KVSpan, row, head int) {
	dim := t.p.HeadDim
	base := s.View.Len - s.N
	*p = attendPair{
		q:      t.q.Row(s.Row0 + row)[head*dim : (head+1)*dim],
		out:    t.dst.Row(s.Row0 + row)[head*dim : (head+1)*dim],
		scores: w.scores[i*t.stride : (i+1)*t.stride],
		step:   Lanes,
		row:    row,
		end:    base + row + 1,
		slots:  base + row + 1,
	}
	if s.Parents != nil {
		n := s.N
		p.path = walk(w.paths[i*n:i*n:(i+1)*n], s.Parents, row)
		p.end = base + len(p.path)
	}
	p.lo = s.View.First
	if t.p.Window > 0 {
		p.lo = max(p.lo, p.end-t.p.Window)
	}
}

// walk returns the rows from the root to the given one.
func walk(path, parents []int32, row int) []int32 {
	for r := int32(row); r >= 0; r = parents[r] {
		path = append(path, r)
	}
	slices.Reverse(path)
	return path
}

package model

import (
	"quickdraft/internal/detmath"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// t5Bias is what a distance adds to a score, by head: key position minus query position from -far to far (encoder) or to 0
// (decoder). Farther keys count as the farthest.
type t5Bias struct {
	table []float32 // (heads, width)
	width int
	far   int
}

// newT5Bias spreads a table of buckets, (buckets, heads), over all distances.
func newT5Bias(buckets []float32, c *Config, bothWays bool) t5Bias {
	b := t5Bias{far: c.RelDistance, width: c.RelDistance + 1}
	if bothWays {
		b.width = 2*c.RelDistance + 1
	}
	if buckets == nil {
		return b
	}
	b.table = make([]float32, c.Heads*b.width)
	for head := range c.Heads {
		for i := range b.width {
			b.table[head*b.width+i] = buckets[relBucket(i-b.far, c.RelBuckets, c.RelDistance, bothWays)*c.Heads+head]
		}
	}
	return b
}

// relBucket is the bucket of a distance: one for each of the near ones, then logarithmic ones up to far. With bothWays
// half of the buckets are for keys after the query.
func relBucket(distance, buckets, far int, bothWays bool) int {
	first := 0
	if bothWays {
		if buckets /= 2; distance > 0 {
			first = buckets
		}
	}
	if distance < 0 {
		distance = -distance
	} else if !bothWays {
		distance = 0
	}
	near := buckets / 2
	if distance < near {
		return first + distance
	}
	// float32 as in the reference, where a distance falls on the border of two buckets
	part := float32(detmath.Log(float64(float32(distance)/float32(near)))) / float32(detmath.Log(float64(far)/float64(near)))
	return first + min(near+int(float32(part*float32(buckets-near))), buckets-1)
}

// at is the bias of a head for keys at a distance.
func (b *t5Bias) at(head, distance int) float32 {
	return b.table[head*b.width+min(max(distance+b.far, 0), b.width-1)]
}

// t5Attention is softmax(q k + bias) v. Each row and head adds keys in the order of positions, so it gives the same bits
// in every batch. The workers share the heads. Scores are float64 until the highest is subtracted: they are not scaled, and
// where they are in the hundreds float32 would leave a weight wrong by 1e-5 of itself.
type t5Attention struct {
	pool           *tensor.Pool
	heads, headDim int
	workers        []t5Worker

	dst, q     tensor.F32 // (rows, heads*headDim)
	keys, vals tensor.F32 // (positions, heads*headDim); of full
	span       *tensor.KVSpan
	bias       *t5Bias
}

type t5Worker struct {
	keys, vals []float32 // (slots, headDim), of one head
	scores     []float64
	path       []int32 // slots that a row sees, in order
}

func (a *t5Attention) init(pool *tensor.Pool, c *Config) {
	a.pool, a.heads, a.headDim = pool, c.Heads, c.HeadDim
	a.workers = make([]t5Worker, pool.N())
}

// full lets every row see all keys, (positions, heads*headDim); row i and key j are j-i apart.
func (a *t5Attention) full(dst, q, keys, vals tensor.F32, bias *t5Bias) {
	a.dst, a.q, a.keys, a.vals, a.span, a.bias = dst, q, keys, vals, nil, bias
	a.pool.Run(a)
}

// causal lets the rows of each span see what its sequence stored up to their own positions, as tensor.CPU's Attend does.
func (a *t5Attention) causal(dst, q tensor.F32, spans []tensor.KVSpan, bias *t5Bias) {
	for i := range spans {
		s := &spans[i]
		a.dst, a.q, a.span, a.bias = rowsOf(dst, s.Row0, s.N), rowsOf(q, s.Row0, s.N), s, bias
		a.pool.Run(a)
	}
}

// Do does a worker's share of the heads.
func (a *t5Attention) Do(worker, nWorkers int) {
	w := &a.workers[worker]
	for head := worker; head < a.heads; head += nWorkers {
		if a.span == nil {
			w.copyHead(a.keys, a.vals, head, a.headDim)
		} else {
			w.readHead(&a.span.View, head, a.heads, a.headDim)
		}
		for row := range a.q.Rows {
			a.attend(w, row, head)
		}
	}
}

// copyHead takes one head out of rows of all heads.
func (w *t5Worker) copyHead(keys, vals tensor.F32, head, dim int) {
	w.keys, w.vals = w.keys[:0], w.vals[:0]
	for i := range keys.Rows {
		w.keys = append(w.keys, keys.Row(i)[head*dim:(head+1)*dim]...)
		w.vals = append(w.vals, vals.Row(i)[head*dim:(head+1)*dim]...)
	}
}

// readHead takes one head out of a sequence's blocks.
func (w *t5Worker) readHead(v *tensor.KVView, head, heads, dim int) {
	w.keys, w.vals = w.keys[:0], w.vals[:0]
	for slot := range v.Len {
		at := (int(v.Blocks[slot/tensor.KVBlock])*heads + head) * dim * tensor.KVBlock
		lane := slot % tensor.KVBlock
		for d := range dim {
			k, val := at+d*tensor.KVBlock+lane, at+lane*dim+d
			if v.K32 != nil {
				w.keys, w.vals = append(w.keys, v.K32[k]), append(w.vals, v.V32[val])
			} else {
				w.keys, w.vals = append(w.keys, quant.HalfToFloat(v.K[k])), append(w.vals, quant.HalfToFloat(v.V[val]))
			}
		}
	}
}

// attend computes one row of one head.
func (a *t5Attention) attend(w *t5Worker, row, head int) {
	dim := a.headDim
	q, out := a.q.Row(row)[head*dim:(head+1)*dim], a.dst.Row(row)[head*dim:(head+1)*dim]
	w.see(a.span, row, len(w.keys)/dim)
	own := row // position of the query
	if a.span != nil {
		own = len(w.path) - 1
	}
	w.scores = w.scores[:0]
	biggest := 0.0
	for i, slot := range w.path {
		score := 0.0
		for d, k := range w.keys[int(slot)*dim : (int(slot)+1)*dim] {
			score += float64(float64(q[d]) * float64(k))
		}
		if a.bias != nil {
			score += float64(a.bias.at(head, i-own))
		}
		if i == 0 {
			biggest = score
		}
		biggest = max(biggest, score)
		w.scores = append(w.scores, score)
	}
	sum := float32(0)
	clear(out)
	for i, slot := range w.path {
		e := tensor.Exp32(float32(w.scores[i] - biggest))
		sum += e
		addScaled(out, w.vals[int(slot)*dim:(int(slot)+1)*dim], e)
	}
	for d := range out {
		out[d] /= sum
	}
}

// see lists the slots that a row attends to, in the order of their positions: all without a span; what was stored before
// the pass, the row's ancestors and itself otherwise.
func (w *t5Worker) see(s *tensor.KVSpan, row, slots int) {
	w.path = w.path[:0]
	last := slots
	if s != nil {
		last = slots - s.N
		if s.Parents == nil {
			last += row + 1
		}
	}
	for slot := range last {
		w.path = append(w.path, int32(slot))
	}
	if s == nil || s.Parents == nil {
		return
	}
	for r := int32(row); r >= 0; r = s.Parents[r] {
		w.path = append(w.path, int32(last)+r)
	}
	for i, j := last, len(w.path)-1; i < j; i, j = i+1, j-1 {
		w.path[i], w.path[j] = w.path[j], w.path[i]
	}
}

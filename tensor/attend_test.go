package tensor

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/quant"
)

// sequence is the keys and values of one layer, by slot, with the view that Attend reads. Blocks lie in a random order
// in the store, and slots that hold nothing are NaN.
type sequence struct {
	p    AttnParams
	k, v F32 // (slots, KVHeads*HeadDim), already rounded to float16
	view KVView
}

func newSequence(rng *rand.Rand, p AttnParams, slots, first int) *sequence {
	s := &sequence{p: p, k: random(rng, slots, p.KVHeads*p.HeadDim), v: random(rng, slots, p.KVHeads*p.HeadDim)}
	for i := range s.k.Data {
		s.k.Data[i] = quant.HalfToFloat(quant.FloatToHalf(s.k.Data[i]))
		s.v.Data[i] = quant.HalfToFloat(quant.FloatToHalf(s.v.Data[i]))
	}
	nBlocks, size := (slots+KVBlock-1)/KVBlock, p.KVHeads*p.HeadDim*KVBlock
	order := rng.Perm(nBlocks + 3)
	s.view = KVView{K: make([]uint16, len(order)*size), V: make([]uint16, len(order)*size), First: first, Len: slots}
	for i := range s.view.K {
		s.view.K[i], s.view.V[i] = 0x7e00, 0x7e00
	}
	for b := first / KVBlock; b < nBlocks; b++ {
		s.view.Blocks = append(s.view.Blocks, int32(order[b]))
	}
	for slot := first; slot < slots; slot++ {
		s.put(slot, s.k.Row(slot), s.v.Row(slot))
	}
	return s
}

func (s *sequence) put(slot int, k, v []float32) {
	dim := s.p.HeadDim
	at := int(s.view.Blocks[(slot-s.view.First)/KVBlock]) * s.p.KVHeads * dim * KVBlock
	for i := range k {
		s.view.K[at+i*KVBlock+slot%KVBlock] = quant.FloatToHalf(k[i])
		s.view.V[at+(i/dim*KVBlock+slot%KVBlock)*dim+i%dim] = quant.FloatToHalf(v[i])
	}
}

// reference is attention in float64 of one row's head over the given slots.
func (s *sequence) reference(q []float32, head int, slots []int) []float64 {
	dim := s.p.HeadDim
	at := head / (s.p.Heads / s.p.KVHeads) * dim
	biggest, scores := math.Inf(-1), make([]float64, len(slots))
	for i, slot := range slots {
		for d, x := range q {
			scores[i] += float64(x) * float64(s.k.Row(slot)[at+d])
		}
		scores[i] *= float64(s.p.Scale)
		if cap := float64(s.p.Softcap); cap > 0 {
			scores[i] = cap * math.Tanh(scores[i]/cap)
		}
		biggest = max(biggest, scores[i])
	}
	sum, out := 0.0, make([]float64, dim)
	for i, slot := range slots {
		e := math.Exp(scores[i] - biggest)
		sum += e
		for d := range out {
			out[d] += e * float64(s.v.Row(slot)[at+d])
		}
	}
	for d := range out {
		out[d] /= sum
	}
	return out
}

// visible lists the slots that row sees, in the order of positions.
func visible(base, row, window int, parents []int32) []int {
	var slots []int
	for p := range base {
		slots = append(slots, p)
	}
	var path []int
	if parents == nil {
		for r := range row + 1 {
			path = append(path, base+r)
		}
	} else {
		for r := int32(row); r >= 0; r = parents[r] {
			path = append([]int{base + int(r)}, path...)
		}
	}
	slots = append(slots, path...)
	if window > 0 && len(slots) > window {
		slots = slots[len(slots)-window:]
	}
	return slots
}

func TestAttend(t *testing.T) {
	for _, c := range []struct {
		name         string
		p            AttnParams
		slots, n     int
		tree, window bool
	}{
		{"one token", AttnParams{HeadDim: 8, Heads: 1, KVHeads: 1, Scale: 0.3}, 1, 1, false, false},
		{"decode, grouped heads", AttnParams{HeadDim: 64, Heads: 9, KVHeads: 3, Scale: 0.125}, 100, 1, false, false},
		{"prompt", AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25}, 67, 67, false, false},
		{"many heads", AttnParams{HeadDim: 12, Heads: 20, KVHeads: 1, Scale: 0.25}, 50, 3, false, false},
		{"softcap", AttnParams{HeadDim: 16, Heads: 2, KVHeads: 2, Scale: 2, Softcap: 3}, 40, 5, false, false},
		{"window", AttnParams{HeadDim: 16, Heads: 4, KVHeads: 4, Scale: 0.25, Window: 21}, 90, 40, false, false},
		{"window of one", AttnParams{HeadDim: 16, Heads: 2, KVHeads: 1, Scale: 0.25, Window: 1}, 35, 4, false, false},
		{"tree", AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25}, 60, 30, true, false},
		{"tree at the start", AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25}, 20, 20, true, false},
		{"tree deeper than the window", AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25, Window: 3}, 70, 50, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := newRand(uint64(c.slots))
			first := 0
			if c.p.Window > 0 {
				first = max(c.slots-c.n+1-c.p.Window, 0) / KVBlock * KVBlock
			}
			s := newSequence(rng, c.p, c.slots, first)
			span := KVSpan{Row0: 2, N: c.n, View: s.view}
			if c.tree {
				for i := range c.n {
					span.Parents = append(span.Parents, int32(rng.IntN(i+1)-1))
				}
				if c.p.Window > 0 { // one deep path besides the bushes
					for i := range span.Parents {
						span.Parents[i] = int32(i - 1 - rng.IntN(2)*min(i, 1))
					}
				}
			}
			q := random(rng, c.n+3, c.p.Heads*c.p.HeadDim)
			var want F32
			for _, cpu := range cpus(t, c.n+3, 32) {
				got := NewF32(q.Rows, q.Cols)
				cpu.Attend(got, q, []KVSpan{span}, c.p)
				if want.Data == nil {
					want = got
				}
				same(t, want, got, "%d workers", cpu.pool.N())
			}
			base := c.slots - c.n
			for i := range c.n {
				slots := visible(base, i, c.p.Window, span.Parents)
				for h := range c.p.Heads {
					at := h * c.p.HeadDim
					near(t, s.reference(q.Row(2 + i)[at:at+c.p.HeadDim], h, slots), want.Row(2 + i)[at:at+c.p.HeadDim], 2e-6)
				}
			}
			require.Equal(t, make([]float32, 2*q.Cols), want.Data[:2*q.Cols], "rows of no span stay")
		})
	}
}

// TestAttendSplits requires the same bits when rows come at once, in pieces of 7 or one by one, and for every path of a
// tree as for a chain of the same tokens.
func TestAttendSplits(t *testing.T) {
	p := AttnParams{HeadDim: 20, Heads: 6, KVHeads: 2, Scale: 0.2, Window: 0}
	const slots, n = 75, 40
	for _, window := range []int{0, 18} {
		p.Window = window
		rng := newRand(9)
		s := newSequence(rng, p, slots, 0)
		q := random(rng, n, p.Heads*p.HeadDim)
		all := cpus(t, n, 32)
		want := NewF32(n, q.Cols)
		all[0].Attend(want, q, []KVSpan{{N: n, View: s.view}}, p)
		for _, piece := range []int{1, 7, 16, 39} {
			got := NewF32(n, q.Cols)
			for lo := 0; lo < n; lo += piece {
				hi := min(lo+piece, n)
				view := s.view
				view.Len = slots - n + hi
				all[piece%3].Attend(got, q, []KVSpan{{Row0: lo, N: hi - lo, View: view}}, p)
			}
			same(t, want, got, "pieces of %d, window %d", piece, window)
		}
		checkTreePaths(t, rng, all, p)
	}
}

// checkTreePaths attends a random tree and then each path of it, stored as a chain.
func checkTreePaths(t *testing.T, rng *rand.Rand, all []*CPU, p AttnParams) {
	const base, n = 29, 24
	tree := newSequence(rng, p, base+n, 0)
	q := random(rng, n, p.Heads*p.HeadDim)
	parents := make([]int32, n)
	for i := range parents {
		parents[i] = int32(max(i-1-rng.IntN(3), -1))
	}
	got := NewF32(n, q.Cols)
	all[2].Attend(got, q, []KVSpan{{N: n, View: tree.view, Parents: parents}}, p)
	for row := range n {
		path := visible(base, row, 0, parents)[base:]
		chain := newSequence(rng, p, base+len(path), 0)
		for slot := range base {
			chain.put(slot, tree.k.Row(slot), tree.v.Row(slot))
		}
		for i, slot := range path {
			chain.put(base+i, tree.k.Row(slot), tree.v.Row(slot))
		}
		one := NewF32(1, q.Cols)
		all[row%3].Attend(one, rowsOf(q, row, row+1), []KVSpan{{N: 1, View: chain.view}}, p)
		same(t, one, rowsOf(got, row, row+1), "row %d of a tree, window %d", row, p.Window)
	}
}

// TestAttendSpans requires that a sequence's rows do not depend on the others in the batch.
func TestAttendSpans(t *testing.T) {
	p := AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25}
	rng := newRand(10)
	all := cpus(t, 64, 32)
	var spans []KVSpan
	rows := 0
	for i := range 8 {
		n := 1 + rng.IntN(7)
		s := newSequence(rng, p, n+rng.IntN(60), 0)
		span := KVSpan{Row0: rows, N: n, View: s.view}
		if i%3 == 1 {
			span.Parents = make([]int32, n)
			for k := range span.Parents {
				span.Parents[k] = int32(rng.IntN(k+1)) - 1
			}
		}
		spans = append(spans, span)
		rows += n
	}
	q := random(rng, rows, p.Heads*p.HeadDim)
	want := NewF32(rows, q.Cols)
	for i := range spans {
		all[0].Attend(want, q, spans[i:i+1], p)
	}
	for _, c := range all {
		got := NewF32(rows, q.Cols)
		c.Attend(got, q, spans, p)
		same(t, want, got, "%d workers", c.pool.N())
	}
}

// TestAttendGrowsToTheLongest begins with a long sequence beside a short one, which comes last.
func TestAttendGrowsToTheLongest(t *testing.T) {
	p := AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25}
	rng := newRand(14)
	q := random(rng, 2, p.Heads*p.HeadDim)
	var spans []KVSpan
	for i, slots := range []int{300, 5} {
		spans = append(spans, KVSpan{Row0: i, N: 1, View: newSequence(rng, p, slots, 0).view})
	}
	fresh := func() *CPU {
		pool := NewPool(2)
		t.Cleanup(pool.Close)
		return NewCPU(pool, 64, 32)
	}
	want, got := NewF32(2, q.Cols), NewF32(2, q.Cols)
	for i := range spans {
		fresh().Attend(want, q, spans[i:i+1], p)
	}
	fresh().Attend(got, q, spans, p)
	same(t, want, got, "together")
}

func TestAttendNaN(t *testing.T) {
	p := AttnParams{HeadDim: 16, Heads: 2, KVHeads: 1, Scale: 0.25}
	rng := newRand(11)
	c := cpus(t, 4, 32)[1]
	nan := float32(math.NaN())
	for _, where := range []string{"q", "k", "v"} {
		s := newSequence(rng, p, 40, 0)
		q := random(rng, 2, p.Heads*p.HeadDim)
		switch where {
		case "q":
			q.Row(1)[3], q.Row(1)[20] = nan, nan
		case "k":
			s.k.Row(39)[2] = nan
		case "v":
			for d := range s.v.Row(39) {
				s.v.Row(39)[d] = nan
			}
		}
		s.put(39, s.k.Row(39), s.v.Row(39))
		got := NewF32(2, q.Cols)
		c.Attend(got, q, []KVSpan{{N: 2, View: s.view}}, p)
		for i, v := range got.Data {
			require.Equal(t, i >= q.Cols, math.IsNaN(float64(v)), "NaN in %s: element %d", where, i)
		}
	}
}

func TestAttendRefuses(t *testing.T) {
	p := AttnParams{HeadDim: 8, Heads: 1, KVHeads: 1, Scale: 1}
	s := newSequence(newRand(12), p, 20, 0)
	c := cpus(t, 4, 32)[0]
	q := NewF32(3, 8)
	for _, span := range []KVSpan{
		{N: 0, View: s.view}, {N: 5, View: s.view}, {Row0: 1, N: 3, View: s.view}, {Row0: -1, N: 3, View: s.view},
		{N: 3, View: s.view, Parents: []int32{-1}}, {N: 3, View: KVView{First: 16, Len: 18}},
	} {
		require.Panics(t, func() { c.Attend(NewF32(3, 8), q, []KVSpan{span}, p) })
	}
}

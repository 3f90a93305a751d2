package model

import (
	"fmt"

	"quickdraft/tensor"
)

// moe is a layer's set of expert feed-forwards, of which a router gives each token a few.
type moe struct {
	router   *tensor.Mat   // (experts, dim), F32: a wrong choice costs more than its few bytes
	gate, up []*tensor.Mat // experts of (expertFF, dim)
	down     []*tensor.Mat // experts of (dim, expertFF)
	used     int           // experts a token
	sumToOne bool          // the weights of the used experts are divided by their sum
	scratch  *moeScratch   // shared by all layers
}

// moeScratch holds one expert's tokens.
type moeScratch struct {
	scores   tensor.F32 // (max, experts)
	taken    []bool     // (experts)
	chosen   []int32    // rows of the pass that an expert serves
	x, y     tensor.F32 // (max, dim)
	gate, up tensor.F32 // (max, wide)
	wide     int        // of the widest expert; 0: there are none
}

// makeScratch makes the memory of the mixtures when all layers are there: what tensors did not prove is not allocated.
func (l *loader) makeScratch(s *moeScratch) {
	if l.err != nil || s.wide == 0 {
		return
	}
	c, n := l.cfg, l.opts.MaxBatch
	s.scores, s.taken, s.chosen = tensor.NewF32(n, c.Experts), make([]bool, c.Experts), make([]int32, 0, n)
	s.x, s.y = tensor.NewF32(n, c.Dim), tensor.NewF32(n, c.Dim)
	s.gate, s.up = tensor.NewF32(n, s.wide), tensor.NewF32(n, s.wide)
}

// configureExperts reads the fields that all mixtures have.
func configureExperts(f *fields, c *Config, hfWidth string) {
	c.Experts = f.needInteger("expert_count", "num_local_experts|num_experts", 1, maxExperts)
	c.ExpertsUsed = f.needInteger("expert_used_count", "num_experts_per_tok", 1, c.Experts)
	c.ExpertFF = f.integer("expert_feed_forward_length", hfWidth, c.FF, 1, maxDim)
}

const maxExperts = 1 << 12

// dense says whether a layer has no mixture: config.json says so, GGUF has no router there.
func (l *loader) dense(layer int) bool {
	if l.fields.isGGUF {
		return !l.has(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", layer))
	}
	return l.cfg.DenseLayers[layer]
}

// experts loads the mixture of a layer.
func (l *loader) experts(blk string, scratch *moeScratch, sumToOne bool) *moe {
	c := l.cfg
	m := &moe{router: l.matF32(blk+"ffn_gate_inp.weight", c.Experts, c.Dim), used: c.ExpertsUsed, sumToOne: sumToOne, scratch: scratch}
	for e := 0; e < c.Experts && l.err == nil; e++ {
		m.gate = append(m.gate, l.expert(blk+"ffn_gate_exps", e, c.ExpertFF, c.Dim))
		m.up = append(m.up, l.expert(blk+"ffn_up_exps", e, c.ExpertFF, c.Dim))
		m.down = append(m.down, l.expert(blk+"ffn_down_exps", e, c.Dim, c.ExpertFF))
	}
	scratch.wide = max(scratch.wide, c.ExpertFF)
	return m
}

// expert is one expert's matrix, (rows, cols): part of a tensor of all experts, or a tensor of its own.
func (l *loader) expert(stem string, e, rows, cols int) *tensor.Mat {
	share := float64(l.cfg.ExpertsUsed) / float64(l.cfg.Experts)
	own := fmt.Sprintf("%s.%d.weight", stem, e)
	if all := stem + ".weight"; l.has(all) && !l.has(own) {
		t, ok := l.raw(all, l.cfg.Experts*rows, cols)
		if !ok {
			return nil
		}
		return l.pack(t.part(e*rows, rows), nil, share)
	}
	t, ok := l.raw(own, rows, cols)
	if !ok {
		return nil
	}
	return l.pack(t, nil, share)
}

// forward is dst = the weighted sum of what the chosen experts make of x, both (n, dim). Experts are gone through in
// order, so that a token's sum does not depend on its neighbours.
func (m *moe) forward(c *tensor.CPU, dst, x tensor.F32) {
	s := m.scratch
	scores := s.scores.Head(x.Rows)
	c.MatMul(scores, m.router, x)
	for i := range scores.Rows {
		route(scores.Row(i), s.taken, m.used, m.sumToOne)
	}
	clear(dst.Data)
	for e := range m.gate {
		s.chosen = s.chosen[:0]
		for i := range x.Rows {
			if scores.Row(i)[e] != unused {
				s.chosen = append(s.chosen, int32(i))
			}
		}
		n := len(s.chosen)
		if n == 0 {
			continue
		}
		ex, ey, gate, up := s.x.Head(n), s.y.Head(n), cut(s.gate, n, m.gate[e].Rows), cut(s.up, n, m.gate[e].Rows)
		for i, row := range s.chosen {
			copy(ex.Row(i), x.Row(int(row)))
		}
		c.MatMuls(ex, tensor.Proj{Dst: gate, W: m.gate[e]}, tensor.Proj{Dst: up, W: m.up[e]})
		c.MatMulSiLU(gate, up, tensor.Proj{Dst: ey, W: m.down[e]})
		for i, row := range s.chosen {
			addScaled(dst.Row(int(row)), ey.Row(i), scores.Row(int(row))[e])
		}
	}
}

// unused is the score of an expert that does not serve a token.
const unused = -1

// route turns a row of router outputs into weights: softmax over all experts, the used largest kept (the lower number
// first among equals), the others unused. NaN stays, and surfaces in the sum. taken is scratch, all false.
func route(scores []float32, taken []bool, used int, sumToOne bool) {
	softmax(scores)
	kept := float32(0)
	for range used {
		best := -1
		for e, w := range scores {
			if !taken[e] && (best < 0 || w > scores[best]) {
				best = e
			}
		}
		taken[best] = true
		kept += scores[best]
	}
	for e := range scores {
		switch {
		case !taken[e]:
			scores[e] = unused
		case sumToOne:
			scores[e] /= kept
		}
		taken[e] = false
	}
}

// softmax is over a short row, summed in order.
func softmax(x []float32) {
	biggest := x[0]
	for _, v := range x {
		biggest = max(biggest, v)
	}
	sum := float32(0)
	for i, v := range x {
		x[i] = tensor.Exp32(v - biggest)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

// addScaled is dst += w*x.
func addScaled(dst, x []float32, w float32) {
	for i, v := range x {
		dst[i] += float32(w * v)
	}
}

// cut makes an (n, cols) matrix of the beginning of a wider one's memory.
func cut(x tensor.F32, n, cols int) tensor.F32 {
	return tensor.F32{Data: x.Data[:n*cols], Rows: n, Cols: cols}
}

package tensor

import "math"

// softmax turns a pair's scores, by slot, into e_p, by position. origin is the position of scores[0].
func (p *attendPair) softmax(params *AttnParams, origin, base int) {
	p.walkToPositions(origin, base)
	scores := p.scores[p.lo-origin : p.end-origin]
	biggest := float32(math.Inf(-1))
	for i, s := range scores {
		s *= params.Scale
		if params.Softcap > 0 {
			s = params.Softcap * tanh32(s/params.Softcap)
		}
		scores[i] = s
		biggest = max(biggest, s)
	}
	var lanes [Lanes]float32
	for i, s := range scores {
		e := Exp32(s - biggest)
		scores[i] = e
		lanes[(p.lo+i)%Lanes] += e
	}
	p.sum = sumLanes(&lanes)
	clear(p.out)
}

// walkToPositions moves the scores of a tree path from its slots to its positions; a row of a span is never before its
// place in the path.
func (p *attendPair) walkToPositions(origin, base int) {
	for k := max(p.lo-base, 0); k < len(p.path); k++ {
		p.scores[p.place(base+k-origin)] = p.scores[p.place(base+int(p.path[k])-origin)]
	}
}

// place is where the score of a position or slot after the origin lies.
func (p *attendPair) place(at int) int { return at/Lanes*p.step + at%Lanes }

// addValues adds the visible values of one block, (16, headDim), whose first slot is given.
func (p *attendPair) addValues(block []float32, slot, origin, base int) {
	dim := len(p.out)
	run := p.end // one past the last position that lies in the slot of the same number
	if p.path != nil {
		run = min(run, base)
	}
	if lo, hi := max(p.lo, slot), min(run, slot+KVBlock); lo < hi {
		addRows(p.out, p.scores[lo-origin:hi-origin], block[(lo-slot)*dim:])
	}
	for ; p.walked < len(p.path) && base+int(p.path[p.walked]) < slot+KVBlock; p.walked++ {
		if pos := base + p.walked; pos >= p.lo {
			row := base + int(p.path[p.walked]) - slot
			addRows(p.out, p.scores[pos-origin:pos-origin+1], block[row*dim:])
		}
	}
}

// divide ends the softmax.
func (p *attendPair) divide() {
	for d := range p.out {
		p.out[d] /= p.sum
	}
}

// scoreBlock sets scores[lane] to the sum over d in order of q[d]*k[d*16+lane]. Eight lanes at a time stay in registers.
func scoreBlock(scores *[KVBlock]float32, q, k []float32) {
	for half := 0; half < KVBlock; half += 8 {
		var s0, s1, s2, s3, s4, s5, s6, s7 float32
		k := k[half:]
		for _, x := range q {
			v := (*[8]float32)(k)
			s0 += float32(x * v[0])
			s1 += float32(x * v[1])
			s2 += float32(x * v[2])
			s3 += float32(x * v[3])
			s4 += float32(x * v[4])
			s5 += float32(x * v[5])
			s6 += float32(x * v[6])
			s7 += float32(x * v[7])
			k = k[min(KVBlock, len(k)):]
		}
		*(*[8]float32)(scores[half:]) = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	}
}

// addRows adds e[i]*v[i*len(out)+d] to out[d], i in order. Four rows share one trip over out.
func addRows(out, e, v []float32) {
	n := len(out)
	for ; len(e) >= 4; e = e[4:] {
		e0, e1, e2, e3 := e[0], e[1], e[2], e[3]
		v0, v1, v2, v3 := v[:n], v[n:][:n], v[2*n:][:n], v[3*n:][:n]
		for d, x := range out {
			x += float32(e0 * v0[d])
			x += float32(e1 * v1[d])
			x += float32(e2 * v2[d])
			out[d] = x + float32(e3*v3[d])
		}
		v = v[4*n:]
	}
	for i, x := range e {
		row := v[i*n:][:n]
		for d := range out {
			out[d] += float32(x * row[d])
		}
	}
}

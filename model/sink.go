package model

import (
	"encoding/binary"
	"math"
	"unsafe"

	"quickdraft/quant"
	"quickdraft/tensor"
)

// The first token of a sequence is where attention of later ones rests, and many models give it activations of thousands,
// which a late feed-forward cancels almost exactly. There int8 activations are too coarse: in Qwen2.5-Coder-1.5B they
// moved that token's negative log-likelihood by 0.5, and by 0.02 with what is done here. Its input to gate and up is split
// in what int8 holds and the rest, the rest goes through the same matrices as a row of its own behind the others, and the
// two results are added. A prompt gets one row longer in these matrices; other tokens are as they were.

// gateUp is MatMuls of a layer's input, x or h of the pass, with its gate and up matrices.
func (p *pass) gateUp(x tensor.F32, gate, up tensor.Proj) {
	if len(p.firsts) == 0 || isFloat(gate.W) && isFloat(up.W) {
		p.cpu.MatMuls(x, gate, up)
		return
	}
	n, wider := x.Rows, x.Rows+len(p.firsts)
	wide := p.widen(x, wider)
	for i, row := range p.firsts {
		p.rest(wide.Row(n+i), x.Row(int(row)))
	}
	wideGate, wideUp := p.widen(gate.Dst, wider), p.widen(up.Dst, wider)
	p.cpu.MatMuls(wide, tensor.Proj{Dst: wideGate, W: gate.W}, tensor.Proj{Dst: wideUp, W: up.W})
	for i, row := range p.firsts {
		if !isFloat(gate.W) { // a float matrix has taken x as it is
			addScaled(gate.Dst.Row(int(row)), wideGate.Row(n+i), 1)
		}
		if !isFloat(up.W) {
			addScaled(up.Dst.Row(int(row)), wideUp.Row(n+i), 1)
		}
	}
	addBias(gate)
	addBias(up)
}

func addBias(proj tensor.Proj) {
	if proj.Bias == nil {
		return
	}
	for i := range proj.Dst.Rows {
		addScaled(proj.Dst.Row(i), proj.Bias, 1)
	}
}

func isFloat(w *tensor.Mat) bool {
	format, ok := quant.Get(w.Type)
	return ok && format.Float
}

// widen gives one of the pass's buffers more rows.
func (p *pass) widen(x tensor.F32, rows int) tensor.F32 {
	for _, full := range []*tensor.F32{&p.full.x, &p.full.h, &p.full.gate, &p.full.up} {
		if unsafe.SliceData(full.Data) == unsafe.SliceData(x.Data) {
			return full.Head(rows)
		}
	}
	panic("model: not a buffer of the pass that has room for first tokens")
}

// rest is dst = x minus what is left of x after quantisation.
func (p *pass) rest(dst, x []float32) {
	quant.QuantizeRow(p.codes[:quant.ActBytes(len(x))], x)
	for at := 0; at < len(x); at += quant.ActBlockCols {
		block := p.codes[at/quant.ActBlockCols*quant.ActBlockBytes:]
		scale := math.Float32frombits(binary.LittleEndian.Uint32(block[quant.ActBlockCols:]))
		for i, v := range x[at : at+quant.ActBlockCols] {
			dst[at+i] = v - float32(float32(int8(block[i]))*scale)
		}
	}
}

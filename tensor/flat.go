package tensor

import "fmt"

// flatTask does element-wise operations: every element on its own, so any split gives the same bits.
type flatTask struct {
	op      flatOp
	kernels *kernelSet
	dst     []float32
	a, b    []float32
	factor  float32
}

type flatOp uint8

const (
	flatAdd flatOp = iota
	flatScale
	flatSiLU
	flatGELU
	flatSoftcap
)

// expElements weighs an element of an operation with an exponential against serialElements.
const expElements = 8

// Add is dst += a.
func (c *CPU) Add(dst, a F32) {
	mustSame("Add", dst, a)
	c.flat = flatTask{kernels: c.kernels, op: flatAdd, dst: dst.Data, a: a.Data}
	c.run(&c.flat, len(dst.Data))
}

// Scale is dst *= s.
func (c *CPU) Scale(dst F32, s float32) {
	c.flat = flatTask{kernels: c.kernels, op: flatScale, dst: dst.Data, factor: s}
	c.run(&c.flat, len(dst.Data))
}

// SiLUMul is dst = gate/(1+e^-gate) * up. dst may be gate or up.
func (c *CPU) SiLUMul(dst, gate, up F32) { c.gated("SiLUMul", flatSiLU, dst, gate, up) }

// GELUTanhMul is dst = gelu(gate) * up with the tanh form of GELU, computed as g/(1+e^-2u),
// u = sqrt(2/pi)*(g + 0.044715*g^3), which is the same function. dst may be gate or up.
func (c *CPU) GELUTanhMul(dst, gate, up F32) { c.gated("GELUTanhMul", flatGELU, dst, gate, up) }

func (c *CPU) gated(name string, op flatOp, dst, gate, up F32) {
	mustSame(name, dst, gate)
	mustSame(name, dst, up)
	c.flat = flatTask{kernels: c.kernels, op: op, dst: dst.Data, a: gate.Data, b: up.Data}
	c.run(&c.flat, len(dst.Data)*expElements)
}

// Softcap is dst = cap*tanh(dst/cap).
func (c *CPU) Softcap(dst F32, cap float32) {
	if !(cap > 0) {
		panic(fmt.Sprintf("tensor: Softcap(%v), must be positive", cap))
	}
	c.flat = flatTask{kernels: c.kernels, op: flatSoftcap, dst: dst.Data, factor: cap}
	c.run(&c.flat, len(dst.Data)*expElements)
}

// Do does a worker's share, in whole cache lines so that no two workers write the same one.
func (t *flatTask) Do(worker, nWorkers int) {
	lines := (len(t.dst) + Lanes - 1) / Lanes
	lo, hi := share(lines, worker, nWorkers)
	lo, hi = lo*Lanes, min(hi*Lanes, len(t.dst))
	if lo >= hi {
		return
	}
	dst := t.dst[lo:hi]
	switch t.op {
	case flatAdd:
		t.kernels.addTo(dst, t.a[lo:hi])
	case flatScale:
		t.kernels.scaleBy(dst, t.factor)
	case flatSiLU:
		t.kernels.siluMul(dst, t.a[lo:hi], t.b[lo:hi])
	case flatGELU:
		t.kernels.geluTanhMul(dst, t.a[lo:hi], t.b[lo:hi])
	case flatSoftcap:
		t.kernels.softcapAll(dst, t.factor)
	}
}

func addTo(dst, a []float32) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] += a[i]
	}
}

func siluMul(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i, g := range gate {
		dst[i] = float32(g/(1+Exp32(-g))) * up[i]
	}
}

// Constants of the tanh form of GELU: -2*sqrt(2/pi) and the cubic's factor.
const (
	geluScale = -1.5957691216057308
	geluCubic = 0.044715
)

func geluTanhMul(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i, g := range gate {
		cube := float32(float32(g*g) * g)
		u := g + float32(geluCubic*cube)
		dst[i] = float32(g/(1+Exp32(float32(geluScale*u)))) * up[i]
	}
}

func softcap(dst []float32, cap float32) {
	for i, x := range dst {
		dst[i] = cap * tanh32(x/cap)
	}
}

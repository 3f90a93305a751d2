package tensor

import (
	"fmt"
	"slices"

	"quickdraft/internal/detmath"
)

// Rope is a rotary position embedding. It must not change once it was used.
type Rope struct {
	InvFreq []float32 // (RotDim/2): the angle of pair i at position p is p*InvFreq[i], rounded to float32
	Scale   float32   // factor on cosine and sine (the attention factor of YaRN and LongRoPE); 0 counts as 1
	RotDim  int       // columns of a head that are rotated, even; the rest stay
}

// Rope rotates, in place, every head of headDim columns of x by its row's position: column i < RotDim/2 pairs with
// column i + RotDim/2. pos is (Rows).
func (c *CPU) Rope(x F32, headDim int, pos []int32, r *Rope) {
	mustHeads("Rope", x, headDim)
	if len(pos) != x.Rows || r.RotDim%2 != 0 || r.RotDim > headDim || len(r.InvFreq) != r.RotDim/2 {
		panic(fmt.Sprintf("tensor: Rope of %d rows, heads of %d, with %d positions, %d rotated columns, %d frequencies",
			x.Rows, headDim, len(pos), r.RotDim, len(r.InvFreq)))
	}
	table := c.ropeTable(pos, r)
	c.rows = rowsTask{op: rowsRope, x: x, headDim: headDim, rope: r, table: table}
	c.runRows(len(x.Data))
}

// ropeTable holds the cosines and sines of one pass: all layers of a pass rotate by the same positions.
type ropeTable struct {
	rope   *Rope
	pos    []int32
	cosSin []float32 // (len(pos), RotDim): RotDim/2 cosines, then as many sines
}

// ropeTables keeps the tables of the last pass. Models use at most two kinds of rope; four leave room for a draft.
type ropeTables struct {
	tables [4]ropeTable
	next   int
}

// ropeTable finds or computes the table of these positions.
func (c *CPU) ropeTable(pos []int32, r *Rope) *ropeTable {
	ts := &c.tables
	for i := range ts.tables {
		if t := &ts.tables[i]; t.rope == r && slices.Equal(t.pos, pos) {
			return t
		}
	}
	t := &ts.tables[ts.next]
	for i := range ts.tables { // a table of the same rope is out of date
		if ts.tables[i].rope == r {
			t = &ts.tables[i]
		}
	}
	if t == &ts.tables[ts.next] {
		ts.next = (ts.next + 1) % len(ts.tables)
	}
	t.rope = r
	t.pos = append(t.pos[:0], pos...)
	t.cosSin = slices.Grow(t.cosSin[:0], len(pos)*r.RotDim)[:len(pos)*r.RotDim]
	c.rows = rowsTask{op: rowsRopeTable, x: F32{Rows: len(pos)}, rope: r, table: t}
	c.run(&c.rows, len(t.cosSin)*expElements*4)
	return t
}

func (t *ropeTable) row(i int) []float32 {
	return t.cosSin[i*t.rope.RotDim : (i+1)*t.rope.RotDim]
}

func (t *ropeTable) fill(i int, r *Rope) {
	scale := r.Scale
	if scale == 0 {
		scale = 1
	}
	half := r.RotDim / 2
	row := t.row(i)
	for k, f := range r.InvFreq {
		angle := float64(float32(t.pos[i]) * f)
		row[k] = float32(detmath.Cos(angle)) * scale
		row[half+k] = float32(detmath.Sin(angle)) * scale
	}
}

// rotate turns the pairs (lo[i], hi[i]) by the angles whose cosines and sines are given.
func rotate(lo, hi, cos, sin []float32) {
	lo, hi, sin = lo[:len(cos)], hi[:len(cos)], sin[:len(cos)]
	for i, c := range cos {
		a, b, s := lo[i], hi[i], sin[i]
		lo[i] = float32(a*c) - float32(b*s)
		hi[i] = float32(b*c) + float32(a*s)
	}
}

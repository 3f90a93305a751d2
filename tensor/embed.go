package tensor

import (
	"fmt"

	"quickdraft/quant"
)

// embedTask decodes rows of an embedding matrix.
type embedTask struct {
	dst   F32
	w     *Mat
	ids   []int32
	scale float32
}

// Embed writes row ids[i] of w, times scale, to row i of dst, (len(ids), w.Cols).
func (c *CPU) Embed(dst F32, w *Mat, ids []int32, scale float32) {
	if dst.Rows != len(ids) || dst.Cols != w.Cols {
		panic(fmt.Sprintf("tensor: Embed of %d ids of %q (%d x %d) into (%d, %d)", len(ids), w.Name, w.Rows, w.Cols, dst.Rows,
			dst.Cols))
	}
	for _, id := range ids {
		if id < 0 || int(id) >= w.Rows {
			panic(fmt.Sprintf("tensor: Embed of id %d, %q has %d rows", id, w.Name, w.Rows))
		}
	}
	c.embed = embedTask{dst: dst, w: w, ids: ids, scale: scale}
	c.run(&c.embed, len(dst.Data))
}

// Do does a worker's share of the rows.
func (t *embedTask) Do(worker, nWorkers int) {
	lo, hi := share(len(t.ids), worker, nWorkers)
	for i := lo; i < hi; i++ {
		tile, r := int(t.ids[i])/quant.TileRows, int(t.ids[i])%quant.TileRows
		row := t.dst.Row(i)
		t.w.format.UnpackRow(row, t.w.Tiles[tile*t.w.tileSize:(tile+1)*t.w.tileSize], r)
		if t.scale != 1 {
			for k := range row {
				row[k] *= t.scale
			}
		}
	}
}

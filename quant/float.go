package quant

// floatChunk is how many columns of a tile the float formats convert at a time before all activation rows use them.
const floatChunk = 32

// dotChunk adds n columns of a tile, as float32, to 16 accumulators: acc + w*x, each rounded, column after column. Eight
// rows at a time stay in registers.
func dotChunk(acc []float32, w *[floatChunk][TileRows]float32, act []byte, n int) {
	w0, act := w[:n], act[:4*n]
	for h := 0; h < TileRows; h += 8 {
		a := (*[8]float32)(acc[h:])
		a0, a1, a2, a3, a4, a5, a6, a7 := a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
		for c := range w0 {
			x, v := floatAt(act[4*c:]), (*[8]float32)(w0[c][h:])
			a0 += float32(v[0] * x)
			a1 += float32(v[1] * x)
			a2 += float32(v[2] * x)
			a3 += float32(v[3] * x)
			a4 += float32(v[4] * x)
			a5 += float32(v[5] * x)
			a6 += float32(v[6] * x)
			a7 += float32(v[7] * x)
		}
		*a = [8]float32{a0, a1, a2, a3, a4, a5, a6, a7}
	}
}

// packHalves packs rows of 16-bit weights: 16 rows of one column together, column after column.
func packHalves(dst []byte, src *[TileRows][]byte) {
	n := len(dst) / halves16
	for r, row := range src {
		for c := range n {
			le.PutUint16(dst[c*halves16+2*r:], le.Uint16(fileBlock(row, c, 2)))
		}
	}
}

package quant

// floatChunk is how many columns of a tile the float formats convert at a time before all activation rows use them.
const floatChunk = 32

// dotChunk adds n columns of a tile, as float32, to 16 accumulators: acc + w*x, each rounded, column after column.
func dotChunk(acc []float32, w *[floatChunk][TileRows]float32, act []byte, n int) {
	acc = acc[:TileRows]
	for c := range n {
		x := floatAt(act[4*c:])
		for r := range acc {
			acc[r] += float32(w[c][r] * x)
		}
	}
}

// packWords packs rows of weights of size bytes each: one column after the other, 16 rows of a column together.
func packWords(dst []byte, src *[TileRows][]byte, size int) {
	n := len(dst) / (TileRows * size)
	for r, row := range src {
		for c := range n {
			copy(dst[(c*TileRows+r)*size:][:size], fileBlock(row, c, size))
		}
	}
}

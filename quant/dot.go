package quant

// The shared steps of the reference dot products. They work on a part (32 columns) of a tile: integer sums of 16 rows
// against one activation block, then one fused multiply-add a row and scale.

// dots holds one exact integer sum for each row of a tile.
type dots [TileRows]int32

// rowScales holds one float32 for each row of a tile.
type rowScales [TileRows]float32

// dotHalves sums code times activation over columns 0..15 and 16..31, for codes below 64 that stand for code - zero.
//
// Two rows and two columns share one 64-bit multiplication, in signed lanes of 16 bits: columns 0 and 2 of a group are
// c0 + c2<<16 for both rows, the activations are a2 + a0<<16, and lanes 1 and 3 of the product are c0*a0 + c2*a2. Columns 1
// and 3 are added in the same lanes: at most 4*63*127 = 32004, so that adding 2^15 to each lane makes all of them
// unsigned and no lane borrows from the next.
func (w *lines) dotHalves(lo, hi *dots, a actBlock, zero int32) {
	const (
		evenBytes = 0x00ff00ff00ff00ff
		oddLanes  = 0x0000ffff0000ffff
		bias      = 0x8000800080008000
	)
	a = a[:ActBlockBytes]
	var even, odd [8]uint64
	for g := range even {
		even[g] = uint64(int64(int8(a[4*g+2])) + int64(int8(a[4*g]))<<16)
		odd[g] = uint64(int64(int8(a[4*g+3])) + int64(int8(a[4*g+1]))<<16)
	}
	offsetLo, offsetHi := 4<<15+zero*a.isumLo(), 4<<15+zero*a.isumHi()
	for q := range TileRows / 2 {
		var x, y uint64
		for g := range 4 {
			v := w[g][q]
			x += (v&evenBytes*even[g] + v>>8&evenBytes*odd[g] + bias) >> 16 & oddLanes
			v = w[g+4][q]
			y += (v&evenBytes*even[g+4] + v>>8&evenBytes*odd[g+4] + bias) >> 16 & oddLanes
		}
		lo[2*q], lo[2*q+1] = int32(uint32(x))-offsetLo, int32(x>>32)-offsetLo
		hi[2*q], hi[2*q+1] = int32(uint32(y))-offsetHi, int32(y>>32)-offsetHi
	}
}

// dot is dotHalves summed over all 32 columns.
func (w *lines) dot(sum *dots, a actBlock, zero int32) {
	var hi dots
	w.dotHalves(sum, &hi, a, zero)
	for r, v := range hi {
		sum[r] += v
	}
}

// dotWide is dot for codes up to 255. Two rows share a multiplication in signed lanes of 32 bits.
func (w *lines) dotWide(sum *dots, a actBlock, zero int32) {
	const firstBytes = 0x000000ff000000ff
	a = a[:ActBlockBytes]
	var x [ActBlockCols]uint64
	for c := range x {
		x[c] = uint64(int64(int8(a[c])))
	}
	offset := zero * (a.isumLo() + a.isumHi())
	for q := range TileRows / 2 {
		var s uint64
		for g := range w {
			v := w[g][q]
			s += v&firstBytes*x[4*g] + v>>8&firstBytes*x[4*g+1] + v>>16&firstBytes*x[4*g+2] + v>>24&firstBytes*x[4*g+3]
		}
		low := int32(uint32(s))
		sum[2*q], sum[2*q+1] = low-offset, int32((s-uint64(int64(low)))>>32)-offset
	}
}

// mulAdd adds sum * (w*a) to the rows of acc.
func mulAdd(acc []float32, sum *dots, w *rowScales, a float32) {
	acc = acc[:TileRows]
	for r := range acc {
		x, y := float32(sum[r]), float32(w[r]*a)
		s := fmaSum(x, y, acc[r])
		if mayTie(s) {
			acc[r] = fmaTie(x, y, acc[r])
			continue
		}
		acc[r] = float32(s)
	}
}

// minAdd adds m * t to the rows of acc.
func minAdd(acc []float32, m *rowScales, t float32) {
	acc = acc[:TileRows]
	for r := range acc {
		s := fmaSum(m[r], t, acc[r])
		if mayTie(s) {
			acc[r] = fmaTie(m[r], t, acc[r])
			continue
		}
		acc[r] = float32(s)
	}
}

// loadHalves reads the f16 of 16 rows.
func (s *rowScales) loadHalves(src []byte) {
	for r := range s {
		s[r] = halfAt(src[2*r:])
	}
}

// clearDots sets the accumulators of m activation rows and nTiles tiles to +0.
func clearDots(dst []float32, dstStride, nTiles, m int) {
	for i := range m {
		clear(dst[i*dstStride:][:nTiles*TileRows])
	}
}

// zeroBlock stands for a block of a padding row. In every format zero bytes decode to zeros.
var zeroBlock [256]byte

// fileBlock returns block b of a row of blocks of size bytes; a nil row has zero blocks.
func fileBlock(row []byte, b, size int) []byte {
	if row == nil {
		return zeroBlock[:size]
	}
	return row[b*size:][:size]
}

// expand decodes columns first, first+1, ... of a part: d * (code - zero).
func (u *codes) expand(dst []float32, first int, d float32, zero int32) {
	for c := range dst {
		dst[c] = d * float32(int32(u.at(first+c))-zero)
	}
}

// expandMin decodes columns first, first+1, ... of a part: d*code + m, rounded twice.
func (u *codes) expandMin(dst []float32, first int, d, m float32) {
	for c := range dst {
		dst[c] = float32(d*float32(u.at(first+c))) + m
	}
}

// expandTable decodes the columns of a part: d * table[code].
func (u *codes) expandTable(dst []float32, d float32, table *[16]int8) {
	for c := range dst {
		dst[c] = d * float32(table[u.at(c)])
	}
}

package quant

import "quickdraft/modelfile/gguf"

// Q4_K: 256 weights in 8 parts of 32; in part j w = (d*sc[j]) * q - dmin*mn[j], sc and mn of 6 bits.
//
//	file, 144 bytes                               tile, 2368 bytes
//	  0  f16 d                                       0  16 x f16 d
//	  2  f16 dmin                                   32  16 x f16 dmin
//	  4  12 bytes sc, mn (see scales6)              64  8 parts: 16 x u8 sc[j], 16 x u8 mn[j]
//	 16  4 x 32 bytes: q of part 2k in bits 0..3,  320  8 parts: P4 plane of q
//	     of part 2k+1 in bits 4..7
var formatQ4_K = Format{
	Type: gguf.TypeQ4_K, Name: "Q4_K", BlockSize: 256, BlockBytes: 144, TileBytes: q4kTile, scales: []int{0, 2},
	Decode: decodeQ4_K, Encode: encoder(encodeQ4_K).even, EncodeWeighted: encodeQ4_K, Pack: packQ4_K, UnpackRow: unpackQ4_K, DotRef: dotQ4_K,
}

const (
	kParts = 8 // parts of a block of 256

	q4kMin    = halves16
	q4kScales = q4kMin + halves16
	q4kCodes  = q4kScales + kParts*2*bytes16
	q4kTile   = q4kCodes + kParts*p4Bytes
)

// scales6 returns scale and min of part j of the 12 bytes of Q4_K and Q5_K. Parts 0..3 have sc in the low 6 bits of byte
// j and mn in those of byte j+4. Parts 4..7 have their low nibbles in byte j+4 (sc low, mn high) and their top two bits
// in the top of bytes j-4 (sc) and j (mn).
func scales6(s []byte, j int) (sc, mn byte) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

// putScales6 stores scale and min of part j; the bytes are zero before part 0.
func putScales6(s []byte, j int, sc, mn byte) {
	if j < 4 {
		s[j], s[j+4] = sc, mn
		return
	}
	s[j+4] = sc&15 | mn<<4
	s[j-4] |= sc >> 4 << 6
	s[j] |= mn >> 4 << 6
}

func (u *codes) codes4K(block []byte, j int) { u.field(block[16+j/2*32:], j&1*4, mask4) }

func decodeQ4_K(dst []float32, src []byte) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := src[b*144:][:144]
		d, dmin := halfAt(block), halfAt(block[2:])
		for j := range kParts {
			u.codes4K(block, j)
			sc, mn := scales6(block[4:], j)
			u.expandMin(dst[b*256+j*32:][:32], 0, d*float32(sc), -float32(dmin*float32(mn)))
		}
	}
}

func encodeQ4_K(dst []byte, src, w []float32) {
	for b := 0; b*256 < len(src); b++ {
		block, x := dst[b*144:][:144], src[b*256:][:256]
		clear(block)
		for j, a := range encodeScalesK(block, x, w, b, 15) {
			coder := a.coder(15)
			for c, v := range x[j*32:][:32] {
				block[16+j/2*32+c] |= byte(coder.code(v)) << (j & 1 * 4)
			}
		}
	}
}

// encodeScalesK finds and stores d, dmin, sc and mn of block b, Q4_K or Q5_K, of a row whose importances are w, and returns
// what they stand for.
func encodeScalesK(block []byte, x, w []float32, b, top int) (fits [kParts]affine) {
	for j := range fits {
		fits[j] = fitAffine(x[j*32:][:32], importance(w, b*256+j*32, 32), top)
	}
	d, dmin := putUnits(block, fits[:], 63)
	for j, fit := range fits {
		sc, mn := roundAffine(x[j*32:][:32], importance(w, b*256+j*32, 32), top, fit, d, dmin, 63)
		putScales6(block[4:], j, sc, mn)
		fits[j] = affine{float32(d * float32(sc)), float32(dmin * float32(mn))}
	}
	return fits
}

func packQ4_K(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q4kTile < len(dst); b++ {
		tile := dst[b*q4kTile:][:q4kTile]
		for r, row := range src {
			block := fileBlock(row, b, 144)
			packScalesK(tile, block, r)
			for j := range kParts {
				u.codes4K(block, j)
				u.put4(tile[q4kCodes+j*p4Bytes:], r)
			}
		}
	}
}

// packScalesK writes d, dmin, sc and mn of row r of Q4_K and Q5_K, which share this part of their layouts.
func packScalesK(tile, block []byte, r int) {
	copy(tile[2*r:], block[:2])
	copy(tile[q4kMin+2*r:], block[2:4])
	for j := range kParts {
		at := tile[q4kScales+j*2*bytes16:]
		at[r], at[bytes16+r] = scales6(block[4:], j)
	}
}

// scaleK returns scale and min of row r in part j of a Q4_K or Q5_K tile.
func scaleK(tile []byte, j, r int) (w, m float32) {
	at := tile[q4kScales+j*2*bytes16:]
	return float32(halfAt(tile[2*r:]) * float32(at[r])), float32(halfAt(tile[q4kMin+2*r:]) * float32(at[bytes16+r]))
}

func unpackQ4_K(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := tile[b*q4kTile:][:q4kTile]
		for j := range kParts {
			u.get4(block[q4kCodes+j*p4Bytes:], r)
			w, m := scaleK(block, j, r)
			u.expandMin(dst[b*256+j*32:][:32], 0, w, -m)
		}
	}
}

func dotQ4_K(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var scale, low rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q4kTile:][:q4kTile]
			for j := range kParts {
				w.load4(block[q4kCodes+j*p4Bytes:])
				loadScalesK(&scale, &low, block, j)
				for i := range m {
					a := actBlock(act[(b*kParts+j)*actStride+i*ActBlockBytes:][:ActBlockBytes])
					w.dot(&sum, a, 0)
					acc := dst[i*dstStride+t*TileRows:]
					mulAdd(acc, &sum, &scale, a.scale())
					minAdd(acc, &low, a.sum())
				}
			}
		}
	}
}

// loadScalesK reads d*sc and -(dmin*mn) of part j for all rows of a Q4_K or Q5_K tile.
func loadScalesK(scale, low *rowScales, tile []byte, j int) {
	for r := range scale {
		w, m := scaleK(tile, j, r)
		scale[r], low[r] = w, -m
	}
}

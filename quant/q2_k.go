package quant

import "quickdraft/modelfile/gguf"

// Q2_K: 256 weights in 8 parts of 32, each of two halves of 16; in half h w = (d*sc[h]) * q - dmin*mn[h], sc and mn of 4
// bits.
//
//	file, 84 bytes                                tile, 1344 bytes
//	  0  16 bytes sc[h] | mn[h]<<4                   0  16 x f16 d
//	 16  2 x 32 bytes: bits 2k, 2k+1 of byte c      32  16 x f16 dmin
//	     = q of column c in part 4n+k               64  16 halves: 16 bytes sc[h] | mn[h]<<4
//	 80  f16 d                                     320  8 parts: P2 plane of q
//	 82  f16 dmin
var formatQ2_K = Format{
	Type: gguf.TypeQ2_K, Name: "Q2_K", BlockSize: 256, BlockBytes: 84, TileBytes: q2kTile, scales: []int{80, 82},
	Decode: decodeQ2_K, Encode: encoder(encodeQ2_K).even, EncodeWeighted: encodeQ2_K, Pack: packQ2_K, UnpackRow: unpackQ2_K, DotRef: dotQ2_K,
}

const (
	q2kMin    = halves16
	q2kScales = q2kMin + halves16
	q2kCodes  = q2kScales + kHalves*bytes16
	q2kTile   = q2kCodes + kParts*p2Bytes
)

func (u *codes) codes2K(block []byte, j int) { u.field(block[16+j/4*32:], j%4*2, mask2) }

func decodeQ2_K(dst []float32, src []byte) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := src[b*84:][:84]
		d, dmin := halfAt(block[80:]), halfAt(block[82:])
		for j := range kParts {
			u.codes2K(block, j)
			for h := 2 * j; h < 2*j+2; h++ {
				s := block[h]
				u.expandMin(dst[b*256+h*16:][:16], h&1*16, d*float32(s&15), -float32(dmin*float32(s>>4)))
			}
		}
	}
}

func encodeQ2_K(dst []byte, src, w []float32) {
	for b := 0; b*256 < len(src); b++ {
		block, x := dst[b*84:][:84], src[b*256:][:256]
		clear(block)
		var fits [kHalves]affine
		for h := range fits {
			fits[h] = fitAffine(x[h*16:][:16], importance(w, b*256+h*16, 16), 3)
		}
		d, dmin := putUnits(block[80:], fits[:], 15)
		for h, fit := range fits {
			part := x[h*16:][:16]
			sc, mn := roundAffine(part, importance(w, b*256+h*16, 16), 3, fit, d, dmin, 15)
			block[h] = sc | mn<<4
			coder := affine{float32(d * float32(sc)), float32(dmin * float32(mn))}.coder(3)
			for i, v := range part {
				block[16+h/8*32+h&1*16+i] |= byte(coder.code(v)) << (h / 2 % 4 * 2)
			}
		}
	}
}

func packQ2_K(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q2kTile < len(dst); b++ {
		tile := dst[b*q2kTile:][:q2kTile]
		for r, row := range src {
			block := fileBlock(row, b, 84)
			copy(tile[2*r:], block[80:82])
			copy(tile[q2kMin+2*r:], block[82:84])
			for h := range kHalves {
				tile[q2kScales+h*bytes16+r] = block[h]
			}
			for j := range kParts {
				u.codes2K(block, j)
				u.put2(tile[q2kCodes+j*p2Bytes:], r, 0)
			}
		}
	}
}

func unpackQ2_K(dst []float32, tile []byte, r int) {
	for b := 0; b*256 < len(dst); b++ {
		block := tile[b*q2kTile:][:q2kTile]
		d, dmin := halfAt(block[2*r:]), halfAt(block[q2kMin+2*r:])
		for j := range kParts {
			var u codes
			u.or2(block[q2kCodes+j*p2Bytes:], r, 0)
			for h := 2 * j; h < 2*j+2; h++ {
				s := block[q2kScales+h*bytes16+r]
				u.expandMin(dst[b*256+h*16:][:16], h&1*16, d*float32(s&15), -float32(dmin*float32(s>>4)))
			}
		}
	}
}

func dotQ2_K(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d, dmin, scaleLo, scaleHi, lowLo, lowHi rowScales
	var lo, hi dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q2kTile:][:q2kTile]
			d.loadHalves(block)
			dmin.loadHalves(block[q2kMin:])
			for j := range kParts {
				w.load2(block[q2kCodes+j*p2Bytes:])
				loadScales2K(&scaleLo, &lowLo, &d, &dmin, block[q2kScales+2*j*bytes16:])
				loadScales2K(&scaleHi, &lowHi, &d, &dmin, block[q2kScales+(2*j+1)*bytes16:])
				for i := range m {
					a := actBlock(act[(b*kParts+j)*actStride+i*ActBlockBytes:][:ActBlockBytes])
					w.dotHalves(&lo, &hi, a, 0)
					acc := dst[i*dstStride+t*TileRows:]
					mulAdd(acc, &lo, &scaleLo, a.scale())
					minAdd(acc, &lowLo, a.sumLo())
					mulAdd(acc, &hi, &scaleHi, a.scale())
					minAdd(acc, &lowHi, a.sumHi())
				}
			}
		}
	}
}

// loadScales2K reads d*sc and -(dmin*mn) of one half for all rows.
func loadScales2K(scale, low, d, dmin *rowScales, src []byte) {
	for r := range scale {
		scale[r] = d[r] * float32(src[r]&15)
		low[r] = -(dmin[r] * float32(src[r]>>4))
	}
}

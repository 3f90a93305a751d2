package quant

import "quickdraft/modelfile/gguf"

// Q3_K: 256 weights in 8 parts of 32, each of two halves of 16; in half h w = (d*(sc[h]-32)) * (q - 4), sc of 6 bits.
//
//	file, 110 bytes                               tile, 1824 bytes
//	  0  32 bytes: bit j of byte c = bit 2 of q      0  16 x f16 d
//	     of column c in part j                      32  16 halves: 16 x i8 sc[h] - 32
//	 32  2 x 32 bytes: bits 2k, 2k+1 of byte c =   288  8 parts of 192 bytes: P2 plane of bits 0..1 of q,
//	     bits 0..1 of q in part 4n+k                    P1 plane of bit 2
//	 96  12 bytes sc (see scale3K)
//	108  f16 d
var formatQ3_K = Format{
	Type: gguf.TypeQ3_K, Name: "Q3_K", BlockSize: 256, BlockBytes: 110, TileBytes: q3kTile, scales: []int{108},
	Decode: decodeQ3_K, Encode: encoder(encodeQ3_K).even, EncodeWeighted: encodeQ3_K, Pack: packQ3_K, UnpackRow: unpackQ3_K, DotRef: dotQ3_K,
}

const (
	q3kZero   = 4
	q3kScales = halves16
	q3kCodes  = q3kScales + kHalves*bytes16
	q3kPart   = p2Bytes + p1Bytes
	q3kTile   = q3kCodes + kParts*q3kPart
)

// scale3K returns the signed scale of half h: the low nibbles of halves 0..7 and 8..15 are the low and high nibbles of
// bytes 0..7, the top two bits of half h are bits 2(h/4), 2(h/4)+1 of byte 8 + h%4.
func scale3K(s []byte, h int) int8 {
	return int8(s[h&7]>>(h>>3*4)&15|s[8+h&3]>>(h>>2*2)&3<<4) - 32
}

// putScale3K stores the signed scale of half h; the bytes are zero before half 0.
func putScale3K(s []byte, h int, sc int8) {
	v := byte(sc + 32)
	s[h&7] |= v & 15 << (h >> 3 * 4)
	s[8+h&3] |= v >> 4 << (h >> 2 * 2)
}

func (u *codes) codes3K(block []byte, j int) {
	u.field(block[32+j/4*32:], j%4*2, mask2)
	u.orField(block, j, mask1, 2)
}

func decodeQ3_K(dst []float32, src []byte) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := src[b*110:][:110]
		d := halfAt(block[108:])
		for j := range kParts {
			u.codes3K(block, j)
			for h := 2 * j; h < 2*j+2; h++ {
				u.expand(dst[b*256+h*16:][:16], h&1*16, d*float32(scale3K(block[96:], h)), q3kZero)
			}
		}
	}
}

func encodeQ3_K(dst []byte, src, w []float32) {
	g := &grid{low: -q3kZero, high: q3kZero - 1}
	for b := 0; b*256 < len(src); b++ {
		block, x := dst[b*110:][:110], src[b*256:][:256]
		clear(block)
		var scales [kHalves]float32
		for h := range scales {
			scales[h] = fitScale(x[h*16:][:16], importance(w, b*256+h*16, 16), g, g.low)
		}
		d := putHalf(block[108:], farthest(scales[:])/-32)
		for h, scale := range scales {
			part := x[h*16:][:16]
			sc := roundScale(part, importance(w, b*256+h*16, 16), g, d, scale, -32, 31)
			putScale3K(block[96:], h, sc)
			inv := inverse(d * float32(sc))
			for i, v := range part {
				c, q := h&1*16+i, byte(int(g.nearest(v*inv))+q3kZero)
				block[32+h/8*32+c] |= q & 3 << (h / 2 % 4 * 2)
				block[c] |= q >> 2 << (h / 2)
			}
		}
	}
}

func packQ3_K(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q3kTile < len(dst); b++ {
		tile := dst[b*q3kTile:][:q3kTile]
		for r, row := range src {
			block := fileBlock(row, b, 110)
			copy(tile[2*r:], block[108:])
			for h := range kHalves {
				tile[q3kScales+h*bytes16+r] = byte(scale3K(block[96:], h))
			}
			for j := range kParts {
				u.codes3K(block, j)
				part := tile[q3kCodes+j*q3kPart:]
				u.put2(part, r, 0)
				u.put1(part[p2Bytes:], r, 2)
			}
		}
	}
}

func unpackQ3_K(dst []float32, tile []byte, r int) {
	for b := 0; b*256 < len(dst); b++ {
		block := tile[b*q3kTile:][:q3kTile]
		d := halfAt(block[2*r:])
		for j := range kParts {
			var u codes
			part := block[q3kCodes+j*q3kPart:]
			u.or2(part, r, 0)
			u.or1(part[p2Bytes:], r, 2)
			for h := 2 * j; h < 2*j+2; h++ {
				sc := int8(block[q3kScales+h*bytes16+r])
				u.expand(dst[b*256+h*16:][:16], h&1*16, d*float32(sc), q3kZero)
			}
		}
	}
}

func dotQ3_K(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d, scaleLo, scaleHi rowScales
	var lo, hi dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q3kTile:][:q3kTile]
			d.loadHalves(block)
			for j := range kParts {
				part := block[q3kCodes+j*q3kPart:]
				w.load2(part)
				w.or1(part[p2Bytes:], 2)
				scaleLo.loadSigned(&d, block[q3kScales+2*j*bytes16:])
				scaleHi.loadSigned(&d, block[q3kScales+(2*j+1)*bytes16:])
				for i := range m {
					a := actBlock(act[(b*kParts+j)*actStride+i*ActBlockBytes:][:ActBlockBytes])
					w.dotHalves(&lo, &hi, a, q3kZero)
					acc := dst[i*dstStride+t*TileRows:]
					mulAdd(acc, &lo, &scaleLo, a.scale())
					mulAdd(acc, &hi, &scaleHi, a.scale())
				}
			}
		}
	}
}

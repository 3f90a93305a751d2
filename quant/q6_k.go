package quant

import "quickdraft/modelfile/gguf"

// Q6_K: 256 weights in 8 parts of 32, each of two halves of 16; in half h w = (d*sc[h]) * (q - 32), sc signed.
//
//	file, 210 bytes                               tile, 3360 bytes
//	  0  128 bytes: bits 0..3 of q, see codes6K      0  16 x f16 d
//	128  64 bytes: bits 4..5 of q                   32  16 halves: 16 x i8 sc[h]
//	192  16 x i8 sc                                288  8 parts of 384 bytes: P4 plane of bits 0..3 of q,
//	208  f16 d                                          P2 plane of bits 4..5
var formatQ6_K = Format{
	Type: gguf.TypeQ6_K, Name: "Q6_K", BlockSize: 256, BlockBytes: 210, TileBytes: q6kTile, scales: []int{208},
	Decode: decodeQ6_K, Encode: encoder(encodeQ6_K).even, EncodeWeighted: encodeQ6_K, Pack: packQ6_K, UnpackRow: unpackQ6_K, DotRef: dotQ6_K,
}

const (
	kHalves = 16 // halves of a block of 256

	q6kZero   = 32
	q6kScales = halves16
	q6kCodes  = q6kScales + kHalves*bytes16
	q6kPart   = p4Bytes + p2Bytes
	q6kTile   = q6kCodes + kParts*q6kPart
)

// codes6K reads part j. Four parts share 64 bytes of low bits and 32 of high bits: parts 0 and 2 are the low and high
// nibbles of the first 32 bytes, parts 1 and 3 of the second, and part k has bits 2k, 2k+1 of the high bits.
func (u *codes) codes6K(block []byte, j int) {
	n, k := j/4, j%4
	u.field(block[64*n+32*(k&1):], k>>1*4, mask4)
	u.orField(block[128+32*n:], 2*k, mask2, 4)
}

func decodeQ6_K(dst []float32, src []byte) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := src[b*210:][:210]
		d := halfAt(block[208:])
		for j := range kParts {
			u.codes6K(block, j)
			for h := 2 * j; h < 2*j+2; h++ {
				u.expand(dst[b*256+h*16:][:16], h&1*16, d*float32(int8(block[192+h])), q6kZero)
			}
		}
	}
}

func encodeQ6_K(dst []byte, src, w []float32) {
	g := &grid{low: -q6kZero, high: q6kZero - 1}
	for b := 0; b*256 < len(src); b++ {
		block, x := dst[b*210:][:210], src[b*256:][:256]
		clear(block)
		var scales [kHalves]float32
		for h := range scales {
			scales[h] = fitScale(x[h*16:][:16], importance(w, b*256+h*16, 16), g, g.low)
		}
		d := putHalf(block[208:], farthest(scales[:])/-128)
		for h, scale := range scales {
			part := x[h*16:][:16]
			sc := roundScale(part, importance(w, b*256+h*16, 16), g, d, scale, -128, 127)
			block[192+h] = byte(sc)
			inv := inverse(d * float32(sc))
			for i, v := range part {
				putCode6K(block, h/2, h&1*16+i, byte(int(g.nearest(v*inv))+q6kZero))
			}
		}
	}
}

// putCode6K stores the code of column c of part j; the bits are zero before.
func putCode6K(block []byte, j, c int, q byte) {
	n, k := j/4, j%4
	block[64*n+32*(k&1)+c] |= q & 15 << (k >> 1 * 4)
	block[128+32*n+c] |= q >> 4 << (2 * k)
}

func packQ6_K(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q6kTile < len(dst); b++ {
		tile := dst[b*q6kTile:][:q6kTile]
		for r, row := range src {
			block := fileBlock(row, b, 210)
			copy(tile[2*r:], block[208:])
			for h := range kHalves {
				tile[q6kScales+h*bytes16+r] = block[192+h]
			}
			for j := range kParts {
				u.codes6K(block, j)
				part := tile[q6kCodes+j*q6kPart:]
				u.put4(part, r)
				u.put2(part[p4Bytes:], r, 4)
			}
		}
	}
}

func unpackQ6_K(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := tile[b*q6kTile:][:q6kTile]
		d := halfAt(block[2*r:])
		for j := range kParts {
			part := block[q6kCodes+j*q6kPart:]
			u.get4(part, r)
			u.or2(part[p4Bytes:], r, 4)
			for h := 2 * j; h < 2*j+2; h++ {
				sc := int8(block[q6kScales+h*bytes16+r])
				u.expand(dst[b*256+h*16:][:16], h&1*16, d*float32(sc), q6kZero)
			}
		}
	}
}

func dotQ6_K(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d, scaleLo, scaleHi rowScales
	var lo, hi dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q6kTile:][:q6kTile]
			d.loadHalves(block)
			for j := range kParts {
				part := block[q6kCodes+j*q6kPart:]
				w.load4(part)
				w.or2(part[p4Bytes:], 4)
				scaleLo.loadSigned(&d, block[q6kScales+2*j*bytes16:])
				scaleHi.loadSigned(&d, block[q6kScales+(2*j+1)*bytes16:])
				for i := range m {
					a := actBlock(act[(b*kParts+j)*actStride+i*ActBlockBytes:][:ActBlockBytes])
					w.dotHalves(&lo, &hi, a, q6kZero)
					acc := dst[i*dstStride+t*TileRows:]
					mulAdd(acc, &lo, &scaleLo, a.scale())
					mulAdd(acc, &hi, &scaleHi, a.scale())
				}
			}
		}
	}
}

// loadSigned reads d times the signed bytes of 16 rows.
func (s *rowScales) loadSigned(d *rowScales, src []byte) {
	for r := range s {
		s[r] = d[r] * float32(int8(src[r]))
	}
}

package quant

import "quickdraft/modelfile/gguf"

// Q5_K: 256 weights in 8 parts of 32; in part j w = (d*sc[j]) * q - dmin*mn[j], sc and mn of 6 bits.
//
//	file, 176 bytes                               tile, 2880 bytes
//	  0  f16 d                                       0  16 x f16 d
//	  2  f16 dmin                                   32  16 x f16 dmin
//	  4  12 bytes sc, mn (see scales6)              64  8 parts: 16 x u8 sc[j], 16 x u8 mn[j]
//	 16  32 bytes: bit j of byte c = bit 4 of q    320  8 parts of 320 bytes: P4 plane of bits 0..3 of q,
//	     of column c in part j                          P1 plane of bit 4
//	 48  4 x 32 bytes: bits 0..3 of q of part 2k
//	     in bits 0..3, of part 2k+1 in bits 4..7
var formatQ5_K = Format{
	Type: gguf.TypeQ5_K, Name: "Q5_K", BlockSize: 256, BlockBytes: 176, TileBytes: q5kTile, scales: []int{0, 2},
	Decode: decodeQ5_K, Encode: encoder(encodeQ5_K).even, EncodeWeighted: encodeQ5_K, Pack: packQ5_K, UnpackRow: unpackQ5_K, DotRef: dotQ5_K,
}

const (
	q5kCodes = q4kCodes
	q5kPart  = p4Bytes + p1Bytes
	q5kTile  = q5kCodes + kParts*q5kPart
)

func (u *codes) codes5K(block []byte, j int) {
	u.field(block[48+j/2*32:], j&1*4, mask4)
	u.orField(block[16:], j, mask1, 4)
}

func decodeQ5_K(dst []float32, src []byte) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := src[b*176:][:176]
		d, dmin := halfAt(block), halfAt(block[2:])
		for j := range kParts {
			u.codes5K(block, j)
			sc, mn := scales6(block[4:], j)
			u.expandMin(dst[b*256+j*32:][:32], 0, d*float32(sc), -float32(dmin*float32(mn)))
		}
	}
}

func encodeQ5_K(dst []byte, src, w []float32) {
	for b := 0; b*256 < len(src); b++ {
		block, x := dst[b*176:][:176], src[b*256:][:256]
		clear(block)
		for j, a := range encodeScalesK(block, x, w, b, 31) {
			coder := a.coder(31)
			for c, v := range x[j*32:][:32] {
				q := byte(coder.code(v))
				block[48+j/2*32+c] |= q & 15 << (j & 1 * 4)
				block[16+c] |= q >> 4 << j
			}
		}
	}
}

func packQ5_K(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q5kTile < len(dst); b++ {
		tile := dst[b*q5kTile:][:q5kTile]
		for r, row := range src {
			block := fileBlock(row, b, 176)
			packScalesK(tile, block, r)
			for j := range kParts {
				u.codes5K(block, j)
				part := tile[q5kCodes+j*q5kPart:]
				u.put4(part, r)
				u.put1(part[p4Bytes:], r, 4)
			}
		}
	}
}

func unpackQ5_K(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := tile[b*q5kTile:][:q5kTile]
		for j := range kParts {
			part := block[q5kCodes+j*q5kPart:]
			u.get4(part, r)
			u.or1(part[p4Bytes:], r, 4)
			w, m := scaleK(block, j, r)
			u.expandMin(dst[b*256+j*32:][:32], 0, w, -m)
		}
	}
}

func dotQ5_K(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var scale, low rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q5kTile:][:q5kTile]
			for j := range kParts {
				part := block[q5kCodes+j*q5kPart:]
				w.load4(part)
				w.or1(part[p4Bytes:], 4)
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

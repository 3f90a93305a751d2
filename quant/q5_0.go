package quant

import "quickdraft/modelfile/gguf"

// Q5_0: 32 weights, w = d * (q - 16).
//
//	file, 22 bytes                            tile, 352 bytes
//	 0  f16      d                              0  P4 plane of bits 0..3 of q
//	 2  u32      bit j = bit 4 of q[j]        256  P1 plane of bit 4
//	 6  16 bytes bits 0..3 of q[j], q[j+16]   320  16 x f16 d
var formatQ5_0 = Format{
	Type: gguf.TypeQ5_0, Name: "Q5_0", BlockSize: 32, BlockBytes: 22, TileBytes: q5_0Tile, scales: []int{0},
	Decode: decodeQ5_0, Encode: encodeQ5_0, Pack: packQ5_0, UnpackRow: unpackQ5_0, DotRef: dotQ5_0,
}

const (
	q5_0Zero = 16
	q5_0High = p4Bytes
	q5_0D    = q5_0High + p1Bytes
	q5_0Tile = q5_0D + halves16
)

// codes5 reads the 5-bit codes of Q5_0 and Q5_1: 32 high bits, then 16 bytes of nibbles.
func (u *codes) codes5(src []byte) {
	u.nibbles(src[4:])
	u.orBits(le.Uint32(src))
}

// putCodes5 is the inverse of codes5.
func (u *codes) putCodes5(dst []byte) {
	le.PutUint32(dst, u.bits())
	for p := range 4 {
		le.PutUint32(dst[4+4*p:], u[p]&mask4|u[p+4]&mask4<<4)
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := src[b*22:][:22]
		u.codes5(block[2:])
		u.expand(dst[b*32:][:32], 0, halfAt(block), q5_0Zero)
	}
}

func encodeQ5_0(dst []byte, src []float32) {
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*22:][:22], src[b*32:][:32]
		d := farthest(x) / -q5_0Zero
		putHalf(block, d)
		inv := inverse(d)
		var u codes
		for j, v := range x {
			u.set(j, uint32(roundUp(v, inv, 16.5, 31)))
		}
		u.putCodes5(block[2:])
	}
}

func packQ5_0(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q5_0Tile < len(dst); b++ {
		tile := dst[b*q5_0Tile:][:q5_0Tile]
		for r, row := range src {
			block := fileBlock(row, b, 22)
			u.codes5(block[2:])
			u.put4(tile, r)
			u.put1(tile[q5_0High:], r, 4)
			copy(tile[q5_0D+2*r:], block[:2])
		}
	}
}

func unpackQ5_0(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := tile[b*q5_0Tile:][:q5_0Tile]
		u.get4(block, r)
		u.or1(block[q5_0High:], r, 4)
		u.expand(dst[b*32:][:32], 0, halfAt(block[q5_0D+2*r:]), q5_0Zero)
	}
}

func dotQ5_0(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q5_0Tile:][:q5_0Tile]
			w.load4(block)
			w.or1(block[q5_0High:], 4)
			d.loadHalves(block[q5_0D:])
			for i := range m {
				a := actBlock(act[b*actStride+i*ActBlockBytes:][:ActBlockBytes])
				w.dot(&sum, a, q5_0Zero)
				mulAdd(dst[i*dstStride+t*TileRows:], &sum, &d, a.scale())
			}
		}
	}
}

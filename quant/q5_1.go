package quant

import "quickdraft/modelfile/gguf"

// Q5_1: 32 weights, w = d*q + m.
//
//	file, 24 bytes                            tile, 384 bytes
//	 0  f16      d                              0  P4 plane of bits 0..3 of q
//	 2  f16      m                            256  P1 plane of bit 4
//	 4  u32      bit j = bit 4 of q[j]        320  16 x f16 d
//	 8  16 bytes bits 0..3 of q[j], q[j+16]   352  16 x f16 m
var formatQ5_1 = Format{
	Type: gguf.TypeQ5_1, Name: "Q5_1", BlockSize: 32, BlockBytes: 24, TileBytes: q5_1Tile, scales: []int{0, 2},
	Decode: decodeQ5_1, Encode: encodeQ5_1, Pack: packQ5_1, UnpackRow: unpackQ5_1, DotRef: dotQ5_1,
}

const (
	q5_1High = p4Bytes
	q5_1D    = q5_1High + p1Bytes
	q5_1M    = q5_1D + halves16
	q5_1Tile = q5_1M + halves16
)

func decodeQ5_1(dst []float32, src []byte) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := src[b*24:][:24]
		u.codes5(block[4:])
		u.expandMin(dst[b*32:][:32], 0, halfAt(block), halfAt(block[2:]))
	}
}

func encodeQ5_1(dst []byte, src []float32) {
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*24:][:24], src[b*32:][:32]
		low, high := bounds(x)
		d := (high - low) / 31
		putHalf(block, d)
		putHalf(block[2:], low)
		inv := inverse(d)
		var u codes
		for j, v := range x {
			u.set(j, uint32(roundUp(v-low, inv, 0.5, 31)))
		}
		u.putCodes5(block[4:])
	}
}

func packQ5_1(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q5_1Tile < len(dst); b++ {
		tile := dst[b*q5_1Tile:][:q5_1Tile]
		for r, row := range src {
			block := fileBlock(row, b, 24)
			u.codes5(block[4:])
			u.put4(tile, r)
			u.put1(tile[q5_1High:], r, 4)
			copy(tile[q5_1D+2*r:], block[:2])
			copy(tile[q5_1M+2*r:], block[2:4])
		}
	}
}

func unpackQ5_1(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := tile[b*q5_1Tile:][:q5_1Tile]
		u.get4(block, r)
		u.or1(block[q5_1High:], r, 4)
		u.expandMin(dst[b*32:][:32], 0, halfAt(block[q5_1D+2*r:]), halfAt(block[q5_1M+2*r:]))
	}
}

func dotQ5_1(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d, low rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q5_1Tile:][:q5_1Tile]
			w.load4(block)
			w.or1(block[q5_1High:], 4)
			d.loadHalves(block[q5_1D:])
			low.loadHalves(block[q5_1M:])
			for i := range m {
				a := actBlock(act[b*actStride+i*ActBlockBytes:][:ActBlockBytes])
				w.dot(&sum, a, 0)
				acc := dst[i*dstStride+t*TileRows:]
				mulAdd(acc, &sum, &d, a.scale())
				minAdd(acc, &low, a.sum())
			}
		}
	}
}

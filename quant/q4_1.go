package quant

import "quickdraft/modelfile/gguf"

// Q4_1: 32 weights, w = d*q + m.
//
//	file, 20 bytes                            tile, 320 bytes
//	 0  f16      d                              0  P4 plane of q
//	 2  f16      m                            256  16 x f16 d
//	 4  16 bytes q[j] | q[j+16]<<4            288  16 x f16 m
var formatQ4_1 = Format{
	Type: gguf.TypeQ4_1, Name: "Q4_1", BlockSize: 32, BlockBytes: 20, TileBytes: q4_1Tile, scales: []int{0, 2},
	Decode: decodeQ4_1, Encode: encodeQ4_1, Pack: packQ4_1, UnpackRow: unpackQ4_1, DotRef: dotQ4_1,
}

const (
	q4_1D    = p4Bytes
	q4_1M    = q4_1D + halves16
	q4_1Tile = q4_1M + halves16
)

func decodeQ4_1(dst []float32, src []byte) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := src[b*20:][:20]
		u.nibbles(block[4:])
		u.expandMin(dst[b*32:][:32], 0, halfAt(block), halfAt(block[2:]))
	}
}

func encodeQ4_1(dst []byte, src []float32) {
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*20:][:20], src[b*32:][:32]
		low, high := bounds(x)
		d := (high - low) / 15
		putHalf(block, d)
		putHalf(block[2:], low)
		inv := inverse(d)
		for j := range 16 {
			lo, hi := roundUp(x[j]-low, inv, 0.5, 15), roundUp(x[j+16]-low, inv, 0.5, 15)
			block[4+j] = lo | hi<<4
		}
	}
}

func packQ4_1(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q4_1Tile < len(dst); b++ {
		tile := dst[b*q4_1Tile:][:q4_1Tile]
		for r, row := range src {
			block := fileBlock(row, b, 20)
			u.nibbles(block[4:])
			u.put4(tile, r)
			copy(tile[q4_1D+2*r:], block[:2])
			copy(tile[q4_1M+2*r:], block[2:4])
		}
	}
}

func unpackQ4_1(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := tile[b*q4_1Tile:][:q4_1Tile]
		u.get4(block, r)
		u.expandMin(dst[b*32:][:32], 0, halfAt(block[q4_1D+2*r:]), halfAt(block[q4_1M+2*r:]))
	}
}

func dotQ4_1(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d, low rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q4_1Tile:][:q4_1Tile]
			w.load4(block)
			d.loadHalves(block[q4_1D:])
			low.loadHalves(block[q4_1M:])
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

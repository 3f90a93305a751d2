package quant

import "quickdraft/modelfile/gguf"

// Q4_0: 32 weights, w = d * (q - 8).
//
//	file, 18 bytes                            tile, 288 bytes
//	 0  f16      d                              0  P4 plane of q
//	 2  16 bytes q[j] | q[j+16]<<4            256  16 x f16 d
var formatQ4_0 = Format{
	Type: gguf.TypeQ4_0, Name: "Q4_0", BlockSize: 32, BlockBytes: 18, TileBytes: q4_0Tile, scales: []int{0},
	Decode: decodeQ4_0, Encode: encodeQ4_0, Pack: packQ4_0, UnpackRow: unpackQ4_0, DotRef: dotQ4_0,
}

const (
	q4_0Zero = 8
	q4_0D    = p4Bytes
	q4_0Tile = q4_0D + halves16
)

func decodeQ4_0(dst []float32, src []byte) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := src[b*18:][:18]
		u.nibbles(block[2:])
		u.expand(dst[b*32:][:32], 0, halfAt(block), q4_0Zero)
	}
}

func encodeQ4_0(dst []byte, src []float32) {
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*18:][:18], src[b*32:][:32]
		d := farthest(x) / -q4_0Zero
		putHalf(block, d)
		inv := inverse(d)
		for j := range 16 {
			lo, hi := roundUp(x[j], inv, 8.5, 15), roundUp(x[j+16], inv, 8.5, 15)
			block[2+j] = lo | hi<<4
		}
	}
}

func packQ4_0(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*q4_0Tile < len(dst); b++ {
		tile := dst[b*q4_0Tile:][:q4_0Tile]
		for r, row := range src {
			block := fileBlock(row, b, 18)
			u.nibbles(block[2:])
			u.put4(tile, r)
			copy(tile[q4_0D+2*r:], block[:2])
		}
	}
}

func unpackQ4_0(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := tile[b*q4_0Tile:][:q4_0Tile]
		u.get4(block, r)
		u.expand(dst[b*32:][:32], 0, halfAt(block[q4_0D+2*r:]), q4_0Zero)
	}
}

func dotQ4_0(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q4_0Tile:][:q4_0Tile]
			w.load4(block)
			d.loadHalves(block[q4_0D:])
			for i := range m {
				a := actBlock(act[b*actStride+i*ActBlockBytes:][:ActBlockBytes])
				w.dot(&sum, a, q4_0Zero)
				mulAdd(dst[i*dstStride+t*TileRows:], &sum, &d, a.scale())
			}
		}
	}
}

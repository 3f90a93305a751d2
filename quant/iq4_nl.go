package quant

import "quickdraft/modelfile/gguf"

// IQ4_NL: 32 weights, w = d * table[q] with the 16 uneven values of tableIQ4.
//
//	file, 18 bytes                            tile, 288 bytes
//	 0  f16      d                              0  P4 plane of q
//	 2  16 bytes q[j] | q[j+16]<<4            256  16 x f16 d
var formatIQ4_NL = Format{
	Type: gguf.TypeIQ4_NL, Name: "IQ4_NL", BlockSize: 32, BlockBytes: 18, TileBytes: q4_0Tile, scales: []int{0},
	Decode: decodeIQ4_NL, Encode: encoder(encodeIQ4_NL).even, EncodeWeighted: encodeIQ4_NL, Pack: packQ4_0, UnpackRow: unpackIQ4_NL, DotRef: dotIQ4_NL,
}

// tableIQ4 holds the values of the codes of IQ4_NL and IQ4_XS.
var tableIQ4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

const iq4Zero = 128

var gridIQ4 = newGrid(&tableIQ4)

// pairsIQ4 has tableIQ4 + 128, for unsigned products.
var pairsIQ4 = pairs(&tableIQ4, iq4Zero)

func decodeIQ4_NL(dst []float32, src []byte) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := src[b*18:][:18]
		u.nibbles(block[2:])
		u.expandTable(dst[b*32:][:32], halfAt(block), &tableIQ4)
	}
}

func encodeIQ4_NL(dst []byte, src, w []float32) {
	g := gridIQ4
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*18:][:18], src[b*32:][:32]
		d := putHalf(block, fitScale(x, importance(w, b*32, 32), g, g.low, g.high))
		inv := inverse(d)
		for j := range 16 {
			block[2+j] = g.code(x[j]*inv) | g.code(x[j+16]*inv)<<4
		}
	}
}

func unpackIQ4_NL(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := tile[b*q4_0Tile:][:q4_0Tile]
		u.get4(block, r)
		u.expandTable(dst[b*32:][:32], halfAt(block[q4_0D+2*r:]), &tableIQ4)
	}
}

func dotIQ4_NL(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q4_0Tile:][:q4_0Tile]
			w.load4(block)
			w.lookup(pairsIQ4)
			d.loadHalves(block[q4_0D:])
			for i := range m {
				a := actBlock(act[b*actStride+i*ActBlockBytes:][:ActBlockBytes])
				w.dotWide(&sum, a, iq4Zero)
				mulAdd(dst[i*dstStride+t*TileRows:], &sum, &d, a.scale())
			}
		}
	}
}

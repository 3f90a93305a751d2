package quant

import "quickdraft/modelfile/gguf"

// BF16: one weight a block, the upper half of a float32. A tile has 16 x bf16 a column (32 bytes). Activations are
// float32, as in F32.
var formatBF16 = Format{
	Type: gguf.TypeBF16, Name: "BF16", BlockSize: 1, BlockBytes: 2, TileBytes: halves16, Float: true,
	Decode: decodeBF16, Encode: encodeBF16, Pack: packHalves, UnpackRow: unpackBF16, DotRef: dotBF16,
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BFloatToFloat(le.Uint16(src[2*i:]))
	}
}

func encodeBF16(dst []byte, src []float32) {
	for i, v := range src {
		le.PutUint16(dst[2*i:], FloatToBFloat(v))
	}
}

func unpackBF16(dst []float32, tile []byte, r int) {
	for c := range dst {
		dst[c] = BFloatToFloat(le.Uint16(tile[c*halves16+2*r:]))
	}
}

func dotBF16(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w [floatChunk][TileRows]float32
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		tile := tiles[t*nBlocks*halves16:]
		for c0 := 0; c0 < nBlocks; c0 += floatChunk {
			n := min(floatChunk, nBlocks-c0)
			for c := range n {
				for r := range w[c] {
					w[c][r] = BFloatToFloat(le.Uint16(tile[(c0+c)*halves16+2*r:]))
				}
			}
			for i := range m {
				dotChunk(dst[i*dstStride+t*TileRows:], &w, act[i*actStride+4*c0:], n)
			}
		}
	}
}

package quant

import "quickdraft/modelfile/gguf"

// F16: one weight a block, IEEE binary16. A tile has 16 x f16 a column (32 bytes). Activations are float32, as in F32.
var formatF16 = Format{
	Type: gguf.TypeF16, Name: "F16", BlockSize: 1, BlockBytes: 2, TileBytes: halves16, Float: true, scales: []int{0},
	Decode: decodeF16, Encode: encodeF16, Pack: packHalves, UnpackRow: unpackF16, DotRef: dotF16,
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = halfAt(src[2*i:])
	}
}

func encodeF16(dst []byte, src []float32) {
	for i, v := range src {
		le.PutUint16(dst[2*i:], FloatToHalf(v))
	}
}

func unpackF16(dst []float32, tile []byte, r int) {
	for c := range dst {
		dst[c] = halfAt(tile[c*halves16+2*r:])
	}
}

func dotF16(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w [floatChunk][TileRows]float32
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		tile := tiles[t*nBlocks*halves16:]
		for c0 := 0; c0 < nBlocks; c0 += floatChunk {
			n := min(floatChunk, nBlocks-c0)
			for c := range n {
				(*rowScales)(&w[c]).loadHalves(tile[(c0+c)*halves16:])
			}
			for i := range m {
				dotChunk(dst[i*dstStride+t*TileRows:], &w, act[i*actStride+4*c0:], n)
			}
		}
	}
}

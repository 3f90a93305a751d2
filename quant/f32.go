package quant

import "quickdraft/modelfile/gguf"

// F32: one weight a block. A file row is a run of float32; a tile has 16 x f32 a column (64 bytes). Activations are
// float32 and nothing is fused: acc = acc + round(w*x), column after column.
var formatF32 = Format{
	Type: gguf.TypeF32, Name: "F32", BlockSize: 1, BlockBytes: 4, TileBytes: 4 * TileRows, Float: true,
	Decode: decodeF32, Encode: encodeF32, Pack: packF32, UnpackRow: unpackF32, DotRef: dotF32,
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = floatAt(src[4*i:])
	}
}

func encodeF32(dst []byte, src []float32) {
	for i, v := range src {
		putFloat(dst[4*i:], v)
	}
}

func packF32(dst []byte, src *[TileRows][]byte) {
	n := len(dst) / (4 * TileRows)
	for r, row := range src {
		for c := range n {
			le.PutUint32(dst[(c*TileRows+r)*4:], le.Uint32(fileBlock(row, c, 4)))
		}
	}
}

func unpackF32(dst []float32, tile []byte, r int) {
	for c := range dst {
		dst[c] = floatAt(tile[(c*TileRows+r)*4:])
	}
}

func dotF32(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w [floatChunk][TileRows]float32
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		tile := tiles[t*nBlocks*4*TileRows:]
		for c0 := 0; c0 < nBlocks; c0 += floatChunk {
			n := min(floatChunk, nBlocks-c0)
			for c := range n {
				for r := range w[c] {
					w[c][r] = floatAt(tile[((c0+c)*TileRows+r)*4:])
				}
			}
			for i := range m {
				dotChunk(dst[i*dstStride+t*TileRows:], &w, act[i*actStride+4*c0:], n)
			}
		}
	}
}

package quant

import "quickdraft/modelfile/gguf"

// Q8_0: 32 weights, w = d * q, q signed.
//
//	file, 34 bytes                            tile, 544 bytes
//	 0  f16      d                              0  P8 plane of q, as it is (two's complement)
//	 2  32 bytes q[j]                         512  16 x f16 d
var formatQ8_0 = Format{
	Type: gguf.TypeQ8_0, Name: "Q8_0", BlockSize: 32, BlockBytes: 34, TileBytes: q8_0Tile, scales: []int{0},
	Decode: decodeQ8_0, Encode: encodeQ8_0, Pack: packQ8_0, UnpackRow: unpackQ8_0, DotRef: dotQ8_0,
}

const (
	q8_0D    = p8Bytes
	q8_0Tile = q8_0D + halves16

	// q8_0Zero is what flipping the sign bit adds to a signed byte when the result is read as unsigned.
	q8_0Zero = 128
	flipSign = 0x8080808080808080
)

func decodeQ8_0(dst []float32, src []byte) {
	for b := 0; b*32 < len(dst); b++ {
		block, out := src[b*34:][:34], dst[b*32:][:32]
		d := halfAt(block)
		for j := range out {
			out[j] = d * float32(int8(block[2+j]))
		}
	}
}

func encodeQ8_0(dst []byte, src []float32) {
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*34:][:34], src[b*32:][:32]
		d := abs32(farthest(x)) / 127
		putHalf(block, d)
		inv := inverse(d)
		for j, v := range x {
			block[2+j] = byte(roundAway(v * inv))
		}
	}
}

func packQ8_0(dst []byte, src *[TileRows][]byte) {
	for b := 0; b*q8_0Tile < len(dst); b++ {
		tile := dst[b*q8_0Tile:][:q8_0Tile]
		for r, row := range src {
			block := fileBlock(row, b, 34)
			for g := range 8 {
				copy(tile[g*lineBytes+r*4:][:4], block[2+4*g:])
			}
			copy(tile[q8_0D+2*r:], block[:2])
		}
	}
}

func unpackQ8_0(dst []float32, tile []byte, r int) {
	for b := 0; b*32 < len(dst); b++ {
		block, out := tile[b*q8_0Tile:][:q8_0Tile], dst[b*32:][:32]
		d := halfAt(block[q8_0D+2*r:])
		for j := range out {
			out[j] = d * float32(int8(block[j>>2*lineBytes+r*4+j&3]))
		}
	}
}

func dotQ8_0(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*q8_0Tile:][:q8_0Tile]
			w.load8(block, flipSign)
			d.loadHalves(block[q8_0D:])
			for i := range m {
				a := actBlock(act[b*actStride+i*ActBlockBytes:][:ActBlockBytes])
				w.dotWide(&sum, a, q8_0Zero)
				mulAdd(dst[i*dstStride+t*TileRows:], &sum, &d, a.scale())
			}
		}
	}
}

package quant

import "quickdraft/modelfile/gguf"

// IQ4_XS: 256 weights in 8 parts of 32; in part j w = (d*(ls[j]-32)) * tableIQ4[q], ls of 6 bits.
//
//	file, 136 bytes                               tile, 2208 bytes
//	  0  f16 d                                       0  16 x f16 d
//	  2  u16: bits 2j, 2j+1 = bits 4..5 of ls[j]    32  8 parts: 16 x i8 ls[j] - 32
//	  4  4 bytes: bits 0..3 of ls[2k], ls[2k+1]    160  8 parts: P4 plane of q
//	  8  8 x 16 bytes q[c] | q[c+16]<<4
var formatIQ4_XS = Format{
	Type: gguf.TypeIQ4_XS, Name: "IQ4_XS", BlockSize: 256, BlockBytes: 136, TileBytes: iq4xsTile, scales: []int{0},
	Decode: decodeIQ4_XS, Encode: encoder(encodeIQ4_XS).even, EncodeWeighted: encodeIQ4_XS, Pack: packIQ4_XS, UnpackRow: unpackIQ4_XS, DotRef: dotIQ4_XS,
}

const (
	iq4xsScales = halves16
	iq4xsCodes  = iq4xsScales + kParts*bytes16
	iq4xsTile   = iq4xsCodes + kParts*p4Bytes
)

// scaleIQ4 returns the signed scale of part j.
func scaleIQ4(block []byte, j int) int8 {
	low, high := block[4+j/2]>>(j&1*4)&15, byte(le.Uint16(block[2:])>>(2*j)&3)
	return int8(low|high<<4) - 32
}

// putScaleIQ4 stores the signed scale of part j; the bytes are zero before part 0.
func putScaleIQ4(block []byte, j int, sc int8) {
	v := byte(sc + 32)
	block[4+j/2] |= v & 15 << (j & 1 * 4)
	le.PutUint16(block[2:], le.Uint16(block[2:])|uint16(v>>4)<<(2*j))
}

func decodeIQ4_XS(dst []float32, src []byte) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := src[b*136:][:136]
		d := halfAt(block)
		for j := range kParts {
			u.nibbles(block[8+16*j:])
			u.expandTable(dst[b*256+j*32:][:32], d*float32(scaleIQ4(block, j)), &tableIQ4)
		}
	}
}

func encodeIQ4_XS(dst []byte, src, w []float32) {
	g := gridIQ4
	for b := 0; b*256 < len(src); b++ {
		block, x := dst[b*136:][:136], src[b*256:][:256]
		clear(block)
		var scales [kParts]float32
		for j := range scales {
			scales[j] = fitScale(x[j*32:][:32], importance(w, b*256+j*32, 32), g, g.low, g.high)
		}
		d := putHalf(block, farthest(scales[:])/-32)
		for j, scale := range scales {
			part := x[j*32:][:32]
			sc := roundScale(part, importance(w, b*256+j*32, 32), g, d, scale, -32, 31)
			putScaleIQ4(block, j, sc)
			inv := inverse(d * float32(sc))
			for i := range 16 {
				block[8+16*j+i] = g.code(part[i]*inv) | g.code(part[i+16]*inv)<<4
			}
		}
	}
}

func packIQ4_XS(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*iq4xsTile < len(dst); b++ {
		tile := dst[b*iq4xsTile:][:iq4xsTile]
		for r, row := range src {
			block := fileBlock(row, b, 136)
			copy(tile[2*r:], block[:2])
			for j := range kParts {
				tile[iq4xsScales+j*bytes16+r] = byte(scaleIQ4(block, j))
				u.nibbles(block[8+16*j:])
				u.put4(tile[iq4xsCodes+j*p4Bytes:], r)
			}
		}
	}
}

func unpackIQ4_XS(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*256 < len(dst); b++ {
		block := tile[b*iq4xsTile:][:iq4xsTile]
		d := halfAt(block[2*r:])
		for j := range kParts {
			u.get4(block[iq4xsCodes+j*p4Bytes:], r)
			sc := int8(block[iq4xsScales+j*bytes16+r])
			u.expandTable(dst[b*256+j*32:][:32], d*float32(sc), &tableIQ4)
		}
	}
}

func dotIQ4_XS(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d, scale rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*iq4xsTile:][:iq4xsTile]
			d.loadHalves(block)
			for j := range kParts {
				w.load4(block[iq4xsCodes+j*p4Bytes:])
				w.lookup(pairsIQ4)
				scale.loadSigned(&d, block[iq4xsScales+j*bytes16:])
				for i := range m {
					a := actBlock(act[(b*kParts+j)*actStride+i*ActBlockBytes:][:ActBlockBytes])
					w.dotWide(&sum, a, iq4Zero)
					mulAdd(dst[i*dstStride+t*TileRows:], &sum, &scale, a.scale())
				}
			}
		}
	}
}

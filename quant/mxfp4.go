package quant

import (
	"math"

	"quickdraft/internal/detmath"
	"quickdraft/modelfile/gguf"
)

// MXFP4: 32 weights of the OCP microscaling format, w = 2^(e-128) * table[q]. The table has the values of E2M1 twice as
// large as they are (sign in bit 3), and the scale is half as large, so that codes are integers.
//
//	file, 17 bytes                            tile, 272 bytes
//	 0  u8       e; 255 is NaN                  0  P4 plane of q
//	 1  16 bytes q[j] | q[j+16]<<4            256  16 x u8 e
var formatMXFP4 = Format{
	Type: gguf.TypeMXFP4, Name: "MXFP4", BlockSize: 32, BlockBytes: 17, TileBytes: mxfp4Tile,
	Decode: decodeMXFP4, Encode: encodeMXFP4, Pack: packMXFP4, UnpackRow: unpackMXFP4, DotRef: dotMXFP4,
}

// tableMXFP4 holds twice the values of E2M1.
var tableMXFP4 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// pairsMXFP4 has tableMXFP4 + 12, for unsigned products.
var pairsMXFP4 = pairs(&tableMXFP4, mxfp4Zero)

const (
	mxfp4Zero = 12
	mxfp4E    = p4Bytes
	mxfp4Tile = mxfp4E + bytes16
)

// halfE8M0 returns 2^(e-128); the two smallest are float32 subnormals.
func halfE8M0(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func decodeMXFP4(dst []float32, src []byte) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := src[b*17:][:17]
		u.nibbles(block[1:])
		u.expandTable(dst[b*32:][:32], halfE8M0(block[0]), &tableMXFP4)
	}
}

// encodeMXFP4 takes the exponent of the largest magnitude, less that of the largest E2M1 value, and then the nearest
// value; of two equally near ones the first in the table. The exponent is that of a float32 logarithm, which rounds up
// just below a power of two, and wraps around below 2^-125: both as the reference does.
func encodeMXFP4(dst []byte, src []float32) {
	for b := 0; b*32 < len(src); b++ {
		block, x := dst[b*17:][:17], src[b*32:][:32]
		block[0] = 0
		if top := abs32(farthest(x)); top > 0 {
			frac, e := math.Frexp(float64(top))
			exp := math.Floor(float64(float32(float64(detmath.Log(frac)*math.Log2E) + float64(e))))
			block[0] = byte(int(exp) - 2 + 127)
		}
		d := halfE8M0(block[0])
		for j := range 16 {
			block[1+j] = nearestMXFP4(x[j], d) | nearestMXFP4(x[j+16], d)<<4
		}
	}
}

func nearestMXFP4(x, d float32) byte {
	best, bestErr := 0, abs32(-x)
	for q := 1; q < len(tableMXFP4); q++ {
		if e := abs32(float32(d*float32(tableMXFP4[q])) - x); e < bestErr {
			best, bestErr = q, e
		}
	}
	return byte(best)
}

func packMXFP4(dst []byte, src *[TileRows][]byte) {
	var u codes
	for b := 0; b*mxfp4Tile < len(dst); b++ {
		tile := dst[b*mxfp4Tile:][:mxfp4Tile]
		for r, row := range src {
			block := fileBlock(row, b, 17)
			u.nibbles(block[1:])
			u.put4(tile, r)
			tile[mxfp4E+r] = block[0]
		}
	}
}

func unpackMXFP4(dst []float32, tile []byte, r int) {
	var u codes
	for b := 0; b*32 < len(dst); b++ {
		block := tile[b*mxfp4Tile:][:mxfp4Tile]
		u.get4(block, r)
		u.expandTable(dst[b*32:][:32], halfE8M0(block[mxfp4E+r]), &tableMXFP4)
	}
}

func dotMXFP4(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int) {
	var w lines
	var d rowScales
	var sum dots
	clearDots(dst, dstStride, nTiles, m)
	for t := range nTiles {
		for b := range nBlocks {
			block := tiles[(t*nBlocks+b)*mxfp4Tile:][:mxfp4Tile]
			w.load4(block)
			w.lookup(pairsMXFP4)
			for r := range d {
				d[r] = halfE8M0(block[mxfp4E+r])
			}
			for i := range m {
				a := actBlock(act[b*actStride+i*ActBlockBytes:][:ActBlockBytes])
				w.dot(&sum, a, mxfp4Zero)
				mulAdd(dst[i*dstStride+t*TileRows:], &sum, &d, a.scale())
			}
		}
	}
}

package quant

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

// HalfToFloat converts an IEEE binary16 bit pattern; exact, and NaN keeps its payload.
func HalfToFloat(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	if h&0x7c00 == 0x7c00 {
		return math.Float32frombits(sign | 0x7f800000 | uint32(h&0x3ff)<<13)
	}
	// The shifted bits read as a float32 whose exponent bias is off by 127-15; the product is exact, subnormals included.
	v := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	return math.Float32frombits(math.Float32bits(v) | sign)
}

// FloatToHalf rounds to binary16, ties to even; overflow gives infinity and NaN stays NaN.
func FloatToHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000:
		return sign | 0x7e00 | uint16(bits>>13&0x1ff)
	case bits >= 0x477ff000: // 65520 and up rounds past the largest finite value
		return sign | 0x7c00
	case bits < 0x38800000: // below 2^-14: a multiple of 2^-24, which adding 0.5 leaves in the low mantissa bits
		return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-0x3f000000)
	}
	bits += 0xfff + bits>>13&1
	return sign | uint16((bits-0x38000000)>>13)
}

// BFloatToFloat converts a bfloat16 bit pattern; exact.
func BFloatToFloat(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// FloatToBFloat rounds to bfloat16, ties to even; NaN stays NaN.
func FloatToBFloat(v float32) uint16 {
	bits := math.Float32bits(v)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// halfAt reads the binary16 at the start of b.
func halfAt(b []byte) float32 { return HalfToFloat(le.Uint16(b)) }

// putHalf rounds v into the two bytes at the start of b and returns the value they stand for.
func putHalf(b []byte, v float32) float32 {
	h := FloatToHalf(v)
	le.PutUint16(b, h)
	return HalfToFloat(h)
}

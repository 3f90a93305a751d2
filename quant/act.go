package quant

import "math"

// An activation row of K columns, K a multiple of 32, is quantised to K/32 blocks of 64 bytes:
//
//	 0  32 x int8   codes, within +-127
//	32  float32     a: scale = maxabs/127
//	36  float32     a * isum
//	40  float32     a * isumLo, the sum over columns 0..15
//	44  float32     a * isumHi, the sum over columns 16..31
//	48  int32       -isum, minus the sum of the codes
//	52  int32       -isumLo
//	56  int32       -isumHi
//	60  int32       -8*isum
//
// The integer sums are negated because kernels multiply unsigned codes: weight = code - offset, so an accumulator starts
// at offset * -isum, one shift of a broadcast, and none at all for the offset 8 of Q4_0.
//
// All float32 values are rounded once: inv = 127/maxabs, code = round-to-nearest-even(x*inv), a = maxabs/127, and each
// sum is converted to float32 (exact) before it is multiplied. maxabs is taken over the bit patterns without the sign, as
// integers, so that NaN is larger than infinity, and infinity larger than any number. Two kinds of block are special:
//
//	maxabs < 2^-96     everything is zero: 127/maxabs would overflow soon after, and no weight can bring it back
//	maxabs not finite  codes and integer sums are zero, the scale and the three float sums are the NaN 0x7fc00000, so
//	                   that every output of the row becomes NaN
const (
	ActBlockCols  = 32 // columns of a block
	ActBlockBytes = 64 // bytes of a block

	actScale    = 32
	actSum      = 36
	actSumLo    = 40
	actSumHi    = 44
	actNegSum   = 48
	actNegSumLo = 52
	actNegSumHi = 56
	actNeg8Sum  = 60

	actMinBits = 0x0f800000 // 2^-96: smaller blocks are zero
	actNaNBits = 0x7fc00000
	infBits    = 0x7f800000
)

// ActBytes returns the bytes of a quantised activation row of cols columns.
func ActBytes(cols int) int { return cols / ActBlockCols * ActBlockBytes }

// quantizeBlock is the definition: dst is 64 bytes, x 32 floats.
func quantizeBlock(dst []byte, x []float32) {
	var maxBits uint32
	for _, v := range x {
		maxBits = max(maxBits, math.Float32bits(v)&0x7fffffff)
	}
	if maxBits < actMinBits || maxBits >= infBits {
		clear(dst)
		if maxBits >= infBits {
			for at := actScale; at <= actSumHi; at += 4 {
				le.PutUint32(dst[at:], actNaNBits)
			}
		}
		return
	}
	maxAbs := math.Float32frombits(maxBits)
	inv := 127 / maxAbs
	lo := quantizeHalf(dst[:16], x[:16], inv)
	hi := quantizeHalf(dst[16:32], x[16:32], inv)
	a := maxAbs / 127
	putFloat(dst[actScale:], a)
	putFloat(dst[actSum:], a*float32(lo+hi))
	putFloat(dst[actSumLo:], a*float32(lo))
	putFloat(dst[actSumHi:], a*float32(hi))
	le.PutUint32(dst[actNegSum:], uint32(-(lo + hi)))
	le.PutUint32(dst[actNegSumLo:], uint32(-lo))
	le.PutUint32(dst[actNegSumHi:], uint32(-hi))
	le.PutUint32(dst[actNeg8Sum:], uint32(-8*(lo+hi)))
}

// quantizeHalf writes 16 codes and returns their sum.
func quantizeHalf(dst []byte, x []float32, inv float32) int32 {
	// Adding 1.5 * 2^23 rounds a small float32 to an integer, ties to even, and leaves it in the low mantissa bits.
	const magic, magicBits = 12582912, 0x4b400000
	var sum int32
	for i, v := range x {
		code := int32(math.Float32bits(float32(v*inv)+magic)) - magicBits
		dst[i] = byte(code)
		sum += code
	}
	return sum
}

func putFloat(dst []byte, v float32) { le.PutUint32(dst, math.Float32bits(v)) }

func floatAt(src []byte) float32 { return math.Float32frombits(le.Uint32(src)) }

// actBlock is a view of one activation block.
type actBlock []byte

func (a actBlock) scale() float32 { return floatAt(a[actScale:]) }
func (a actBlock) sum() float32   { return floatAt(a[actSum:]) }
func (a actBlock) sumLo() float32 { return floatAt(a[actSumLo:]) }
func (a actBlock) sumHi() float32 { return floatAt(a[actSumHi:]) }
func (a actBlock) isumLo() int32  { return -int32(le.Uint32(a[actNegSumLo:])) }
func (a actBlock) isumHi() int32  { return -int32(le.Uint32(a[actNegSumHi:])) }

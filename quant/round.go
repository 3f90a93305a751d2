package quant

import "math"

// The rounding steps that the plain formats share. They are those of the formats' reference quantiser, so that files are
// equal byte for byte.

func abs32(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// farthest returns the value of the largest magnitude, with its sign; the first of several, and 0 for NaN alone.
func farthest(x []float32) float32 {
	var top, value float32
	for _, v := range x {
		if a := abs32(v); a > top {
			top, value = a, v
		}
	}
	return value
}

// bounds returns the smallest and largest value.
func bounds(x []float32) (low, high float32) {
	low, high = x[0], x[0]
	for _, v := range x {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	return low, high
}

// inverse returns 1/d, and 0 for d = 0.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// roundUp returns the integer part of v*inv + offset, at most top. NaN and infinity (v*inv with the inverse of a
// subnormal d) become 0.
func roundUp(v, inv, offset float32, top int32) byte {
	s := float32(v*inv) + offset
	if !(s >= 1 && s < 1<<30) {
		return 0
	}
	return byte(min(int32(s), top))
}

// roundAway rounds to the nearest int8, halves away from zero. NaN and infinity become 0.
func roundAway(v float32) int8 {
	switch s := float64(v); {
	case s >= 0 && s < 128:
		return int8(s + 0.5)
	case s < 0 && s > -128:
		return int8(s - 0.5)
	}
	return 0
}

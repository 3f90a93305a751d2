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

// roundUp returns the integer part of v*inv + offset, at most top; a value that is out of range becomes 0 or top.
func roundUp(v, inv, offset float32, top int32) byte {
	s := float32(v*inv) + offset
	switch {
	case s >= float32(top)+1:
		return byte(top)
	case s > 0:
		return byte(min(int32(s), top))
	}
	return 0
}

// roundAway rounds to the nearest int8, halves away from zero.
func roundAway(v float32) int8 {
	switch {
	case v >= 127:
		return 127
	case v <= -128:
		return -128
	case v >= 0:
		return int8(math.Floor(float64(v) + 0.5))
	case v < 0:
		return int8(math.Ceil(float64(v) - 0.5))
	}
	return 0
}

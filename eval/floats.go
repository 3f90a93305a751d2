package eval

import (
	"encoding/binary"
	"math"
)

// floatBytes is x as float32 in a file.
func floatBytes(x []float64) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(v)))
	}
	return out
}

// fromBytes is the inverse of floatBytes; false when a value is negative or not a finite number.
func fromBytes(dst []float64, src []byte) bool {
	for i := range dst {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
		if !(v >= 0 && v <= math.MaxFloat32) {
			return false
		}
		dst[i] = v
	}
	return true
}

package detmath

import "math"

const (
	ln2Over256A = 0x1.62e42feep-9 // first 32 bits
	ln2Over256B = 0x1.a39ef35793c76p-41
	inv256Ln2   = 0x1.71547652b82fep+8
)

// ExpSum sets dst[i] to e**((x[i]-top)*inv), within one unit in the last place, and returns their sum, added in order. Every x must
// be finite and at most top, inv positive and finite, and dst at least as long as x; dst may be x. It is the softmax of a whole
// vocabulary: a finer table and a shorter series than Exp's, at about half its time.
func ExpSum(dst, x []float64, top, inv float64) float64 {
	dst = dst[:len(x)]
	sum := 0.0
	for i, v := range x {
		v = float64((v - top) * inv)
		if v < -708 {
			v = Exp(v)
			dst[i] = v
			sum += v
			continue
		}
		shifted := float64(v*inv256Ln2) + toInteger
		n := math.Float64bits(shifted) // its low bits are the integer, in two's complement
		k := shifted - toInteger
		r := v - float64(k*ln2Over256A) - float64(k*ln2Over256B)
		p := float64(r*(1.0/24)) + 1.0/6
		p = float64(p*r) + 0.5
		p = r + float64(float64(r*r)*p)
		t := exp2Fine[n&255]
		e := t + float64(t*p)
		w := math.Float64frombits(math.Float64bits(e) + n>>8<<52) // times 2^(n/256): the result is a normal number
		dst[i] = w
		sum += w
	}
	return sum
}

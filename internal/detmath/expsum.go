package detmath

import "math"

const (
	ln2Over256A = 0x1.62e42feep-9 // first 32 bits
	ln2Over256B = 0x1.a39ef35793c76p-41
	inv256Ln2   = 0x1.71547652b82fep+8
	minExpSum   = -708
)

// ExpLanes is the number of partial sums of ExpSum.
const ExpLanes = 16

// ExpSum sets dst[i] to e**((x[i]-top)*inv), within one unit in the last place, 0 where that is below e**-708 (3e-308), and returns
// their sum: lane i of 16 adds the entries i, i+16, ... in order, and then the lanes are added in halves (0 and 8, 1 and 9, ..., then
// 0 and 4, ...). No x may be NaN or above top, inv must be positive and finite, and dst at least as long as x; dst may be x. It is
// the softmax of a whole vocabulary: a finer table and a shorter series than Exp's, at about half its time.
func ExpSum[T float32 | float64](dst []float64, x []T, top, inv float64) float64 {
	dst = dst[:len(x)]
	var lanes [ExpLanes]float64
	for i, l := range x {
		v := float64((float64(l) - top) * inv)
		if !(v >= minExpSum) {
			dst[i] = 0
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
		lanes[i%ExpLanes] += w
	}
	return addLanes(&lanes)
}

// Sum returns the sum of x in the order of ExpSum.
func Sum(x []float64) float64 {
	var lanes [ExpLanes]float64
	for len(x) >= ExpLanes {
		for i, v := range x[:ExpLanes] {
			lanes[i] += v
		}
		x = x[ExpLanes:]
	}
	for i, v := range x {
		lanes[i] += v
	}
	return addLanes(&lanes)
}

// SumWhere returns the sum of those w whose x is low or more, in the order of ExpSum.
func SumWhere(w, x []float64, low float64) float64 {
	var lanes [ExpLanes]float64
	for i, v := range x {
		if v >= low {
			lanes[i%ExpLanes] += w[i]
		}
	}
	return addLanes(&lanes)
}

func addLanes(lanes *[ExpLanes]float64) float64 {
	for half := ExpLanes / 2; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}

// ExpSumTable returns the first of the 256 entries 2**(j/256) that ExpSum looks up, for assembly that repeats it.
func ExpSumTable() *float64 { return &exp2Fine[0] }

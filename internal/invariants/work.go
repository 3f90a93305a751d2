// Package invariants holds what tests of several packages want to be true on every machine.
package invariants

import (
	"runtime"
	"time"
)

// usual is the processor time of sums on the machine that bounds are made for, two cores of a Xeon at 2.1 GHz.
const usual = 15 * time.Millisecond

// Within reports whether work that took some processor time is done within limit on the machine that bounds are made for: one
// that is slower, or whose cores are shared, takes as much longer for it as for the sums.
func Within(took, limit time.Duration) bool {
	return took <= limit || float64(took) <= slowness()*float64(limit)
}

// slowness is how many times longer this machine takes for the sums, at least 1: the median of five.
func slowness() float64 {
	var times [5]time.Duration
	for i := range times {
		began := CPUTime()
		sums()
		times[i] = CPUTime() - began
		for k := i; k > 0 && times[k] < times[k-1]; k-- {
			times[k], times[k-1] = times[k-1], times[k]
		}
	}
	return max(1, float64(times[2])/float64(usual))
}

// sums hashes, branches and allocates, as decoders and templates do.
func sums() {
	counts, x := map[uint64][]byte{}, uint64(1)
	for range 100_000 {
		x = x*6364136223846793005 + 1442695040888963407
		counts[x>>48] = append(counts[x>>48], byte(x))
	}
	runtime.KeepAlive(counts)
}

// Cost runs f and returns its processor time and the bytes that it allocates in all.
func Cost(f func()) (took time.Duration, allocated uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := CPUTime()
	f()
	took = CPUTime() - start
	runtime.ReadMemStats(&after)
	return took, after.TotalAlloc - before.TotalAlloc
}

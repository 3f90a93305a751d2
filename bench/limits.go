package bench

import (
	"fmt"
	"sync/atomic"
	"time"

	"quickdraft/asm/probe"
	"quickdraft/machine"
	"quickdraft/tensor"
)

const (
	// A measurement of the bandwidth of memory reads four times the last cache, within these bounds: at 40 GB/s the smaller
	// takes 13 ms.
	minDRAMBytes = 512 << 20
	maxDRAMBytes = 2 << 30
	// The product peak is the best of some short tries: it is the cores' alone, and one that the system interrupts says
	// nothing about them.
	peakTries = 3
	peakTime  = time.Millisecond
	lineSize  = 64
)

// Limit is what the machine could do at one moment.
type Limit struct {
	DRAM float64 // 10^9 bytes read a second
	Peak float64 // 10^9 int8 multiply-adds a second; 0 where no instruction set level has a kernel
}

// dramBytes is the size of the buffer that stands for memory; tests take a small one.
var dramBytes = func() int { return min(max(4*machine.CacheBytes(3), minDRAMBytes), maxDRAMBytes) }

// Limits measures with the workers that run a model's passes.
type Limits struct {
	pool       *tensor.Pool
	pages      machine.Pages
	read       readTask
	peak       peakTask
	DRAM, Peak []float64 // all that was measured
}

// NewLimits makes what the measurements need, half a gigabyte of memory or more that must be closed.
func NewLimits(pool *tensor.Pool) (*Limits, error) {
	pages, err := machine.MapPages(dramBytes(), true)
	if err != nil {
		return nil, fmt.Errorf("no memory to measure the bandwidth of memory with: %w", err)
	}
	l := &Limits{pool: pool, pages: pages}
	l.read = readTask{data: pages.Data, times: 1}
	pool.Run(&fillTask{pages.Data})
	l.peak.rounds = 1000
	for range 20 { // find the rounds that fill peakTime
		start := time.Now()
		pool.Run(&l.peak)
		took := time.Since(start)
		if l.peak.macs.Swap(0) == 0 || took > peakTime/2 {
			break
		}
		l.peak.rounds *= 2
	}
	return l, nil
}

// Close frees the memory.
func (l *Limits) Close() { l.pages.Free() }

// Measure takes some 15 milliseconds and keeps what it finds.
func (l *Limits) Measure() Limit {
	start := time.Now()
	l.pool.Run(&l.read)
	at := Limit{DRAM: perNano(len(l.read.data), time.Since(start))}
	for range peakTries {
		start = time.Now()
		l.pool.Run(&l.peak)
		at.Peak = max(at.Peak, perNano(int(l.peak.macs.Swap(0)), time.Since(start)))
	}
	l.DRAM, l.Peak = append(l.DRAM, at.DRAM), append(l.Peak, at.Peak)
	return at
}

// between is the limit while something ran between two measurements.
func between(a, b Limit) Limit {
	return Limit{DRAM: (a.DRAM + b.DRAM) / 2, Peak: (a.Peak + b.Peak) / 2}
}

// perNano is n a nanosecond, or 10^9 n a second.
func perNano(n int, d time.Duration) float64 { return float64(n) / float64(max(d, 1)) }

// LimitFigures are the medians of what was measured between the passes of a run.
type LimitFigures struct {
	DRAMGBps   float64 `json:"dram_gbps"`
	DRAMSpread float64 `json:"dram_spread"`
	PeakGMACs  float64 `json:"peak_gmacs"`
	PeakSpread float64 `json:"peak_spread"`
}

// Figures sums the measurements up.
func (l *Limits) Figures() LimitFigures {
	return LimitFigures{Median(l.DRAM), Spread(l.DRAM), Median(l.Peak), Spread(l.Peak)}
}

// String is one line.
func (f LimitFigures) String() string {
	return fmt.Sprintf("limits   memory %.1f GB/s (spread %.0f %%), int8 products %.0f GMAC/s (spread %.0f %%), measured between the passes",
		f.DRAMGBps, 100*f.DRAMSpread, f.PeakGMACs, 100*f.PeakSpread)
}

// part is a worker's share of the data, in whole cache lines.
func part(data []byte, worker, nWorkers int) []byte {
	lines := len(data) / lineSize
	return data[lines*worker/nWorkers*lineSize : lines*(worker+1)/nWorkers*lineSize]
}

// readTask has every worker read its part of the data a number of times.
type readTask struct {
	data  []byte
	times int
}

// Do reads one part.
func (t *readTask) Do(worker, nWorkers int) {
	mine := part(t.data, worker, nWorkers)
	for range t.times {
		probe.Read(mine)
	}
}

// fillTask gives every page memory of its own: untouched pages share one of zeros.
type fillTask struct{ data []byte }

// Do writes one part.
func (t *fillTask) Do(worker, nWorkers int) {
	mine := part(t.data, worker, nWorkers)
	for i := 0; i < len(mine); i += lineSize {
		mine[i] = byte(i >> 6)
	}
}

// peakTask has every worker do independent int8 products.
type peakTask struct {
	rounds int
	matrix bool // on matrix registers
	macs   atomic.Int64
}

// Do does one worker's products.
func (t *peakTask) Do(int, int) {
	if t.matrix {
		t.macs.Add(probe.MatrixPeak(t.rounds))
		return
	}
	t.macs.Add(probe.Int8Peak(t.rounds))
}

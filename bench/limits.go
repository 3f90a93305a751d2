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
	pages      machine.Pages
	bytes      int       // that read reads
	rounds     int       // of multiply, which fill peakTime
	DRAM, Peak []float64 // all that was measured

	now      func() time.Time
	read     func()
	multiply func(rounds int) (macs int64)
}

// NewLimits makes what the measurements need, half a gigabyte of memory or more that must be closed.
func NewLimits(pool *tensor.Pool) (*Limits, error) {
	pages, err := machine.MapPages(dramBytes(), true)
	if err != nil {
		return nil, fmt.Errorf("no memory to measure the bandwidth of memory with: %w", err)
	}
	pool.Run(&fillTask{pages.Data})
	reading, products := readTask{data: pages.Data, times: 1}, peakTask{}
	l := &Limits{pages: pages, bytes: len(pages.Data), now: time.Now}
	l.read = func() { pool.Run(&reading) }
	l.multiply = func(rounds int) int64 {
		products.rounds = rounds
		pool.Run(&products)
		return products.macs.Swap(0)
	}
	l.calibrate()
	return l, nil
}

// calibrate doubles the rounds until the fastest of some tries fills half of peakTime and was hardly faster a round than that
// of half as many: a try that the system interrupts takes long with few rounds, and tries of few rounds all take the time of
// starting the workers. It ends at longTries times peakTime, where more rounds still help, on a machine that is busy.
func (l *Limits) calibrate() {
	const settled, longTries = 1.1, 16
	before := 0.0
	for l.rounds = 1000; ; l.rounds *= 2 {
		rate, took := l.products()
		if rate == 0 || took > longTries*peakTime || took > peakTime/2 && rate < settled*before {
			return
		}
		before = rate
	}
}

// products is the rate of the fastest of some tries, and its time.
func (l *Limits) products() (rate float64, least time.Duration) {
	for i := range peakTries {
		start := l.now()
		macs := l.multiply(l.rounds)
		took := l.now().Sub(start)
		if i == 0 || took < least {
			rate, least = perNano(int(macs), took), took
		}
	}
	return rate, least
}

// Close frees the memory.
func (l *Limits) Close() { l.pages.Free() }

// Measure takes some 15 milliseconds and keeps what it finds.
func (l *Limits) Measure() Limit {
	start := l.now()
	l.read()
	at := Limit{DRAM: perNano(l.bytes, l.now().Sub(start))}
	at.Peak, _ = l.products()
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
	DRAMSpread Spread  `json:"dram_spread"`
	PeakGMACs  Figure  `json:"peak_gmacs"`
	PeakSpread Spread  `json:"peak_spread"`
	PeakOf     string  `json:"peak_instructions"`
}

// Figures sums the measurements up.
func (l *Limits) Figures() LimitFigures {
	return LimitFigures{Median(l.DRAM), SpreadOf(l.DRAM), Figure(Median(l.Peak)), SpreadOf(l.Peak), probe.Int8Instructions()}
}

// steady is the spread up to which a limit is one. The number is that of peers.py, beyond which it prints no ratio, but of
// another spread: here from the 10th percentile to the 90th, there of the middle half, which is narrower.
const steady = 0.20

// String is one line, and a second where the limits moved while the passes ran.
func (f LimitFigures) String() string {
	s := fmt.Sprintf("limits   memory %.1f GB/s (spread %v), int8 products (%s) %s GMAC/s (spread %v), measured between the passes",
		f.DRAMGBps, f.DRAMSpread, f.PeakOf, f.PeakGMACs.text("%.0f"), f.PeakSpread)
	if f.DRAMSpread > steady || f.PeakSpread > steady {
		s += fmt.Sprintf("\nunsure   limits spread by more than %v: repeat on a quieter machine before comparing shares and times over roofline", Spread(steady))
	}
	return s
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

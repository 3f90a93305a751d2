package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"quickdraft/asm/probe"
	"quickdraft/machine"
	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// readTime is about how long one measurement of a read bandwidth takes.
const readTime = 15 * time.Millisecond

// workingSets are the sizes, in MiB, whose read bandwidth is measured, beside that of memory.
var workingSets = []int{1, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 128}

// ReadRow is the bandwidth of reading a working set over and over.
type ReadRow struct {
	Threads int     `json:"threads"`
	Bytes   int     `json:"bytes"`
	GBps    float64 `json:"gbps"`
	Spread  Spread  `json:"spread"`
}

// PeakRow is the rate of int8 products.
type PeakRow struct {
	Threads int    `json:"threads"`
	GMACs   Figure `json:"gmacs"`
	Spread  Spread `json:"spread"`
}

// Chain is a chain of matrix products of one token over weights that stay in the last cache.
type Chain struct {
	Bytes  int     `json:"bytes"`
	GBps   float64 `json:"gbps"`    // of weights
	L3GBps float64 `json:"l3_gbps"` // reading as many bytes, measured in between
	Share  float64 `json:"share"`
	Spread Spread  `json:"spread"`
}

// Place is where a model sits under the limits.
type Place struct {
	Work
	RooflineTokensPerSecond float64 `json:"roofline_tokens_per_second"`
	TokensPerSecond         float64 `json:"tokens_per_second"`
	Spread                  Spread  `json:"spread"` // of tokens_per_second
	RooflineRatio           float64 `json:"roofline_ratio"`
	// TokensUntilCompute is the number of tokens from which a pass waits for products rather than for memory.
	TokensUntilCompute Figure `json:"tokens_until_compute"`
}

// Roofline are the machine's limits.
type Roofline struct {
	Head
	Reads []ReadRow `json:"reads"`
	Peaks []PeakRow `json:"peaks"`
	// PeakOf are the instructions of Peaks.
	PeakOf string `json:"peak_instructions"`
	// MatrixPeaks are the rates of products on matrix registers, which no limit is made of; none without AMX.
	MatrixPeaks []PeakRow `json:"matrix_peaks,omitempty"`
	Chain       *Chain    `json:"chain"`
	Place       *Place    `json:"place,omitempty"`
}

// probeSet is one measurement that is taken in every round.
type probeSet struct {
	pool    *tensor.Pool
	threads int
	bytes   int  // 0: products
	matrix  bool // products on matrix registers
	rates   []float64
}

// MeasureRoofline measures reads of all working sets and products with 1, 2, 4 .. and the given number of threads, and
// the chain of matrices, once in each round.
func MeasureRoofline(ctx context.Context, threads, rounds int) (*Roofline, error) {
	pages, err := machine.MapPages(dramBytes(), true)
	if err != nil {
		return nil, fmt.Errorf("no memory to measure the bandwidth of memory with: %w", err)
	}
	defer pages.Free()
	var sets []*probeSet
	var pool *tensor.Pool
	for _, n := range threadCounts(threads) {
		pool = tensor.NewPool(n)
		defer pool.Close()
		sets = append(sets, &probeSet{pool: pool, threads: n})
		if probe.MatrixPeak(1) > 0 {
			sets = append(sets, &probeSet{pool: pool, threads: n, matrix: true})
		}
		for _, mib := range workingSets {
			sets = append(sets, &probeSet{pool: pool, threads: n, bytes: mib << 20})
		}
		sets = append(sets, &probeSet{pool: pool, threads: n, bytes: len(pages.Data)})
	}
	pool.Run(&fillTask{pages.Data})
	chain, err := newChain(pool)
	if err != nil {
		return nil, err
	}
	defer chain.free()
	for range rounds {
		for _, s := range sets {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			s.measure(pages.Data)
		}
		chain.measure(pages.Data)
	}
	r := &Roofline{Head: NewHead(threads), PeakOf: probe.Int8Instructions(), Chain: chain.result()}
	for _, s := range sets {
		switch peak := (PeakRow{s.threads, Figure(Median(s.rates)), SpreadOf(s.rates)}); {
		case s.matrix:
			r.MatrixPeaks = append(r.MatrixPeaks, peak)
		case s.bytes == 0:
			r.Peaks = append(r.Peaks, peak)
		default:
			r.Reads = append(r.Reads, ReadRow{s.threads, s.bytes, Median(s.rates), SpreadOf(s.rates)})
		}
	}
	return r, nil
}

// threadCounts are the powers of two below n, and n.
func threadCounts(n int) []int {
	var counts []int
	for k := 1; k < n; k *= 2 {
		counts = append(counts, k)
	}
	return append(counts, n)
}

func (s *probeSet) measure(data []byte) {
	if s.bytes == 0 {
		peak := peakTask{rounds: 100_000, matrix: s.matrix}
		if s.matrix {
			peak.rounds = 10_000 // of 85 times the products
		}
		start := time.Now()
		s.pool.Run(&peak)
		s.rates = append(s.rates, perNano(int(peak.macs.Load()), time.Since(start)))
		return
	}
	s.rates = append(s.rates, readRate(s.pool, data[:s.bytes]))
}

// readRate reads data until readTime is full, after once to bring it into the caches it fits.
func readRate(pool *tensor.Pool, data []byte) float64 {
	return rateOf(len(data), time.Now, func(times int) { pool.Run(&readTask{data: data, times: times}) })
}

// rateOf is the bandwidth of read, which reads so many bytes some times. How often fills readTime is found with the fastest of
// some tries, as one that the system interrupts would leave too few.
func rateOf(bytes int, now func() time.Time, read func(times int)) float64 {
	took := func(times int) time.Duration {
		start := now()
		read(times)
		return now().Sub(start)
	}
	read(1)
	once := max(min(took(1), took(1), took(1)), time.Microsecond)
	times := max(1, int(readTime/once))
	return perNano(times*bytes, took(times))
}

// chainTask is four matrices of Q4_0 whose tiles take 15.75 MiB, applied one after the other. A product has two barriers,
// one after the activations are quantised and one at its end.
type chainTask struct {
	pool    *tensor.Pool
	cpu     *tensor.CPU
	mats    []*tensor.Mat
	x       []tensor.F32
	bytes   int
	rates   []float64
	l3Rates []float64
}

const chainDim, chainWide = 2048, 3584

func newChain(pool *tensor.Pool) (*chainTask, error) {
	c := &chainTask{pool: pool, cpu: tensor.NewCPU(pool, 1, chainWide), x: []tensor.F32{tensor.NewF32(1, chainDim)}}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range c.x[0].Data {
		c.x[0].Data[i] = float32(rng.NormFloat64())
	}
	for i := range 4 {
		rows, cols := chainWide, chainDim
		if i%2 == 1 {
			rows, cols = cols, rows
		}
		src, err := randomBlocks(gguf.TypeQ4_0, rows*cols, 1/math.Sqrt(float64(cols)), uint64(i))
		if err != nil {
			return nil, err
		}
		m, err := tensor.NewMat(fmt.Sprint("chain ", i), gguf.TypeQ4_0, rows, cols, src, nil, pool)
		if err != nil {
			c.free()
			return nil, err
		}
		c.mats, c.x, c.bytes = append(c.mats, m), append(c.x, tensor.NewF32(1, rows)), c.bytes+len(m.Tiles)
	}
	return c, nil
}

func (c *chainTask) free() {
	for _, m := range c.mats {
		m.Free()
	}
}

func (c *chainTask) pass() {
	for i, m := range c.mats {
		c.cpu.MatMul(c.x[i+1], m, c.x[i])
	}
}

func (c *chainTask) measure(data []byte) {
	c.l3Rates = append(c.l3Rates, readRate(c.pool, data[:c.bytes]))
	for range 8 { // as measured for drafts: the cache takes several passes to settle
		c.pass()
	}
	const passes = 100
	start := time.Now()
	for range passes {
		c.pass()
	}
	c.rates = append(c.rates, perNano(passes*c.bytes, time.Since(start)))
}

func (c *chainTask) result() *Chain {
	r := &Chain{Bytes: c.bytes, GBps: Median(c.rates), L3GBps: Median(c.l3Rates), Spread: SpreadOf(c.rates)}
	r.Share = r.GBps / r.L3GBps
	return r
}

// PlaceModel decodes some tokens and says where the model sits.
func (r *Runner) PlaceModel(ctx context.Context) (*Place, error) {
	d, err := r.Decode(ctx, 32, 32, 2)
	if err != nil {
		return nil, err
	}
	at := Limit{d.DRAMGBps, float64(d.PeakGMACs)}
	p := &Place{
		Work: r.Work, TokensPerSecond: d.TokensPerSecond, Spread: d.Spread, RooflineRatio: d.RooflineRatio,
		RooflineTokensPerSecond: 1 / r.Work.Roofline(1, 1, at),
	}
	if macs := float64(r.Work.TokenMACs + r.Work.LogitMACs); macs > 0 {
		p.TokensUntilCompute = Figure(float64(r.Work.WeightBytes) / at.DRAM * at.Peak / macs)
	}
	return p, nil
}

// String is the result for people.
func (r *Roofline) String() string {
	s := fmt.Sprintf("%v\n%8s %8s %10s %8s", r.Head, "threads", "MiB", "GB/s", "spread")
	for _, row := range r.Reads {
		s += fmt.Sprintf("\n%8d %8.4g %10.1f %8v", row.Threads, float64(row.Bytes)/(1<<20), row.GBps, row.Spread)
	}
	s += fmt.Sprintf("\n%8s %8s %10s %8s", "threads", "", "GMAC/s", "spread")
	for _, row := range r.Peaks {
		s += fmt.Sprintf("\n%8d %8s %10s %8v  %s", row.Threads, "int8", row.GMACs.text("%.0f"), row.Spread, r.PeakOf)
	}
	for _, row := range r.MatrixPeaks {
		s += fmt.Sprintf("\n%8d %8s %10s %8v", row.Threads, "amx int8", row.GMACs.text("%.0f"), row.Spread)
	}
	s += fmt.Sprintf("\nchain    %d matrices of Q4_0, %.2f MiB in cache: %.1f GB/s (spread %v), %.2f of the %.1f GB/s of reading as much",
		4, float64(r.Chain.Bytes)/(1<<20), r.Chain.GBps, r.Chain.Spread, r.Chain.Share, r.Chain.L3GBps)
	if p := r.Place; p != nil {
		s += fmt.Sprintf("\n%v\nplace    at most %.1f tokens/s one by one, measured %.1f (spread %v, time over roofline %.2f); passes of more than %s tokens wait for products",
			p.Work, p.RooflineTokensPerSecond, p.TokensPerSecond, p.Spread, p.RooflineRatio, p.TokensUntilCompute.text("%.1f"))
	}
	return s
}

// randomBlocks encodes n normal weights.
func randomBlocks(t gguf.Type, n int, std float64, seed uint64) ([]byte, error) {
	f, ok := quant.Get(t)
	if !ok || n%f.BlockSize != 0 {
		return nil, fmt.Errorf("%d weights do not fill blocks of %v", n, t)
	}
	rng := rand.New(rand.NewPCG(seed, 9))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64() * std)
	}
	out := make([]byte, n/f.BlockSize*f.BlockBytes)
	f.Encode(out, values)
	return out, nil
}

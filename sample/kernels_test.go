package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

const fence = 0x1.8p11

// fenced is a slice inside a larger one whose other entries must stay as they are.
type fenced[T float32 | float64] struct {
	data, whole []T
	at          int
}

func newFenced[T float32 | float64](n, shift int, fill func(i int) T) *fenced[T] {
	const margin = 40
	f := &fenced[T]{whole: make([]T, n+2*margin), at: margin + shift}
	for i := range f.whole {
		f.whole[i] = fence
	}
	f.data = f.whole[f.at : f.at+n : f.at+n]
	for i := range f.data {
		f.data[i] = fill(i)
	}
	return f
}

// check requires that nothing around the slice was written and returns its bits.
func (f *fenced[T]) check(t *testing.T, what string) (bits []uint64) {
	t.Helper()
	for i, v := range f.whole {
		if (i < f.at || i >= f.at+len(f.data)) && v != fence {
			t.Fatalf("%s: entry %d of %d was written", what, i-f.at, len(f.data))
		}
	}
	for _, v := range f.data {
		bits = append(bits, math.Float64bits(float64(v)))
	}
	return bits
}

// rows are kinds of rows: entry i of n.
var rows = map[string]func(rng *rand.Rand) float32{
	"bell":   func(rng *rand.Rand) float32 { return float32(rng.NormFloat64() * 3) },
	"wide":   func(rng *rand.Rand) float32 { return float32(rng.NormFloat64() * 300) },
	"equal":  func(*rand.Rand) float32 { return -2.5 },
	"levels": func(rng *rand.Rand) float32 { return float32(rng.IntN(3)) },
	"ends": func(rng *rand.Rand) float32 {
		special := []float32{float32(math.Inf(-1)), -math.MaxFloat32, math.MaxFloat32, 0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32}
		return special[rng.IntN(len(special))]
	},
	"any bits": func(rng *rand.Rand) float32 { return math.Float32frombits(rng.Uint32()) },
}

func rowSizes() []int {
	var sizes []int
	for n := range 71 {
		sizes = append(sizes, n)
	}
	return append(sizes, 127, 128, 129, 255, 256, 300, 1000, 8192, 8193, 20_000)
}

// scanned is what the kernels make of a row, as bits.
type scanned struct {
	Special                                                 uint32
	Tops, Tops64, Wide, Weights, Sums, Weights64, Sums64, X []uint64
	Keys, Left, LeftWeights                                 []uint64 // of typical-p
	Surprise                                                uint64
	Farthest                                                float64
}

func scan(t *testing.T, k *kernelSet, n, shift int, what string, fill func(i int) float32) (s scanned) {
	t.Helper()
	zero32, zero := func(int) float32 { return 7 }, func(int) float64 { return 7 }
	x := newFenced(n, shift, fill)
	narrow, tops := newFenced(nBlocks(n), 1, zero32), newFenced(nBlocks(n), 2, zero)
	wide := newFenced(n, shift+1, zero)
	s.Special = k.topsOf(narrow.data, x.data)
	k.widened(wide.data, x.data)
	k.tops64Of(tops.data, wide.data)
	s.Tops, s.Tops64, s.Wide, s.X = narrow.check(t, what), tops.check(t, what), wide.check(t, what), x.check(t, what)
	require.Equal(t, s.Tops, s.Tops64, what)
	if s.Special > infBits { // the weights of NaN are nobody's
		return s
	}
	top := math.Inf(-1)
	for _, v := range tops.data {
		top = max(top, v)
	}
	if math.IsInf(top, 0) {
		return s
	}
	inv := 1 / 0.7
	w, sums, w64, sums64 := newFenced(n, shift, zero), newFenced(nBlocks(n), 3, zero), newFenced(n, 0, zero), newFenced(nBlocks(n), 0, zero)
	k.weights(w.data, sums.data, x.data, top, inv)
	k.weights64(w64.data, sums64.data, wide.data, top, inv)
	s.Weights, s.Sums, s.Weights64, s.Sums64 = w.check(t, what), sums.check(t, what), w64.check(t, what), sums64.check(t, what)
	require.Equal(t, s.Weights, s.Weights64, what)
	require.Equal(t, s.Sums, s.Sums64, what)
	c := candidates{n: n, row: x.data, logit: wide.data, w: w.data, top: top, kernels: k}
	s.Surprise = math.Float64bits(c.surprise(inv))
	c.row = nil
	require.Equal(t, s.Surprise, math.Float64bits(c.surprise(inv)), what)
	keys := newFenced(n, shift, zero)
	s.Farthest = k.nearnesses(keys.data, wide.data, top, inv, 3, 1.25) + 0 // not -0
	s.Keys = keys.check(t, what)
	for i, v := range w.data {
		require.InDelta(t, math.Exp((float64(x.data[i])-top)*inv), v, 1e-13, what)
	}
	before := slices.Clone(w.data)
	low := negInf
	if n > 0 {
		low = max(-100, keys.data[n/2]) // a key that occurs, or among keys that do
	}
	k.forbidden(wide.data, w.data, keys.data, low)
	s.Left, s.LeftWeights = wide.check(t, what), w.check(t, what)
	for i, key := range keys.data {
		logit, weight := float64(x.data[i]), before[i]
		if !(key >= low) {
			logit, weight = negInf, 0
		}
		require.Equal(t, [2]float64{logit, weight}, [2]float64{wide.data[i], w.data[i]}, what)
	}
	return s
}

func TestKernelsHaveTheBitsOfTheLoops(t *testing.T) {
	reference := kernelSets[len(kernelSets)-1]
	for name, kind := range rows {
		for _, n := range rowSizes() {
			rng := rand.New(rand.NewPCG(uint64(n), 7))
			row := make([]float32, n)
			for i := range row {
				row[i] = kind(rng)
			}
			fill := func(i int) float32 { return row[i] }
			want := scan(t, reference, n, 0, fmt.Sprint(name, " ", n, " go"), fill)
			for _, k := range kernelSets[:len(kernelSets)-1] {
				if cpu.Has(k.level) {
					what := fmt.Sprint(name, " ", n, " ", k.level)
					require.Equal(t, want, scan(t, k, n, 0, what, fill), what)
					require.Equal(t, want, scan(t, k, n, n%7, what, fill), what)
				}
			}
		}
	}
}

// TestEveryKernelIsAssembly requires a kernel of the level's own package in every field.
func TestEveryKernelIsAssembly(t *testing.T) {
	last := reflect.ValueOf(*kernelSets[len(kernelSets)-1])
	require.Equal(t, cpu.Go, kernelSets[len(kernelSets)-1].level)
	for i := 1; i < last.NumField(); i++ {
		require.True(t, last.Field(i).IsNil())
	}
	require.True(t, cpu.Active(active.level))
	require.Equal(t, cpu.Best() == cpu.Go || runtime.GOARCH != "amd64", active.level == cpu.Go)
	if runtime.GOARCH != "amd64" {
		require.Len(t, kernelSets, 1)
		return
	}
	require.Len(t, kernelSets, 3)
	ran := map[string]bool{}
	for i, level := range []cpu.Level{cpu.AVX512, cpu.AVX2} {
		require.Equal(t, level, kernelSets[i].level)
		for v, f := reflect.ValueOf(*kernelSets[i]), 1; f < v.NumField(); f++ {
			require.False(t, v.Field(f).IsNil())
			name := runtime.FuncForPC(v.Field(f).Pointer()).Name()
			require.True(t, strings.HasPrefix(name, "quickdraft/asm/"+level.String()+"."), name)
			ran[name] = true
		}
	}
	require.Len(t, ran, 2*12)
}

// TestEveryLevelChoosesTheSame samples with the kernels of each level; ids and distributions must have the same bits.
func TestEveryLevelChoosesTheSame(t *testing.T) {
	history := []int32{1, 2, 3, 1, 2, 3, 1, 2}
	for name, change := range map[string]func(p *Params){
		"greedy": func(p *Params) { p.Temperature = 0 }, "plain": nil, "everything": everything,
		"top-k": func(p *Params) { p.Temperature, p.TopK, p.TopP, p.MinP = 0.7, 40, 0.95, 0.05 },
		"top-p": func(p *Params) { p.TopP = 0.9 }, "min-p": func(p *Params) { p.MinP = 0.01 }, "typical": func(p *Params) { p.TypicalP = 0.9 },
		"flat": func(p *Params) { p.Temperature, p.TopP = 5, 0.9 }, "flat, typical": func(p *Params) { p.Temperature, p.TypicalP = 5, 0.9 },
		"xtc":  func(p *Params) { p.XTCProbability, p.XTCThreshold = 1, 0.001 },
		"many": func(p *Params) { p.TopK = 700 }, "mirostat": func(p *Params) { p.Mirostat = 2 },
	} {
		for _, n := range []int{7, 130, 3000, 20_000} {
			logits := randomLogits(uint64(n), n)
			logits[n/2] = float32(math.Inf(-1))
			var want Dist
			var wantID int32
			var wantLog []Logprob
			for i := range kernelSets {
				k := kernelSets[len(kernelSets)-1-i]
				if !cpu.Has(k.level) {
					continue
				}
				s := mustNew(t, n, change)
				s.w.cand.kernels = k
				var d Dist
				require.NoError(t, s.Dist(&d, logits, history))
				id, err := s.Sample(logits, history)
				require.NoError(t, err)
				list, err := s.Logprobs(nil, logits, history, id, 5)
				require.NoError(t, err)
				if i == 0 {
					want, wantID, wantLog = d, id, list
				}
				require.Equal(t, want, d, "%s %d %s", name, n, k.level)
				require.Equal(t, wantID, id, "%s %d %s", name, n, k.level)
				require.Equal(t, wantLog, list, "%s %d %s", name, n, k.level)
			}
		}
	}
}

func TestRanker(t *testing.T) {
	var r Ranker
	for _, n := range []int{1, 5, 127, 128, 129, 1000, 20_000, 300} {
		row := randomLogits(uint64(n), n)
		if n > 2 {
			row[n-1] = row[n-2]
			row[n/2] = float32(math.Inf(-1))
		}
		s := mustNew(t, n, nil)
		for _, k := range []int{1, 2, 4, 40, n} {
			want, err := s.Logprobs(nil, row, nil, 0, k)
			require.NoError(t, err)
			got := r.Top(nil, row, k)
			require.Len(t, got, len(want)-1)
			for i, e := range got {
				require.Equal(t, want[i+1].ID, e.Index)
				require.InEpsilon(t, math.Exp(want[i+1].Logprob), e.P, 3e-4)
				require.Equal(t, e.P, s.Probability(row, e.Index))
			}
			require.Equal(t, got[0].Index, r.ws.Argmax(row))
		}
		require.Zero(t, testing.AllocsPerRun(3, func() { r.ws.Argmax(row) }))
	}
	dst := make([]Ranked, 0, 100)
	row := randomLogits(3, 20_000)
	require.Zero(t, testing.AllocsPerRun(3, func() { dst = r.Top(dst, row, 4) }))
	inf := float32(math.Inf(1))
	for _, bad := range [][]float32{nil, {1, inf}, {float32(math.NaN()), 2}, {-inf, -inf}} {
		require.Empty(t, r.Top(dst, bad, 2))
		require.EqualValues(t, -1, r.ws.Argmax(bad))
		require.Zero(t, mustNew(t, 2, nil).Probability(bad, 0))
	}
	require.Empty(t, r.Top(dst, row, 0))
	require.Equal(t, []Ranked{{1, 0.5}, {2, 0.5}}, r.Top(dst, []float32{-inf, 3, 3}, 3))
}

// naiveArgmax is the loop that needs no blocks.
func naiveArgmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// BenchmarkKernels measures the trips over a row of 151,936 logits.
func BenchmarkKernels(b *testing.B) {
	row := benchLogits()
	n := len(row)
	wide, w, narrow, tops := make([]float64, n), make([]float64, n), make([]float32, nBlocks(n)), make([]float64, nBlocks(n))
	keys := make([]float64, n)
	kernelSets[0].widened(wide, row)
	b.Run("argmax/naive", func(b *testing.B) {
		b.SetBytes(int64(4 * n))
		for b.Loop() {
			naiveArgmax(row)
		}
	})
	for _, op := range []struct {
		name  string
		bytes int
		do    func(k *kernelSet)
	}{
		{"tops", 4, func(k *kernelSet) { k.topsOf(narrow, row) }},
		{"tops64", 8, func(k *kernelSet) { k.tops64Of(tops, wide) }},
		{"widen", 4, func(k *kernelSet) { k.widened(wide, row) }},
		{"weights", 4, func(k *kernelSet) { k.weights(w, tops, row, 20, 1) }},
		{"weights64", 8, func(k *kernelSet) { k.weights64(w, tops, wide, 20, 1) }},
		{"surprise", 12, func(k *kernelSet) {
			c := candidates{n: n, row: row, w: w, top: 20, kernels: k}
			c.surprise(1)
		}},
		{"nearness", 16, func(k *kernelSet) { k.nearnesses(keys, wide, 20, 1, 3, 1) }},
		{"sums where", 16, func(k *kernelSet) { k.sumsWhere(tops, w, wide, 3) }},
		{"sum", 8, func(k *kernelSet) { sumOf(wide) }},
		{"squares", 8, func(k *kernelSet) { squaresOf(wide, 3) }},
	} {
		for i := range kernelSets {
			if k := kernelSets[len(kernelSets)-1-i]; cpu.Has(k.level) {
				b.Run(op.name+"/"+k.level.String(), func(b *testing.B) {
					b.SetBytes(int64(op.bytes * n))
					for b.Loop() {
						op.do(k)
					}
				})
			}
		}
	}
}

// BenchmarkRanker measures what a guess of a draft takes from a row of 151,936 logits.
func BenchmarkRanker(b *testing.B) {
	row := benchLogits()
	var r Ranker
	var dst []Ranked
	ws := NewWorkspace(len(row))
	for _, n := range []int{0, 1, 4} {
		b.Run(fmt.Sprint("top ", n), func(b *testing.B) {
			b.SetBytes(int64(4 * len(row)))
			for b.Loop() {
				if n == 0 {
					ws.Argmax(row)
				} else {
					dst = r.Top(dst, row, n)
				}
			}
		})
	}
}

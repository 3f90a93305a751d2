package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
	"quickdraft/quant"
)

// sameOrNaN compares bits; any NaN equals any other.
func sameOrNaN(t *testing.T, want, got []float32, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		if g := got[i]; math.Float32bits(w) != math.Float32bits(g) && !(w != w && g != g) {
			t.Fatalf("%s: element %d is %v (%#x), want %v (%#x)", fmt.Sprintf(what, args...), i, g, math.Float32bits(g), w,
				math.Float32bits(w))
		}
	}
}

// fenced is a slice inside a larger one whose other elements must stay as they are.
type fenced struct {
	data, whole []float32
	at          int
}

const fence = 0x1.8p11

func newFenced(n, shift int, fill func() float32) *fenced {
	const margin = 40
	f := &fenced{whole: make([]float32, n+2*margin), at: margin + shift}
	for i := range f.whole {
		f.whole[i] = fence
	}
	f.data = f.whole[f.at : f.at+n : f.at+n]
	for i := range f.data {
		f.data[i] = fill()
	}
	return f
}

func (f *fenced) check(t *testing.T, what string) {
	t.Helper()
	for i, v := range f.whole {
		if (i < f.at || i >= f.at+len(f.data)) && v != fence {
			t.Fatalf("%s: element %d of a slice of %d was written", what, i-f.at, len(f.data))
		}
	}
}

// kernelOps are the operations of a set on slices of equal length; dst is read by those that work in place.
var kernelOps = []struct {
	name string
	do   func(k *kernelSet, dst, a, b []float32, lanes *laneSums)
}{
	{"add", func(k *kernelSet, dst, a, _ []float32, _ *laneSums) { k.addTo(dst, a) }},
	{"scale", func(k *kernelSet, dst, _, _ []float32, _ *laneSums) { k.scaleBy(dst, 0.3) }},
	{"divide", func(k *kernelSet, dst, a, _ []float32, _ *laneSums) { k.divideBy(dst, a, 0.7) }},
	{"silu", func(k *kernelSet, dst, a, b []float32, _ *laneSums) { k.siluMul(dst, a, b) }},
	{"gelu", func(k *kernelSet, dst, a, b []float32, _ *laneSums) { k.geluTanhMul(dst, a, b) }},
	{"softcap", func(k *kernelSet, dst, _, _ []float32, _ *laneSums) { k.softcapAll(dst, 3) }},
	{"norm", func(k *kernelSet, dst, a, b []float32, lanes *laneSums) { k.rmsNorm(dst, a, b, 1e-6, lanes) }},
	{"rotate", func(k *kernelSet, dst, a, _ []float32, _ *laneSums) {
		n := len(dst) / 2 * 2
		k.rotatePairs(dst[:n], a[:n])
	}},
	{"softmax", func(k *kernelSet, dst, _, _ []float32, lanes *laneSums) {
		if len(dst) < 6 {
			return
		}
		p := attendPair{scores: append(dst[:len(dst):len(dst)], make([]float32, Lanes)...), step: Lanes, lo: 5, end: len(dst)}
		if k.softmax == nil {
			p.softmax(&AttnParams{Scale: 0.5}, 0, len(dst))
		} else {
			p.softmaxKernel(k, 0.5, 0, lanes)
		}
		if dst[0] = p.sum; p.sum == p.sum { // otherwise all that is made of the scores is NaN
			copy(dst[5:], p.scores[5:])
		}
	}},
}

func TestKernelsHaveTheBitsOfTheLoops(t *testing.T) {
	rng := newRand(21)
	normal := func(s float64) func() float32 { return func() float32 { return float32(rng.NormFloat64() * s) } }
	anyBits := func() float32 { return math.Float32frombits(rng.Uint32()) }
	kinds := map[string]func() float32{
		"normal": normal(1), "large": normal(60), "huge": normal(1e37), "tiny": normal(1e-40), "any bits": anyBits,
		"some special": func() float32 {
			special := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
				expMin, expMax, -expMax, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}
			if rng.IntN(20) == 0 {
				return special[rng.IntN(len(special))]
			}
			return float32(rng.NormFloat64())
		},
	}
	reference := kernelSets[len(kernelSets)-1]
	for name, fill := range kinds {
		for _, n := range []int{0, 1, 15, 16, 17, 31, 32, 100, 128, 515} {
			a, b := newFenced(n, 1, fill), newFenced(n, 2, fill)
			first := newFenced(n, 3, fill)
			for _, op := range kernelOps {
				want := append([]float32(nil), first.data...)
				op.do(reference, want, a.data, b.data, new(laneSums))
				for _, k := range kernelSets[:len(kernelSets)-1] {
					if !cpu.Has(k.level) {
						continue
					}
					what := fmt.Sprintf("%s of %d, %s, %s", op.name, n, name, k.level)
					dst := newFenced(n, n%5, fill)
					copy(dst.data, first.data)
					op.do(k, dst.data, a.data, b.data, new(laneSums))
					sameOrNaN(t, want, dst.data, "%s", what)
					dst.check(t, what)
					a.check(t, what)
					b.check(t, what)
				}
			}
		}
	}
}

// TestExpOfEveryExponent compares the exponential inside the kernels with Exp32: SiLU with an up of 1 is g/(1+Exp32(-g)).
func TestExpOfEveryExponent(t *testing.T) {
	const n = 1 << 16
	gate, up, dst := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range gate {
		gate[i], up[i] = math.Float32frombits(uint32(i)<<16|uint32(i*40503)&0xffff), 1
	}
	for _, k := range kernelSets {
		if cpu.Has(k.level) {
			k.siluMul(dst, gate, up)
			for i, g := range gate {
				want := g / (1 + Exp32(-g))
				if math.Float32bits(want) != math.Float32bits(dst[i]) && want == want {
					t.Fatalf("%s: silu(%v) = %v, want %v", k.level, g, dst[i], want)
				}
			}
		}
	}
}

// TestToHalvesHasTheBitsOfTheLoop goes through every exponent, with mantissas around the ties, NaN of all kinds and lengths that
// are no runs of 16.
func TestToHalvesHasTheBitsOfTheLoop(t *testing.T) {
	rng := newRand(41)
	var src []float32
	for high := range uint32(1 << 12) {
		for _, low := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, rng.Uint32() % (1 << 20), 1<<20 - 1} {
			src = append(src, math.Float32frombits(high<<20|low))
		}
	}
	for _, n := range []int{0, 1, 15, 16, 17, 63, 64, 65, 80, len(src)} {
		want := make([]uint16, n)
		for i, x := range src[:n] {
			want[i] = quant.FloatToHalf(x)
		}
		for _, k := range kernelSets {
			if !cpu.Has(k.level) {
				continue
			}
			got := make([]uint16, n+1)
			k.roundToHalves(got, src[:n])
			require.Zero(t, got[n])
			require.Equal(t, want, got[:n], "%d values, %s", n, k.level)
		}
	}
}

func TestAttendKernelsHaveTheBitsOfTheLoops(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	for i, c := range []struct {
		p        AttnParams
		slots, n int
		first    int
		tree     bool
		special  bool
	}{
		{AttnParams{HeadDim: 1, Heads: 3, KVHeads: 3, Scale: 1}, 3, 2, 0, false, false},
		{AttnParams{HeadDim: 8, Heads: 1, KVHeads: 1, Scale: 0.3}, 1, 1, 0, false, false},
		{AttnParams{HeadDim: 20, Heads: 4, KVHeads: 2, Scale: 0.3}, 77, 9, 0, false, false},
		{AttnParams{HeadDim: 64, Heads: 9, KVHeads: 3, Scale: 0.125}, 100, 1, 0, false, false},
		{AttnParams{HeadDim: 80, Heads: 7, KVHeads: 1, Scale: 0.1}, 131, 3, 0, false, false},
		{AttnParams{HeadDim: 128, Heads: 12, KVHeads: 2, Scale: 0.088}, 300, 4, 0, false, false},
		{AttnParams{HeadDim: 256, Heads: 4, KVHeads: 1, Scale: 0.0625}, 70, 33, 0, false, false},
		{AttnParams{HeadDim: 32, Heads: 5, KVHeads: 5, Scale: 0.2, Softcap: 3}, 60, 5, 0, false, false},
		{AttnParams{HeadDim: 32, Heads: 4, KVHeads: 2, Scale: 0.2, Window: 21}, 200, 40, 64, false, false},
		{AttnParams{HeadDim: 16, Heads: 6, KVHeads: 2, Scale: 0.25}, 60, 30, 0, true, false},
		{AttnParams{HeadDim: 36, Heads: 6, KVHeads: 2, Scale: 0.25, Softcap: 9}, 90, 40, 0, true, false},
		{AttnParams{HeadDim: 16, Heads: 4, KVHeads: 2, Scale: 0.25, Window: 3}, 70, 50, 0, true, false},
		{AttnParams{HeadDim: 16, Heads: 4, KVHeads: 1, Scale: -0.25}, 50, 6, 0, false, false},
		{AttnParams{HeadDim: 16, Heads: 4, KVHeads: 1, Scale: 0}, 50, 6, 0, false, false},
		{AttnParams{HeadDim: 48, Heads: 4, KVHeads: 1, Scale: 3e38}, 50, 6, 0, false, false},
		{AttnParams{HeadDim: 16, Heads: 6, KVHeads: 1, Scale: 0.25}, 5000, 17, 0, false, false},
		{AttnParams{HeadDim: 48, Heads: 4, KVHeads: 2, Scale: 0.3}, 90, 20, 0, true, true},
		{AttnParams{HeadDim: 24, Heads: 4, KVHeads: 2, Scale: 0.3, Softcap: 5}, 90, 20, 0, false, true},
	} {
		rng := newRand(uint64(30 + i))
		s := newSequence(rng, c.p, c.slots, c.first)
		q := random(rng, c.n, c.p.Heads*c.p.HeadDim)
		if c.special {
			spoil(rng, s, q, c.slots-c.n)
		}
		span := KVSpan{N: c.n, View: s.view}
		if c.tree {
			span.Parents = randomTree(rng, c.n)
		}
		for format, view := range formatsOf(rng, s.view, c.p) {
			span.View = view
			want := NewF32(c.n, q.Cols)
			newCPU(pool, c.n, 32, kernelSets[len(kernelSets)-1]).Attend(want, q, []KVSpan{span}, c.p)
			for _, k := range kernelSets[:len(kernelSets)-1] {
				if cpu.Has(k.level) {
					got := NewF32(c.n, q.Cols)
					newCPU(pool, c.n, 32, k).Attend(got, q, []KVSpan{span}, c.p)
					sameOrNaN(t, want.Data, got.Data, "case %d, %s, %s", i, format, k.level)
				}
			}
		}
	}
}

// formatsOf returns views of the same blocks in every format; the codes are random.
func formatsOf(rng *rand.Rand, v KVView, p AttnParams) map[string]KVView {
	single := v
	single.K32, single.V32 = make([]float32, len(v.K)), make([]float32, len(v.V))
	fromHalves(single.K32, v.K)
	fromHalves(single.V32, v.V)
	random8 := func(n int) KV8 {
		s := KV8{Codes: make([]int8, n), Scales: make([]uint16, n/p.HeadDim*ceilDiv(p.HeadDim, KV8Group))}
		for i := range s.Codes {
			s.Codes[i] = int8(rng.Uint32())
		}
		for i := range s.Scales {
			s.Scales[i] = quant.FloatToHalf(float32(rng.NormFloat64() * 0.02))
		}
		return s
	}
	eight, keys8, values8 := v, v, single
	eight.K8, eight.V8 = random8(len(v.K)), random8(len(v.V))
	keys8.K8, values8.V8 = eight.K8, eight.V8
	return map[string]KVView{"float16": v, "float32": single, "8 bits": eight, "keys 8 bits": keys8, "values 8 bits": values8}
}

func randomTree(rng *rand.Rand, n int) []int32 {
	parents := make([]int32, n)
	for i := range parents {
		parents[i] = int32(max(i-1-rng.IntN(3), -1))
	}
	return parents
}

// spoil puts NaN and infinities into some queries, keys and values.
func spoil(rng *rand.Rand, s *sequence, q F32, from int) {
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for i, v := range bad {
		q.Data[rng.IntN(len(q.Data))] = v
		slot := from + 3*i + rng.IntN(3)
		s.k.Row(slot)[rng.IntN(s.k.Cols)] = v
		s.v.Row(slot)[rng.IntN(s.v.Cols)] = v
		s.put(slot, s.k.Row(slot), s.v.Row(slot))
	}
}

// TestEveryKernelIsAssembly requires a kernel of the level's own package in every field.
func TestEveryKernelIsAssembly(t *testing.T) {
	last := reflect.ValueOf(*kernelSets[len(kernelSets)-1])
	require.Equal(t, cpu.Go, kernelSets[len(kernelSets)-1].level)
	for i := 1; i < last.NumField(); i++ {
		require.True(t, last.Field(i).IsNil())
	}
	if runtime.GOARCH != "amd64" {
		require.Len(t, kernelSets, 1)
		return
	}
	require.Len(t, kernelSets, 3)
	cells := 0
	named := func(k *kernelSet, f reflect.Value) {
		require.False(t, f.IsNil())
		name := runtime.FuncForPC(f.Pointer()).Name()
		require.True(t, strings.HasPrefix(name, "quickdraft/asm/"+k.level.String()+"."), name)
		cells++
	}
	for i, level := range []cpu.Level{cpu.AVX512, cpu.AVX2} {
		k := kernelSets[i]
		require.Equal(t, level, k.level)
		for v, f := reflect.ValueOf(*k), 1; f < v.NumField(); f++ {
			if v.Field(f).Kind() == reflect.Func {
				named(k, v.Field(f))
				continue
			}
			for n := 1; n < v.Field(f).Len(); n++ {
				named(k, v.Field(f).Index(n))
			}
		}
	}
	require.Equal(t, 2*15+4*8+4*6, cells)
	require.True(t, cpu.Active(pickKernels().level))
	require.Equal(t, cpu.Best() == cpu.Go, pickKernels().level == cpu.Go)
}

func BenchmarkKernels(b *testing.B) {
	const n = 8960
	rng := newRand(22)
	x, y, z := random(rng, 1, n).Data, random(rng, 1, n).Data, random(rng, 1, n).Data
	for _, op := range kernelOps {
		for _, k := range kernelSets {
			if cpu.Has(k.level) {
				b.Run(op.name+"/"+k.level.String(), func(b *testing.B) {
					lanes := new(laneSums)
					b.SetBytes(4 * n)
					for b.Loop() {
						op.do(k, z, x, y, lanes)
					}
				})
			}
		}
	}
}

func BenchmarkAttend(b *testing.B) {
	p := AttnParams{HeadDim: 128, Heads: 12, KVHeads: 2, Scale: 0.088}
	rng := newRand(23)
	pools := []*Pool{NewPool(1), NewPool(2)}
	for _, slots := range []int{512, 4096} {
		for _, n := range []int{1, 4, 16, 64, 256} {
			q, dst := random(rng, n, p.Heads*p.HeadDim), NewF32(n, p.Heads*p.HeadDim)
			formats := formatsOf(rng, newSequence(rng, p, slots, 0).view, p)
			for _, format := range []string{"float16", "float32", "8 bits"} {
				for _, k := range kernelSets {
					for _, pool := range pools {
						if !cpu.Has(k.level) {
							continue
						}
						c := newCPU(pool, n, 32, k)
						b.Run(fmt.Sprintf("%d/x%d/%s/%s/%d", slots, n, format, k.level, pool.N()), func(b *testing.B) {
							for b.Loop() {
								c.Attend(dst, q, []KVSpan{{N: n, View: formats[format]}}, p)
							}
							b.ReportMetric(float64(n*(2*slots-n+1)*p.Heads*p.HeadDim)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
						})
					}
				}
			}
		}
	}
	for _, pool := range pools {
		pool.Close()
	}
}

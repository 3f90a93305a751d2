package quant

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/avx2"
	"quickdraft/asm/cpu"
	"quickdraft/asm/vnni"
	"quickdraft/modelfile/gguf"
)

// TestMissingKernels takes kernels out of the levels: the next level has its turn, and the reference where none is left.
func TestMissingKernels(t *testing.T) {
	f, _ := Get(gguf.TypeQ4_K)
	var some [WideM + 1]func(*float32, int, *byte, int, *byte, int, int)
	some[1] = avx2.Dots[f.Name][1]
	all := levels
	defer func() { levels = all }()
	without := vnni.Dots[f.Name]
	without[1], without[2] = nil, nil
	levels = []level{
		{cpu.VNNI, map[string][WideM + 1]func(*float32, int, *byte, int, *byte, int, int){f.Name: without}},
		{cpu.AVX512, nil},
		{cpu.AVX2, map[string][WideM + 1]func(*float32, int, *byte, int, *byte, int, int){f.Name: some}},
	}
	served := func(m int) (names []string) {
		for _, c := range append(kernels(f, m), reference(f, m)) {
			require.NotNil(t, c.Dot)
			names = append(names, c.Name)
		}
		return names
	}
	require.Equal(t, []string{"avx2.DotQ4Kx1", "go.DotQ4_K"}, served(1))
	require.Equal(t, []string{"go.DotQ4_K"}, served(2))
	require.Equal(t, []string{"vnni.DotQ4Kx3", "go.DotQ4_K"}, served(3))

	saved := slices.Clone(candidates[f.Type][2])
	defer func() { candidates[f.Type][2] = saved }()
	candidates[f.Type][2] = append(kernels(f, 2), reference(f, 2))
	picked := Pick(f.Type, 2)
	require.Equal(t, cpu.Go, picked.Level)
	one := func() float32 { return 1 }
	c := newDotCase(f, 2, 1, 2, 1, func(b []byte) {
		for i := range b {
			b[i] = 0x35
		}
	}, one, one)
	defer c.free()
	for _, v := range c.run(t, picked) {
		require.NotZero(t, v)
	}
}

// TestTwoKernelsServeTheNumbersBetween records which functions of a level run for 9 to 15 tokens: its own for one half and for the
// other, each for every tile, and never the reference.
func TestTwoKernelsServeTheNumbersBetween(t *testing.T) {
	one := func() float32 { return 1 }
	for _, l := range levels {
		if l.Level == cpu.AMX { // one kernel
			continue
		}
		for _, f := range All() {
			ran := map[int]int{} // tiles, by tokens of the kernel
			var recorders [WideM + 1]func(*float32, int, *byte, int, *byte, int, int)
			for m, dot := range l.dots[f.Name] {
				if dot == nil {
					continue
				}
				require.True(t, strings.HasPrefix(runtime.FuncForPC(reflect.ValueOf(dot).Pointer()).Name(), "quickdraft/asm/"+l.String()+"."), "%s %s x%d", l, f.Name, m)
				recorders[m] = func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int) {
					ran[m] += nTiles
				}
			}
			recording := level{l.Level, map[string][WideM + 1]func(*float32, int, *byte, int, *byte, int, int){f.Name: recorders}}
			for m := 1; m <= WideM; m++ {
				candidate, ok := recording.candidate(f, m)
				require.True(t, ok, "%s %s x%d", l, f.Name, m)
				c := newDotCase(f, m, 3, 2, 1, func([]byte) {}, one, one)
				clear(ran)
				c.run(t, candidate)
				c.free()
				want := map[int]int{m: 3}
				if MaxM < m && m < WideM {
					want = map[int]int{}
					want[(m+1)/2] += 3
					want[m/2] += 3
				}
				require.Equal(t, want, ran, "%s %s x%d", l, f.Name, m)
			}
		}
	}
}

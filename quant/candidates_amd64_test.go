package quant

import (
	"slices"
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

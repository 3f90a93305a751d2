package tensor

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
	"quickdraft/quant"
)

// servedBy returns the functions that ran in a product of n tokens, by the tokens that each was for.
func servedBy(t *testing.T, c *CPU, f *quant.Format, n int) map[int]string {
	rng := newRand(uint64(n))
	w := encode(t, rng, f.Type, 40, 512).mat(t, nil)
	ran := make(map[int]string)
	for m, dot := range w.kernels {
		if dot == nil {
			continue
		}
		name := runtime.FuncForPC(reflect.ValueOf(dot).Pointer()).Name()
		w.kernels[m] = func(dst *float32, dstStride int, tiles *byte, nTiles int, act *byte, actStride int, nBlocks int) {
			ran[m] = name
			dot(dst, dstStride, tiles, nTiles, act, actStride, nBlocks)
		}
	}
	c.MatMul(NewF32(n, 40), w, random(rng, n, 512))
	return ran
}

// serving returns how the name of the function that serves a cell begins. The level with matrix registers has not all cells,
// as package quant's table and its test say.
func serving(level cpu.Level, f *quant.Format, m int) string {
	if level == cpu.AMX {
		level = quant.Candidates(f.Type, m)[0].Level
	}
	switch {
	case level == cpu.Go:
		return "quickdraft/quant.reference."
	case quant.MaxM < m && m < quant.WideM && level != cpu.AMX:
		return "quickdraft/quant.twice."
	}
	return fmt.Sprintf("quickdraft/asm/%s.Dot%sx%d", level, strings.ReplaceAll(f.Name, "_", ""), m)
}

// TestTheListedKernelsRun records the function that computes each format for 1 to 17 tokens, in a process for each
// instruction set that the processor has when QUICKDRAFT_ISA names none: it is the kernel of that level for that number. Short
// runs are of this process alone: where CI emulates a processor with them, a child would run on the real one.
func TestTheListedKernelsRun(t *testing.T) {
	isa := os.Getenv(cpu.EnvISA)
	if isa == "" && !testing.Short() {
		for _, level := range cpu.Levels() {
			if cpu.Has(level) {
				cmd := exec.Command(os.Args[0], "-test.run=^TestTheListedKernelsRun$")
				cmd.Env = append(os.Environ(), cpu.EnvISA+"="+level.String())
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s: %s", level, out)
			}
		}
		return
	}
	pool := NewPool(1)
	defer pool.Close()
	c := NewCPU(pool, 17, 512)
	level := cpu.Best()
	if isa != "" {
		require.Equal(t, isa, level.String())
	}
	for _, f := range quant.All() {
		seen := make(map[int]bool)
		for n := 1; n <= 17; n++ {
			got := servedBy(t, c, f, n)
			require.NotEmpty(t, got)
			if n <= quant.WideM {
				require.Len(t, got, 1, "%s, %d tokens", f.Name, n)
				require.Contains(t, got, n, "%s: the exact kernel", f.Name)
			}
			for m, name := range got {
				seen[m] = true
				want := serving(level, f, m)
				require.True(t, strings.HasPrefix(name, want), "%s, %d tokens: %s ran, want %s", f.Name, n, name, want)
			}
		}
		require.Len(t, seen, quant.WideM)
	}
}

package quant

import (
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

// TestKernelsUnderSignals runs the widest kernels of the best level on many threads, more than there are processors, while
// the garbage collector preempts them with signals, a profiler interrupts them, and other threads multiply other formats: a
// register that the system does not restore, or a scratch that threads share, changes bits.
func TestKernelsUnderSignals(t *testing.T) {
	const threads, goroutines = 16, 24
	duration := 3 * time.Second
	if testing.Short() {
		duration = time.Second
	}
	rng := rand.New(rand.NewPCG(7, 8))
	x := func() float32 { return float32(rng.NormFloat64()) }
	random := func(b []byte) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	var cases []*dotCase
	var wants [][]float32
	for _, f := range All() {
		if f.Float {
			continue
		}
		c := newDotCase(f, WideM, 3, 768/f.BlockSize, 1, random, x, x)
		defer c.free()
		all := Candidates(f.Type, WideM)
		cases, wants = append(cases, c), append(wants, c.run(t, all[len(all)-1]))
	}
	require.NoError(t, pprof.StartCPUProfile(io.Discard))
	defer pprof.StopCPUProfile()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	var stop atomic.Bool
	var wg sync.WaitGroup
	var calls atomic.Int64
	failed := make([]string, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := g; !stop.Load() && failed[g] == ""; i++ {
				c, want := cases[i%len(cases)], wants[i%len(cases)]
				dst := make([]float32, WideM*c.nTiles*TileRows)
				picked := Pick(c.f.Type, WideM)
				picked.Dot(&dst[0], c.nTiles*TileRows, c.tiles.first(), c.nTiles, c.act.first(), c.actStride, c.nBlocks)
				if !slices.Equal(want, dst) {
					failed[g] = picked.Name
				}
				calls.Add(1)
			}
		})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for end := time.Now().Add(duration); time.Now().Before(end) || calls.Load() <= goroutines; { // an emulated processor is slow
		runtime.GC()
	}
	stop.Store(true)
	wg.Wait()
	runtime.ReadMemStats(&after)
	for _, name := range failed {
		require.Empty(t, name, "%s has other bits under signals", name)
	}
	require.Greater(t, calls.Load(), int64(goroutines))
	require.Greater(t, after.NumGC, before.NumGC)
	t.Logf("%d kernel calls at %v, %d collections", calls.Load(), cpu.Best(), after.NumGC-before.NumGC)
}

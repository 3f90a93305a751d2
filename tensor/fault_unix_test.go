//go:build unix

package tensor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"quickdraft/machine"
	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// lost maps n bytes of a file that is cut to nothing afterwards.
func lost(t *testing.T, n int) []byte {
	path := filepath.Join(t.TempDir(), "weights")
	require.NoError(t, os.WriteFile(path, make([]byte, n), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(data) })
	require.NoError(t, os.Truncate(path, 0))
	return data
}

// readTask has one worker read memory.
type readTask struct {
	countTask
	reader int
	data   []byte
	sum    byte
}

func (t *readTask) Do(worker, n int) {
	t.countTask.Do(worker, n)
	if worker == t.reader {
		t.sum += t.data[len(t.data)/2]
	}
}

// caught runs a task and returns the panic of it.
func caught(run func()) (x any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { x = recover() }()
	run()
	return nil
}

// TestPoolSurvivesFaults has each worker in turn, the caller among them, read what is gone from a mapped file: all others end
// their parts, Run panics with the fault, and the next task runs as ever.
func TestPoolSurvivesFaults(t *testing.T) {
	data := lost(t, 4096)
	for _, n := range []int{1, 3} {
		p := NewPool(n)
		for reader := range n {
			bad := &readTask{countTask: countTask{make([]int, n)}, reader: reader, data: data}
			good := &countTask{make([]int, n)}
			for range 20 {
				fault, ok := caught(func() { p.Run(bad) }).(machine.Fault)
				require.True(t, ok, "worker %d of %d", reader, n)
				require.Equal(t, uintptr(unsafe.Pointer(&data[len(data)/2])), fault.Addr())
				p.Run(good)
			}
			for worker := range n {
				require.Equal(t, 20, bad.calls[worker])
				require.Equal(t, 20, good.calls[worker])
			}
		}
		p.Close()
	}
}

// TestKernelsSurviveFaults multiplies with weights that are gone: the kernels read them, in every format, one and two of
// them for the tokens. The collector looks at the stacks meanwhile.
func TestKernelsSurviveFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("does not end under emulation (qemu-x86_64), which CI runs with -short")
	}
	const rows, cols = 256, 512
	rng := newRand(9)
	for _, c := range cpus(t, quant.WideM, cols) {
		good := encode(t, rng, gguf.TypeQ4_K, rows, cols).mat(t, c.pool)
		for _, f := range quant.All() {
			whole := encode(t, rng, f.Type, rows, cols).mat(t, c.pool)
			w, err := NewMatTiles("weights", f.Type, rows, cols, lost(t, len(whole.Tiles)))
			require.NoError(t, err)
			for _, n := range []int{1, 3, quant.MaxM, quant.MaxM + 1, quant.WideM} {
				x, y, want := random(rng, n, cols), NewF32(n, rows), NewF32(n, rows)
				_, ok := caught(func() {
					defer runtime.GC() // with the frames of the kernel still there
					c.MatMul(y, w, x)
				}).(machine.Fault)
				require.True(t, ok, "%s, %d tokens", f.Name, n)
				_, ok = caught(func() { c.Embed(NewF32(1, cols), w, []int32{3}, 1) }).(machine.Fault)
				require.True(t, ok, "%s", f.Name)
				c.MatMul(y, good, x)
				c.MatMul(want, good, x)
				same(t, want, y, "after a fault")
			}
		}
	}
}

// TestPoolLetsOtherPanicsPass: what is no fault of memory is no business of the pool's.
func TestPoolLetsOtherPanicsPass(t *testing.T) {
	p := NewPool(1)
	defer p.Close()
	mine := errors.New("mine")
	require.Equal(t, any(mine), caught(func() { p.Run(panicTask{mine}) }))
	var nothing *readTask
	x := caught(func() { p.Run(nothing) })
	_, fault := x.(machine.Fault)
	require.NotNil(t, x)
	require.False(t, fault, "a nil pointer is a mistake of the program")
}

type panicTask struct{ err error }

func (t panicTask) Do(int, int) { panic(t.err) }

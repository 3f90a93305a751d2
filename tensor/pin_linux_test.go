package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// placeTask notes how many processors each worker's thread may use.
type placeTask struct{ counts []int }

func (t *placeTask) Do(worker, _ int) {
	var may unix.CPUSet
	if unix.SchedGetaffinity(0, &may) == nil {
		t.counts[worker] = may.Count()
	}
}

func TestPoolPinsWorkersThatFillTheMachine(t *testing.T) {
	var may unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &may))
	all := may.Count()
	for _, n := range []int{all, all + 1, max(all-1, 1)} {
		p := NewPool(n)
		task := &placeTask{counts: make([]int, n)}
		p.Run(task)
		p.Close()
		require.Equal(t, all, task.counts[0], "the caller's thread is not ours to pin")
		for i := 1; i < n; i++ {
			want := all
			if n == all {
				want = 1
			}
			require.Equal(t, want, task.counts[i], "worker %d of %d", i, n)
		}
	}
}

func TestPoolKeepsToItsCores(t *testing.T) {
	var may unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &may))
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	p := NewPoolOn(3, []int{cpu})
	defer p.Close()
	task := &placeTask{counts: make([]int, 3)}
	p.Run(task)
	require.Equal(t, []int{may.Count(), 1, 1}, task.counts)

	confined := make(chan struct{})
	go func() {
		defer close(confined)
		Confine([]int{cpu})
		p.Run(task)
	}()
	<-confined
	require.Equal(t, []int{1, 1, 1}, task.counts)
	p.Run(task)
	require.Equal(t, may.Count(), task.counts[0], "the thread ends with the goroutine that it was confined for")
}

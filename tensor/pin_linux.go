package tensor

import "golang.org/x/sys/unix"

// pin binds the calling thread, worker i of n, to a processor when the workers fill all those that the process may use.
// Then the scheduler cannot put two workers on one processor. When there are more processors it spreads them well, and
// when there are fewer workers than processors another process may need the place.
func pin(n, i int) {
	var may unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil || may.Count() != n {
		return
	}
	for cpu := range len(may) * 64 {
		if !may.IsSet(cpu) {
			continue
		}
		if i == 0 {
			restrict([]int{cpu})
			return
		}
		i--
	}
}

// restrict lets the calling thread run on some processors only; a refusal leaves it where the system puts it.
func restrict(cores []int) {
	var set unix.CPUSet
	for _, cpu := range cores {
		set.Set(cpu)
	}
	_ = unix.SchedSetaffinity(0, &set)
}

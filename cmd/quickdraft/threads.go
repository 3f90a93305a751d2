package main

import (
	"fmt"
	"os"
	"sync"

	"quickdraft/machine"
)

// maxOversubscription is how many threads a CPU are obeyed. Workers wait for each other after every matrix, so that each
// one beyond the CPUs makes all of them wait for the scheduler; a few are of use to tests.
const maxOversubscription = 4

// warnThreads says it once, however many models a command loads.
var warnThreads sync.Once

// checkThreads judges -t by the CPUs that this process may use.
func checkThreads(threads int) error {
	warning, err := judgeThreads(threads, machine.CPUs())
	if warning != "" {
		warnThreads.Do(func() { fmt.Fprintln(os.Stderr, warning) })
	}
	return err
}

// judgeThreads returns an error for a number that cannot be meant, and a warning for one that makes things slower.
func judgeThreads(threads, cpus int) (warning string, err error) {
	switch {
	case threads < 0:
		return "", &usageError{fmt.Errorf("-t %d: want 0 (automatic) or more", threads)}
	case threads > maxOversubscription*cpus:
		return "", &usageError{fmt.Errorf("-t %d: this process may use %s; want 0 (automatic) to %d, and at most %d to be fast",
			threads, countCPUs(cpus), maxOversubscription*cpus, cpus)}
	case threads > cpus:
		return fmt.Sprintf("warning: -t %d is more threads than the %s that this process may use: they wait for each other", threads, countCPUs(cpus)), nil
	}
	return "", nil
}

func countCPUs(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

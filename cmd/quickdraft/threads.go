package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/spf13/pflag"

	"quickdraft/asm/cpu"
	"quickdraft/machine"
)

// maxOversubscription is how many threads a CPU are obeyed. Workers wait for each other after every matrix, so that each
// one beyond the CPUs makes all of them wait for the scheduler; a few are of use to tests.
const maxOversubscription = 4

// threadsValue is the option -t.
type threadsValue struct{ whole[int] }

// Set checks the value by the CPUs that this process may use.
func (v *threadsValue) Set(s string) error {
	var n int
	if err := (&whole[int]{&n, 0, noLimit}).Set(s); err != nil {
		return fmt.Errorf("want a whole number from 0 (automatic) to %d", v.most)
	}
	if _, err := judgeThreads(n, machine.CPUs()); err != nil {
		return err
	}
	*v.p = n
	return nil
}

func addThreads(fl *pflag.FlagSet, p *int, usage string) {
	fl.VarP(&threadsValue{whole[int]{p, 0, maxOversubscription * machine.CPUs()}}, "threads", "t", usage)
}

// warnedThreads makes that it is said once, however many models a command loads.
var warnedThreads sync.Once

// warnThreads says when -t makes things slower.
func warnThreads(threads int) {
	if warning, _ := judgeThreads(threads, machine.CPUs()); warning != "" {
		warnedThreads.Do(func() { fmt.Fprintln(os.Stderr, warning) })
	}
}

// judgeThreads returns an error for a number that cannot be meant, and a warning for one that makes things slower.
func judgeThreads(threads, cpus int) (warning string, err error) {
	switch {
	case threads > maxOversubscription*cpus:
		return "", fmt.Errorf("this process may use %s; want 0 (automatic) to %d, and at most %d to be fast", countCPUs(cpus), maxOversubscription*cpus, cpus)
	case threads > cpus:
		return fmt.Sprintf("warning: -t %d is more threads than the %s that this process may use: they wait for each other", threads, countCPUs(cpus)), nil
	}
	return "", nil
}

// warnedSlow makes that it is said once.
var warnedSlow sync.Once

// warnSlow says why no kernel in assembly runs, unless QUICKDRAFT_ISA asks for that.
func warnSlow() {
	if _, capped := cpu.Cap(); capped {
		return
	}
	if why := cpu.Missing(); why != "" {
		warnedSlow.Do(func() { fmt.Fprintln(os.Stderr, "warning: "+why) })
	}
}

func countCPUs(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

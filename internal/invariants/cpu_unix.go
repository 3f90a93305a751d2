//go:build unix

package invariants

import (
	"syscall"
	"time"
)

// CPUTime is what this process has computed so far: it bounds work whatever else the machine does.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

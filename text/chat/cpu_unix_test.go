//go:build unix

package chat

import (
	"syscall"
	"time"
)

// cpuTime is what this process has computed so far: it bounds the work of a template whatever else the machine does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

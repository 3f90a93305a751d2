//go:build !unix

package chat

import "time"

var started = time.Now()

// cpuTime is the time since the start where the system has no count of its own.
func cpuTime() time.Duration { return time.Since(started) }

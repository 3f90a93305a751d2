//go:build !unix

package invariants

import "time"

var started = time.Now()

// CPUTime is the time since the start where the system has no count of its own.
func CPUTime() time.Duration { return time.Since(started) }

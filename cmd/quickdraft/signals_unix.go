//go:build unix

package main

import (
	"os"
	"syscall"
)

// writeSignals come with errors of writing that say the same.
var writeSignals = []os.Signal{syscall.SIGPIPE, syscall.SIGXFSZ}

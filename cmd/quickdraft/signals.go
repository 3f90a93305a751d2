package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"quickdraft/internal/disk"
)

// stopped is why a context ended: a signal asked the program to stop.
type stopped struct{ signal syscall.Signal }

func (e *stopped) Error() string { return "interrupted" }

// code is the exit code that shells give to a program which a signal ended.
func (e *stopped) code() int { return 128 + int(e.signal) }

// grace is how long a command may take to stop. Nothing waits that long but what cannot be interrupted, such as the tokenizing
// of a large text.
var grace = 3 * time.Second

// watchSignals returns a context that ends with a *stopped when Ctrl-C, SIGTERM or the end of the terminal asks to stop. A second
// such signal, or a command that does not stop, ends the program at once; unfinished files are removed then too.
//
// A pipe that nobody reads and a file that may not grow make writing fail instead of ending the program with its temporary
// files in place.
func watchSignals(parent context.Context) context.Context {
	signal.Notify(make(chan os.Signal, 1), writeSignals...)
	stop := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup and background jobs of scripts ignore some
			signal.Notify(stop, s)
		}
	}
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		s, _ := (<-stop).(syscall.Signal)
		why := &stopped{s}
		cancel(why)
		select {
		case <-stop:
		case <-time.After(grace):
		}
		disk.AbandonAll()
		resetTerminal()
		os.Exit(why.code())
	}()
	return ctx
}

// terminalReset undoes what a running chat did to the terminal.
var terminalReset struct {
	sync.Mutex
	reset func()
}

// onReset says how to undo what is about to be done to the terminal; nil: it is undone.
func onReset(reset func()) {
	terminalReset.Lock()
	defer terminalReset.Unlock()
	terminalReset.reset = reset
}

func resetTerminal() {
	terminalReset.Lock()
	defer terminalReset.Unlock()
	if terminalReset.reset != nil {
		terminalReset.reset()
	}
}

// outStream is standard output. It keeps the first error, so that no command has to look for it to end with it.
type outStream struct{ err error }

var stdout = &outStream{}

// Write writes to what standard output is now.
func (o *outStream) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := os.Stdout.Write(b)
	if err != nil {
		o.err = fmt.Errorf("standard output: %w", withoutName(err))
		err = o.err
	}
	return n, err
}

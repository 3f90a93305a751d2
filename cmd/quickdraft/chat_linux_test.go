package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestChatGivesTheTerminalBack ends a chat from outside.
func TestChatGivesTheTerminalBack(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("TERM", "xterm-256color")
	model := small(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		tty, written := terminal(t)
		modes := func() unix.Termios {
			m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			require.NoError(t, err)
			return *m
		}
		before := modes()
		cmd := program(t, "run", "-m", model)
		cmd.Env = append(cmd.Env, asProgram+"=patient")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return modes().Lflag&unix.ICANON == 0 }, 20*time.Second, 10*time.Millisecond, "the chat did not open")
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		require.NoError(t, cmd.Process.Signal(signal))
		require.Equal(t, 128+int(signal), exited(t, cmd))
		require.Less(t, time.Since(start), patience/2)
		require.Equal(t, before, modes())
		text := written()
		require.Greater(t, strings.LastIndex(text, "\x1b[?25h"), strings.LastIndex(text, "\x1b[?25l"), "the cursor stays hidden: %q", text)
		require.NotContains(t, text, "error")
	}
}

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
		tty, _, screen := terminal(t)
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
		require.Eventually(t, func() bool { return modes().Lflag&unix.ICANON == 0 }, patience, 10*time.Millisecond, "the chat did not open")
		screen.waitFor(t, "\x1b[?25l") // and hid the cursor
		start := time.Now()
		require.NoError(t, cmd.Process.Signal(signal))
		require.Equal(t, 128+int(signal), exited(t, cmd))
		require.Less(t, time.Since(start), patience/2)
		require.Equal(t, before, modes())
		text := screen.end(t)
		require.Greater(t, strings.LastIndex(text, "\x1b[?25h"), strings.LastIndex(text, "\x1b[?25l"), "the cursor stays hidden: %q", text)
		require.NotContains(t, text, "error")
	}
}

// TestChatHasASystemMessageOrNone opens a chat with a model that has no place for one.
func TestChatHasASystemMessageOrNone(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("TERM", "xterm-256color")
	tty, _, screen := terminal(t)
	cmd := program(t, "run", "-m", small(t), "--system", "be brief")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.Equal(t, 2, exited(t, cmd))
	require.Contains(t, screen.end(t), `error: --system "be brief": the model has no chat template`)
}

// TestChatTakesWhatIsTyped types what people and programs do not, in terminals of odd sizes.
func TestChatTakesWhatIsTyped(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("TERM", "xterm-256color")
	model := small(t)
	for _, size := range []unix.Winsize{{}, {Row: 1, Col: 1}, {Row: 2, Col: 3}, {Row: 24, Col: 80}, {Row: 500, Col: 1000}} {
		tty, keys, screen := terminal(t)
		require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &size))
		cmd := program(t, "run", "-m", model, "-n", "100", "--ignore-eos")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			return err == nil && m.Lflag&unix.ICANON == 0
		}, patience, 10*time.Millisecond, "the chat did not open")
		for i, text := range []string{
			"hi\r", "more\r", "/stats\r", "/nonsense\r", "\x03", "\xff\xfe\x80\r", "\x1b[A\x1b[A\x1b[B\r", "\x1b[200~" + strings.Repeat("pasted\nlines ", 300) + "\x1b[201~\r",
			"\x1b[999;999H\x1b]0;title\x07\x00\x01\x02\r", "/reset\r", "\u200d\u0301e\U0001f468\u200d\U0001f469\r", "/help\r",
		} {
			_, err := keys.Write([]byte(text))
			require.NoError(t, err)
			other := unix.Winsize{Row: uint16(3 * i % 40), Col: uint16(7 * i % 90)}
			require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &other))
			if time.Sleep(30 * time.Millisecond); i == 0 && size.Col == 80 {
				screen.waitFor(t, "tokens/s") // an answer
			}
		}
		over := make(chan int, 1)
		go func() { over <- exited(t, cmd) }()
		code := -1
		for deadline := time.Now().Add(patience); code < 0 && time.Now().Before(deadline); {
			_, err := keys.Write([]byte("\x03")) // stops an answer, empties the line, leaves
			require.NoError(t, err)
			select {
			case code = <-over:
			case <-time.After(100 * time.Millisecond):
			}
		}
		text := screen.end(t)
		require.Equal(t, 0, code, "%+v: %s", size, text[max(0, len(text)-2000):])
		require.NotContains(t, text, "goroutine")
	}
}

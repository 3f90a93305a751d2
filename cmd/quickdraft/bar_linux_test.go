package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// screen is what was written to a terminal so far.
type screen struct {
	transcript
	tty  *os.File
	over chan struct{}
}

// end closes the program's end of the terminal and returns all that was written to it.
func (s *screen) end(t *testing.T) string {
	require.NoError(t, s.tty.Close())
	<-s.over
	return s.String()
}

// terminal opens a terminal of 80 columns and returns its end for programs, its keys and its screen.
func terminal(t *testing.T) (tty, keys *os.File, s *screen) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	s = &screen{tty: tty, over: make(chan struct{})}
	go func() {
		_, _ = io.Copy(s, master) // ends with EIO when the other end is closed
		close(s.over)
	}()
	return tty, master, s
}

func TestBarOnATerminal(t *testing.T) {
	tty, _, s := terminal(t)
	b := newBar("loading", tty)
	b.Set(0, 64<<20)
	b.Set(16<<20, 64<<20)
	s.waitFor(t, "25 %")
	b.Note("a line above")
	b.Set(64<<20, 64<<20)
	b.Finish()
	b.Note("a line after")
	text := s.end(t)
	require.Contains(t, text, "loading 16.0 MiB / 64.0 MiB")
	require.Contains(t, text, "a line above")
	require.True(t, strings.HasSuffix(text, "a line after\r\n"))
}

func TestNoBarElsewhere(t *testing.T) {
	out, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	b := newBar("loading", out)
	b.Set(1, 2)
	b.Note("a line")
	b.Finish()
	data, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Equal(t, "a line\n", string(data))
}

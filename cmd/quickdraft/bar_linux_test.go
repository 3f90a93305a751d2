package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal opens a terminal of 80 columns and returns its end for programs and what will have been written to it.
func terminal(t *testing.T) (tty *os.File, written func() string) {
	tty, _, written = typewriter(t)
	return tty, written
}

// typewriter is a terminal with its keys.
func typewriter(t *testing.T) (tty, keys *os.File, written func() string) {
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
	text := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(master) // ends with EIO when the other end is closed
		text <- string(data)
	}()
	return tty, master, func() string {
		require.NoError(t, tty.Close())
		return <-text
	}
}

func TestBarOnATerminal(t *testing.T) {
	tty, written := terminal(t)
	b := newBar("loading", tty)
	b.Set(0, 64<<20)
	b.Set(16<<20, 64<<20)
	time.Sleep(300 * time.Millisecond) // two refreshes
	b.Note("a line above")
	b.Set(64<<20, 64<<20)
	b.Finish()
	b.Note("a line after")
	text := written()
	require.Contains(t, text, "loading 16.0 MiB / 64.0 MiB")
	require.Contains(t, text, "25 %")
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

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/disk"
)

// asProgram makes the test binary the program itself, or a part of it that a test looks at.
const asProgram = "QUICKDRAFT_TEST_PROGRAM"

// readyFile is the descriptor to which a patient program writes once it watches signals.
const readyFile = "QUICKDRAFT_TEST_READY"

// statusFile names the file of a weighed program.
const statusFile = "QUICKDRAFT_TEST_STATUS"

// patience is the grace of patient programs, and how long tests wait for what programs do.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "":
		for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
			if signal.Ignored(s) { // under nohup: a signal that is caught here, unlike one that is ignored, ends the programs that tests start
				signal.Notify(make(chan os.Signal, 1), s)
			}
		}
		os.Exit(m.Run())
	case "stuck", "stuck and patient": // a command that does not stop
		if os.Getenv(asProgram) != "stuck" {
			grace = patience
		}
		ctx := watchSignals(context.Background())
		if _, err := disk.Create(os.Args[1]); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("ready\n")
		<-ctx.Done()
		os.Stdout.WriteString("asked\n")
		time.Sleep(2 * patience)
	case "patient": // it waits for commands, so that one which does not stop takes long enough to be noticed on a busy machine
		grace = patience
		ctx := watchSignals(context.Background())
		if n, err := strconv.Atoi(os.Getenv(readyFile)); err == nil {
			f := os.NewFile(uintptr(n), "ready")
			f.WriteString("r")
			f.Close()
		}
		os.Exit(runMain(ctx, os.Args[1:]))
	case "weighed": // it leaves what Linux says of it in a file
		code := runMain(watchSignals(context.Background()), os.Args[1:])
		status, err := os.ReadFile("/proc/self/status")
		if err == nil {
			err = os.WriteFile(os.Getenv(statusFile), status, 0o666)
		}
		if err != nil {
			panic(err)
		}
		os.Exit(code)
	default:
		main()
	}
}

// program is the program with arguments, in a process of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asProgram+"=main")
	return cmd
}

// transcript is what a program has written so far.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// waitFor waits until a text is there.
func (s *transcript) waitFor(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.String(), text) }, patience, time.Millisecond, "%q did not come", text)
}

// exited waits for a process and returns its exit code.
func exited(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	defer time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() }).Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil {
		require.True(t, errors.As(err, &exit), "%v", err)
	}
	return cmd.ProcessState.ExitCode()
}

// ran runs a process to its end.
func ran(t *testing.T, cmd *exec.Cmd) (code int, stderr string) {
	t.Helper()
	var text bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &text
	}
	require.NoError(t, cmd.Start())
	code = exited(t, cmd)
	return code, text.String()
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// start runs a command that loads a model, and returns the most memory that was resident (VmHWM), the processors' time and what it
// printed. The program reads its own status: what the kernel says of an ended child includes what was resident in this process
// when the child was made.
func start(t *testing.T, cmd *exec.Cmd) (peak int64, cpu time.Duration, out string) {
	path := filepath.Join(t.TempDir(), "status")
	cmd.Env = append(cmd.Env, asProgram+"=weighed", statusFile+"="+path)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	require.NoError(t, err)
	status, err := os.ReadFile(path)
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(status)
	require.Len(t, found, 2)
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	require.NoError(t, err)
	return kib << 10, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), string(text)
}

// TestResidentMemoryAndSecondStart starts with a real model twice: both times no more is resident than 1.1 times the repacked
// weights, the KV cache of 256 tokens and everything else included, and the second start, which maps what the first one
// packed, leaves the file as it is and takes at most half of the first one's work.
func TestResidentMemoryAndSecondStart(t *testing.T) {
	for _, name := range []string{"qwen15"} {
		t.Run(name, func(t *testing.T) {
			model, home := golden.Model(t, name), t.TempDir()
			t.Setenv("QUICKDRAFT_HOME", home)
			load := func() (peak int64, cpu time.Duration, out string) {
				return start(t, program(t, "debug", "generate", "-m", model, "--ids", "1,2,3", "-n", "4", "-c", "256"))
			}
			tiles := func() os.FileInfo {
				paths, err := filepath.Glob(filepath.Join(home, "repacked", "*"))
				require.NoError(t, err)
				require.Len(t, paths, 1)
				info, err := os.Stat(paths[0])
				require.NoError(t, err)
				return info
			}
			peak1, cpu1, out1 := load()
			first := tiles()
			peak2, cpu2, out2 := load()
			second := tiles()
			t.Logf("%d bytes of weights; resident %d and %d; %v and %v of processor time", first.Size(), peak1, peak2, cpu1, cpu2)
			require.Equal(t, out1, out2)
			require.True(t, os.SameFile(first, second) && first.ModTime().Equal(second.ModTime()), "the second start made the file again")
			for _, peak := range []int64{peak1, peak2} {
				require.LessOrEqual(t, 10*peak, 11*first.Size())
			}
			require.LessOrEqual(t, 2*cpu2, cpu1)
		})
	}
}

package main

import (
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOldProcessors runs on emulated ones: what is missing is said in one line, where something is.
func TestOldProcessors(t *testing.T) {
	qemu, err := exec.LookPath("qemu-x86_64")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("qemu-x86_64 is not installed")
	}
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("QUICKDRAFT_ISA", "")
	const lacks = "warning: this processor or operating system lacks AVX, AVX2, FMA, F16C, BMI2: the portable Go kernels run, which are many times slower\n"
	model := small(t)
	for processor, want := range map[string][]string{"Nehalem": {lacks, ", go kernels, "}, "Haswell": {", avx2 kernels, "}} {
		for _, args := range [][]string{{"run", "-m", model, "-p", "a", "-n", "2"}, {"debug", "generate", "-m", model, "--ids", "1", "-n", "2"}} {
			cmd := program(t, args...)
			cmd.Args = append([]string{qemu, "-cpu", processor, cmd.Path}, args...)
			cmd.Path = qemu
			code, stderr := ran(t, cmd)
			require.Equal(t, 0, code, stderr)
			for _, line := range want {
				if args[0] == "run" || line == lacks { // the others print no start-up line
					require.Contains(t, stderr, line, processor)
				}
			}
			if processor == "Haswell" {
				require.NotContains(t, stderr, "lacks")
			}
		}
	}
}

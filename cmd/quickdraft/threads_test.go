package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/machine"
)

func TestThreadsBeyondTheCPUs(t *testing.T) {
	for _, c := range []struct {
		threads, cpus  int
		warning, fails string
	}{
		{0, 2, "", ""},
		{2, 2, "", ""},
		{3, 2, "-t 3 is more threads than the 2 CPUs", ""},
		{4, 1, "-t 4 is more threads than the 1 CPU that", ""},
		{8, 2, "-t 8 is more threads than the 2 CPUs", ""},
		{9, 2, "", "this process may use 2 CPUs; want 0 (automatic) to 8, and at most 2 to be fast"},
		{1000, 2, "", "this process may use 2 CPUs"},
	} {
		warning, err := judgeThreads(c.threads, c.cpus)
		if c.fails == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.fails)
		}
		require.Contains(t, warning, c.warning)
		require.Equal(t, c.warning == "", warning == "", warning)
	}
}

func TestEveryCommandJudgesThreads(t *testing.T) {
	many := fmt.Sprint(4*machine.CPUs() + 1)
	path := small(t)
	for _, args := range [][]string{
		{"run", "-m", path, "-p", "a"}, {"bench", "-m", path}, {"bench", "decode", "-m", path}, {"bench", "batch", "-m", path},
		{"bench", "roofline"}, {"bench", "spec", "-m", path}, {"perplexity", "-m", path, "-f", path}, {"imatrix", "-m", path, "-f", path, "-o", "x"},
		{"quantize", path, "x.gguf", "q8_0"}, {"debug", "logits", "-m", path, "--ids", "1"}, {"debug", "generate", "-m", path, "--ids", "1"},
	} {
		cmd := root()
		cmd.SetArgs(append(args, "-t", many))
		err := cmd.Execute()
		require.ErrorContains(t, err, fmt.Sprintf("-t, --threads %q: this process may use", many), "%v", args)
		var usage *usageError
		require.True(t, errors.As(err, &usage), "%v", args)
	}
}

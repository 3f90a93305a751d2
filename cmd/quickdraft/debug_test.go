package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

func TestDebugTakesOnlyWhatItObeys(t *testing.T) {
	for _, args := range [][]string{
		{"tokenize", "-c", "1"}, {"tokenize", "-t", "1"}, {"tokenize", "--weights", "f32"}, {"tokenize", "--no-repack-cache"}, {"tokenize", "--cache-type-k", "q8_0"},
		{"template", "-c", "1"}, {"template", "-t", "1"}, {"template", "--weights", "f32"}, {"template", "--no-repack-cache"}, {"template", "--cache-type-v", "q8_0"},
		{"logits", "--ids", "1", "-c", "1"}, {"logits", "--ids", "1", "--cache-type-k", "q8_0"}, {"levels", "-m", "x"},
	} {
		cmd := root()
		cmd.SetArgs(append([]string{"debug"}, args...))
		err := cmd.Execute()
		var usage *usageError
		require.True(t, errors.As(err, &usage), "%v: %v", args, err)
		require.ErrorContains(t, err, "unknown", "%v", args)
	}
}

// TestDebugLevelsIgnoresTheCap lists what the processor has, whatever QUICKDRAFT_ISA names.
func TestDebugLevelsIgnoresTheCap(t *testing.T) {
	list := func(isa string) string {
		cmd := program(t, "debug", "levels")
		cmd.Env = append(cmd.Env, cpu.EnvISA+"="+isa)
		out, err := cmd.Output()
		require.NoError(t, err, "QUICKDRAFT_ISA=%s", isa)
		return string(out)
	}
	all := list("")
	for _, l := range cpu.Levels() {
		require.Equal(t, all, list(l.String()), l.String())
	}
	require.Equal(t, all, list("sse"))
	var want strings.Builder
	for _, l := range cpu.Host() {
		fmt.Fprintln(&want, l)
	}
	require.Equal(t, want.String(), all)
	require.True(t, strings.HasPrefix(all, "go\n"))
	if runtime.GOARCH == "amd64" {
		require.Equal(t, cpu.Has(cpu.AVX2), strings.Contains(all, "avx2\n"))
	}
}

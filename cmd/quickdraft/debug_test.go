package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
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

package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/bench"
	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
)

// against reads a fixed text with a model as the file has it and in float32 throughout, and returns the perplexity and by how many
// percent it is above float32's.
func against(t *testing.T, model, context, windows string) (perplexity, percent float64) {
	t.Helper()
	var got struct {
		Perplexity float64
		Tokens     int
		Percent    float64 `json:"percent_of_f32"`
	}
	args := []string{"perplexity", "-m", model, "-f", filepath.Join("testdata", "harbour.txt"), "-c", context, "--windows", windows, "--against-f32", "--json"}
	require.NoError(t, json.Unmarshal(output(t, args...), &got))
	t.Logf("%s: perplexity %.4f over %d tokens, %+.4f %% of float32", filepath.Base(model), got.Perplexity, got.Tokens, got.Percent)
	require.Greater(t, got.Tokens, 100)
	require.NotZero(t, got.Percent, "the two are computed differently")
	return got.Perplexity, got.Percent
}

// mostPercent is how far int8 activations may move the perplexity of weights in Q4_K_M.
const mostPercent = 0.5

// TestPerplexityOfQ4KM compares a real model with float32 computation on the same weights. Measured: -0.20 %.
func TestPerplexityOfQ4KM(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	if testing.Short() {
		t.Skip("a real model takes some ten seconds")
	}
	perplexity, percent := against(t, golden.Model(t, "gemma3"), "320", "1")
	require.InDelta(t, 0, percent, mostPercent)
	require.Less(t, perplexity, 40.0, "it knows the language")
}

// TestPerplexityOfRandomQ4K compares random weights.
func TestPerplexityOfRandomQ4K(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "random.gguf")
	s := bench.Shape{
		Name: "random", Arch: "llama", Layers: 4, Dim: 512, Heads: 8, KVHeads: 4, HeadDim: 64, FF: 1024, Vocab: 600, Context: 1024,
		RopeBase: 10000, Eps: 1e-5, Tied: true,
	}
	require.NoError(t, s.Write(t.Context(), path, gguf.TypeQ4_K))
	_, percent := against(t, path, "256", "3")
	require.InDelta(t, 0, percent, mostPercent)
}

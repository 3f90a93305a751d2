package model

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// TestWindows reads which layers have a sliding window, in the ways of config.json.
func TestWindows(t *testing.T) {
	root := golden.Dir(t, "archs")
	type fields = map[string]any
	window := func(more fields) fields {
		more["use_sliding_window"], more["sliding_window"] = true, 9
		return more
	}
	types := []string{"sliding_attention", "full_attention", "sliding_attention", "full_attention"}
	for _, c := range []struct {
		name  string
		edits fields
		want  []int
	}{
		{"qwen2", fields{"sliding_window": 9, "max_window_layers": 0}, []int{0, 0}},
		{"qwen2", window(fields{"max_window_layers": 1}), []int{0, 9}},
		{"qwen2", window(fields{"max_window_layers": 0, "layer_types": types[:2]}), []int{9, 0}},
		{"qwen3", window(fields{"max_window_layers": 1}), []int{0, 9}},
		{"qwen3-moe", fields{"sliding_window": 9}, []int{0, 0}},
		{"qwen3-moe", window(fields{"max_window_layers": 1}), []int{9, 9}},
		{"qwen2-moe", fields{"sliding_window": 9}, []int{0, 0}},
		{"qwen2-moe", window(fields{"max_window_layers": 1}), []int{9, 9}},
		{"qwen2-moe", window(fields{"layer_types": types[:2]}), []int{9, 0}},
		{"smollm3", window(fields{"no_rope_layers": []int{1, 0, 1}}), []int{0, 9, 0}},
		{"smollm3", window(fields{"layer_types": types[:3]}), []int{9, 0, 9}},
		{"mixtral", fields{"sliding_window": 9}, []int{9, 9}},
		{"mistral", fields{"sliding_window": nil}, []int{0, 0}},
		{"gemma2", fields{"sliding_window": 9}, []int{9, 0, 9}},
		{"gemma3-text", fields{"sliding_window": 9, "sliding_window_pattern": 2}, []int{9, 0, 9}},
	} {
		dir := copyDir(t, filepath.Join(root, c.name))
		editConfig(t, dir, func(config fields) {
			delete(config, "layer_types")
			for key, v := range c.edits {
				config[key] = v
			}
		})
		require.Equal(t, c.want, loadModel(t, dir, Options{MaxBatch: 1}).config.Windows, "%s with %v", c.name, c.edits)
	}
}

// TestFieldsThatChangeNothing loads config.json with other names for the same, and with fields that the reference does not look at.
func TestFieldsThatChangeNothing(t *testing.T) {
	root := golden.Dir(t, "archs")
	for name, edits := range map[string]map[string]any{
		"llama3-rope": {"hidden_act": "swish", "pretraining_tp": 2},
		"gemma2":      {"hidden_activation": "gelu_new"},
		"gemma3-text": {"attn_logit_softcapping": 2},
		"gemma":       {"hidden_act": "gelu", "hidden_activation": nil},
		"qwen2":       {"rope_scaling": map[string]any{"rope_type": "default"}},
	} {
		dir := filepath.Join(root, name)
		edited := copyDir(t, dir)
		editConfig(t, edited, func(config map[string]any) { maps.Copy(config, edits) })
		ids := sequence(3, 20)
		want, got := loadModel(t, dir, Options{MaxBatch: 20}), loadModel(t, edited, Options{MaxBatch: 20})
		require.Equal(t, feed(t, want, newSeq(t, want, 20), ids), feed(t, got, newSeq(t, got, 20), ids), "%s with %v", name, edits)
	}
}

// TestActivationsOfGemma refuses another function under either name.
func TestActivationsOfGemma(t *testing.T) {
	for _, key := range []string{"hidden_act", "hidden_activation"} {
		dir := copyDir(t, filepath.Join(golden.Dir(t, "archs"), "gemma"))
		editConfig(t, dir, func(config map[string]any) { config[key] = "relu" })
		_, err := Load(dir, Options{})
		require.ErrorContains(t, err, `"relu": gemma computes "gelu_pytorch_tanh"`)
	}
}

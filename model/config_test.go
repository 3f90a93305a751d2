package model

import (
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

package model

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
)

// export writes the folder of a model as GGUF, in pieces of some rows.
func export(t *testing.T, dir string) (path string, err error) {
	t.Helper()
	c, err := safetensors.OpenDir(dir)
	require.NoError(t, err)
	defer c.Close()
	x, err := NewExport(c)
	if err != nil {
		return "", err
	}
	w := gguf.NewWriter()
	for _, m := range x.Meta {
		w.Set(m.Key, m.Value)
	}
	w.Set("tokenizer.ggml.tokens", make([]string, x.Config.Tokens))
	for _, e := range x.Tensors {
		rows := 1
		for _, d := range e.Dims[1:] {
			rows *= d
		}
		w.AddTensorFunc(e.Name, e.Type, e.Dims, func(out io.Writer) error {
			var buf []byte
			for from := 0; from < rows; from += 7 {
				if _, err := out.Write(e.Rows(&buf, from, min(7, rows-from))); err != nil {
					return err
				}
			}
			e.Release()
			return nil
		})
	}
	path = filepath.Join(t.TempDir(), "exported.gguf")
	require.NoError(t, w.WriteFile(path))
	return path, nil
}

// TestExport compares the logits of every decoder of the golden set with those of its translation.
func TestExport(t *testing.T) {
	root := golden.Dir(t, "archs")
	for _, name := range archNames(t, root, "causal") {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, name)
			path, err := export(t, dir)
			require.NoError(t, err)
			want := loadModel(t, dir, Options{F32: true, MaxBatch: 64})
			got := loadModel(t, path, Options{F32: true, MaxBatch: 64})
			ids := make([]int32, 40)
			for i := range ids {
				ids[i] = int32(i * 41 % want.Config().Vocab)
			}
			a, b := feed(t, want, newSeq(t, want, 40), ids), feed(t, got, newSeq(t, got, 40), ids)
			for i := range a {
				require.InDelta(t, 0, maxDiff(a[i], b[i]), 2e-5, "position %d", i)
			}
			require.Equal(t, want.WeightBytes(), got.WeightBytes())
			require.Equal(t, want.Config().EOS, got.Config().EOS)
		})
	}
}

func TestExportRefuses(t *testing.T) {
	root := golden.Dir(t, "archs")
	edited := func(name string, edit func(c map[string]any)) string {
		dir := copyDir(t, filepath.Join(root, name))
		editConfig(t, dir, edit)
		return dir
	}
	for want, dir := range map[string]string{
		`with an output matrix true and scaled logits true`:   edited("t5-v1_1-gated-gelu", func(c map[string]any) { c["scale_decoder_outputs"] = true }),
		`with an output matrix false and scaled logits false`: edited("t5-relu-tied", func(c map[string]any) { c["scale_decoder_outputs"] = false }),
		`tensor "decoder.block.1.`:                            edited("t5-relu-tied", func(c map[string]any) { c["num_decoder_layers"] = 1 }),
		`has no such tensor in GGUF`:                          edited("mixtral", func(c map[string]any) { c["num_local_experts"] = 3 }),
		`Windows [0 32]: GGUF cannot say so`: edited("qwen2", func(c map[string]any) {
			c["use_sliding_window"], c["sliding_window"], c["max_window_layers"] = true, 32, 1
			delete(c, "layer_types")
		}),
	} {
		_, err := export(t, dir)
		require.ErrorContains(t, err, want)
		require.True(t, strings.Contains(err.Error(), dir), "%v names no file", err)
	}
}

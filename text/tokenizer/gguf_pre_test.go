package tokenizer

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

// TestGGUFUnknownPreTokenizer wants an error for a name that no rule has, rather than another rule's splits.
func TestGGUFUnknownPreTokenizer(t *testing.T) {
	for name, right := range map[string]bool{"qwen2": true, "llama-bpe": true, "qwen3-next": false, "": false, "Qwen2": false} {
		var w *gguf.Writer
		smallSPM(t, func(writer *gguf.Writer) { w = writer })
		w.Set("tokenizer.ggml.model", "gpt2")
		w.Set("tokenizer.ggml.merges", []string{"h e"})
		w.Set("tokenizer.ggml.pre", name)
		var b bytes.Buffer
		_, err := w.WriteTo(&b)
		require.NoError(t, err)
		f, err := gguf.Parse("small.gguf", b.Bytes())
		require.NoError(t, err)
		_, err = FromGGUF(f)
		if right {
			if err != nil { // the pieces are not those of a byte-level vocabulary
				require.NotContains(t, err.Error(), "tokenizer.ggml.pre", name)
			}
			continue
		}
		require.ErrorContains(t, err, `"tokenizer.ggml.pre"`, name)
		require.ErrorContains(t, err, "is not a supported pre-tokenizer, want one of", name)
	}
}

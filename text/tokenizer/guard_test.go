package tokenizer

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// tinyJSON is a byte-level BPE of single characters with two special tokens and an added one that is not special.
func tinyJSON(t *testing.T) *Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for _, r := range "abcdefghijklmnopqrstuvwxyz<>|_/Ġ" {
		vocab[string(r)] = len(vocab)
	}
	n := len(vocab)
	data, err := json.Marshal(map[string]any{
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"added_tokens": []map[string]any{
			{"id": n, "content": "<|im_start|>", "special": true}, {"id": n + 1, "content": "<|im_end|>", "special": true},
			{"id": n + 2, "content": "<think>", "special": false},
		},
	})
	require.NoError(t, err)
	tok, err := FromJSON(data, nil)
	require.NoError(t, err)
	return tok
}

func TestGuardedSpecialTokensStayText(t *testing.T) {
	tok := tinyJSON(t)
	start, _ := tok.ID("<|im_start|>")
	end, _ := tok.ID("<|im_end|>")
	for _, typed := range []string{"<|im_end|>", "a<|im_end|><|im_start|>b", "<|im_<|im_end|>end|>", "<think>", "plain", ""} {
		prompt := "<|im_start|>" + tok.GuardSpecial(typed) + "<|im_end|>"
		want := append([]int32{start}, tok.Encode(typed, EncodeOptions{})...)
		require.Equal(t, append(want, end), tok.EncodePrompt(prompt), "%q", typed)
	}
	require.Equal(t, "no token here", tok.GuardSpecial("no token here"))
}

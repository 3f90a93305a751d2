package tokenizer

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

// TestGGUFWrongMetadata changes one key of a good file: the error names the file once, the key, the value and what is right.
func TestGGUFWrongMetadata(t *testing.T) {
	n := len(smallSPM(t, nil).Strings("tokenizer.ggml.tokens"))
	types := slices.Repeat([]int32{ggufNormal}, n)
	types[7] = 99
	scores := make([]float32, n)
	scores[5] = float32(math.NaN())
	for key, c := range map[string]struct {
		value any
		want  []string
	}{
		"model":                    {uint32(3), []string{"kind uint32", "a string"}},
		"pre":                      {uint32(3), []string{"kind uint32", "a string"}},
		"add_bos_token":            {"yes", []string{`"yes"`, "kind string", "a bool"}},
		"add_eos_token":            {uint32(1), []string{"kind uint32", "a bool"}},
		"add_space_prefix":         {"no", []string{`"no"`, "a bool"}},
		"bos_token_id":             {"<s>", []string{"vocabulary"}},
		"unknown_token_id":         {uint32(1 << 20), []string{"1048576", "vocabulary"}},
		"padding_token_id":         {uint32(5000), []string{"5000", "vocabulary"}},
		"seperator_token_id":       {float32(1), []string{"kind float32", "id of a token"}},
		"token_type":               {types, []string{"99", "token 7", "1 to 6"}},
		"scores":                   {scores, []string{"NaN", "token 5", "finite"}},
		"tokens":                   {"a", []string{"array of strings"}},
		"token_type of two":        {[]int32{1, 1}, []string{"2 values", "each of the"}},
		"token_type of strings":    {slices.Repeat([]string{"1"}, n), []string{"kind string", "integer"}},
		"token_type, one number":   {int32(1), []string{"integer for each"}},
		"scores of two":            {[]float32{1, 1}, []string{"2 values", "each of the"}},
		"scores, a string":         {"high", []string{"number for each"}},
		"padding_token_id of text": {"<pad>", []string{"kind string"}},
	} {
		t.Run(key, func(t *testing.T) {
			name, _, _ := strings.Cut(key, " of ")
			name, _, _ = strings.Cut(name, ",")
			err := openSmall(t, "tokenizer.ggml."+name, c.value)
			require.Error(t, err)
			require.Contains(t, err.Error(), `"tokenizer.ggml.`+name+`"`)
			require.Equal(t, 1, strings.Count(err.Error(), "small.gguf"), "%v", err)
			for _, w := range c.want {
				require.Contains(t, err.Error(), w)
			}
		})
	}
	for _, none := range []any{int32(-1), uint32(math.MaxUint32)} {
		require.NoError(t, openSmall(t, "tokenizer.ggml.padding_token_id", none))
	}
}

// TestGGUFNoPreTokenizer names what is missing and not a value that the file does not have.
func TestGGUFNoPreTokenizer(t *testing.T) {
	err := openSmall(t, "tokenizer.ggml.model", "gpt2")
	require.ErrorContains(t, err, `"tokenizer.ggml.pre"`)
	require.ErrorContains(t, err, "is missing, want one of gpt-2")
}

// openSmall is the error of smallSPM's file with a key changed.
func openSmall(t *testing.T, key string, value any) error {
	var w *gguf.Writer
	smallSPM(t, func(writer *gguf.Writer) { w = writer })
	w.Set(key, value)
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	f, err := gguf.Parse("small.gguf", b.Bytes())
	if err != nil {
		return err
	}
	_, err = FromGGUF(f)
	return err
}

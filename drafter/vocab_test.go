package drafter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// vocabulary of n tokens "t0", "t1", ... with some replaced.
func vocabulary(file string, n int, eos []int32, replaced map[int32]string) Vocabulary {
	return Vocabulary{File: file, Size: n, EOS: eos, Piece: func(id int32) string {
		if p, ok := replaced[id]; ok {
			return p
		}
		return fmt.Sprint("t", id)
	}}
}

func TestCompatible(t *testing.T) {
	target := vocabulary("big.gguf", 100, []int32{2, 7}, nil)
	pads := map[int32]string{}
	for id := int32(100); id < 110; id++ {
		pads[id] = fmt.Sprintf("[PAD%d]", id)
	}
	pads[104], pads[105], pads[106] = "<unused3>", "<|reserved_special_token_4|>", ""
	for name, c := range map[string]struct {
		draft Vocabulary
		want  []string
	}{
		"equal":              {vocabulary("small.gguf", 100, []int32{7, 2}, nil), nil},
		"padded":             {vocabulary("small.gguf", 110, []int32{2, 7}, pads), nil},
		"one token differs":  {vocabulary("small.gguf", 100, []int32{2, 7}, map[int32]string{31: "other"}), []string{"small.gguf (100 tokens)", "big.gguf (100 tokens)", `token 31 is "t31" in the target and "other" in the draft`}},
		"more real tokens":   {vocabulary("small.gguf", 101, []int32{2, 7}, nil), []string{"(101 tokens)", `token 100 is "" in the target and "t100" in the draft`}},
		"fewer tokens":       {vocabulary("small.gguf", 99, []int32{2, 7}, nil), []string{`token 99 is "t99" in the target and "" in the draft`}},
		"another end":        {vocabulary("small.gguf", 100, []int32{3}, nil), []string{`the end of a text is 2 "t2", 7 "t7" in the target and 3 "t3" in the draft`}},
		"no end":             {vocabulary("small.gguf", 100, nil, nil), []string{"not named in the draft"}},
		"padding for a word": {vocabulary("small.gguf", 100, []int32{2, 7}, map[int32]string{31: "[PAD31]"}), []string{"token 31"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, swap := range []bool{false, true} {
				a, b := target, c.draft
				if swap {
					a, b = b, a
				}
				err := Compatible(a, b)
				if c.want == nil {
					require.NoError(t, err)
					continue
				}
				require.Error(t, err)
				for _, part := range c.want {
					if !swap {
						require.ErrorContains(t, err, part)
					}
				}
			}
		})
	}
}

package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// pieces is a vocabulary of texts, encoded by the longest piece that fits.
func pieces(file string, texts ...string) Text {
	return Text{
		File: file, Size: len(texts),
		Bytes: func(id int32) []byte { return []byte(texts[id]) },
		Encode: func(s string) (ids []int32) {
			for len(s) > 0 {
				at, n := -1, 0
				for i, text := range texts {
					if len(text) > n && len(text) <= len(s) && s[:len(text)] == text {
						at, n = i, len(text)
					}
				}
				if at < 0 {
					s = s[1:]
					continue
				}
				ids, s = append(ids, int32(at)), s[n:]
			}
			return ids
		},
	}
}

func TestTranslation(t *testing.T) {
	target := pieces("target", "a", "b", "ab", "c", "", "dd")
	draft := pieces("draft", "c", "b", "a", "bc", "d", "")
	tr, err := NewTranslation(target, draft)
	require.NoError(t, err)
	require.Equal(t, 3, tr.Shared())
	require.Equal(t, []int32{9, 2, 1, 0}, tr.toDraft([]int32{9}, []int32{0, 1, 3}), "shared tokens one by one")
	require.Equal(t, []int32{2, 1, 0, 4, 4}, tr.toDraft(nil, []int32{2, 3, 5}), "others as text")
	require.Equal(t, []int32{2, 3, 2, 3, 2, 3, 2, 3}, tr.toDraft(nil, []int32{0, 1, 3, 0, 1, 3, 0, 1, 3, 0, 1, 3}), "a prompt as text")
	tr.from.Special = func(id int32) bool { return id == 1 }
	require.Equal(t, []int32{2, 1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0}, tr.toDraft(nil, []int32{0, 1, 3, 0, 1, 3, 0, 1, 3, 0, 1, 3}), "special tokens stay what they are")
	row := make([]float32, 6)
	tr.scatter(row, []float32{1, 2, 3, 4, 5, 6})
	require.Equal(t, []float32{3, 2}, row[:2])
	require.EqualValues(t, 1, row[3])
	for _, id := range []int{2, 4, 5} {
		require.True(t, row[id] < -1e38)
	}
	_, err = NewTranslation(target, pieces("draft", "x", "y", ""))
	require.EqualError(t, err, "draft draft (3 tokens) and target target (6 tokens) have no token in common")
}

package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/quant"
)

// TestShortlistGivesTheSameBits compares the rows of logits of a shortlist with what a whole pass gives its tokens, while
// tokens are added until the first additions make way.
func TestShortlistGivesTheSameBits(t *testing.T) {
	for name := range tinyArchs {
		m := loadModel(t, tinyOf(name).write(t), Options{MaxBatch: 64})
		ids := tokensOf(5, 9)
		whole := feed(t, m, newSeq(t, m, len(ids)), ids)
		s, err := m.NewShortlist(30, 33)
		require.NoError(t, err)
		require.Len(t, s.IDs(), 32)
		for _, add := range [][]int32{nil, {3, 100}, {320, 322, -1, 999}, {200, 300}, {310}, {100, 3}} {
			s.Add(add)
			listed := s.IDs()
			require.LessOrEqual(t, len(listed), 32+48)
			for _, id := range add {
				if id >= 0 && id < 320 {
					require.Contains(t, listed, id)
				}
			}
			require.Equal(t, sequence(0, 32), listed[:32])
			require.EqualValues(t, len(s.whole.Tiles)/quant.Tiles(tinyVocab)*len(listed)/quant.TileRows, s.Bytes())
			b := Batch{Tokens: ids, Spans: []Span{{Seq: newSeq(t, m, len(ids)), N: len(ids)}}, Logits: sequence(0, len(ids)), Shortlist: s}
			logits, err := m.Forward(&b)
			require.NoError(t, err)
			for row := range ids {
				require.Len(t, logits.Row(row), len(listed))
				for i, id := range listed {
					require.Equal(t, whole[row][id], logits.Row(row)[i], "%s: row %d, token %d", name, row, id)
				}
			}
		}
		s.Free()
	}
}

func sequence(from, n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(from + i)
	}
	return s
}

func TestShortlistsThatDoNotFitAreRefused(t *testing.T) {
	m := loadModel(t, tinyGGUF("llama").write(t), Options{MaxBatch: 8})
	for _, c := range [][2]int{{0, 5}, {-1, 5}, {tinyVocab + 1, 0}, {5, -1}, {5, tinyVocab + 1}} {
		_, err := m.NewShortlist(c[0], c[1])
		require.ErrorContains(t, err, "want 1 to 323 and 0 to 323")
	}
	s, err := m.NewShortlist(tinyVocab, tinyVocab)
	require.NoError(t, err)
	defer s.Free()
	require.Len(t, s.IDs(), 320, "the last tile is not whole")
	s.Add([]int32{322})
	require.Len(t, s.IDs(), 320)
}

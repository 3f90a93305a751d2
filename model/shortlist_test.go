package model

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/quant"
)

// TestShortlistGivesTheSameBits compares the rows of logits of a shortlist with what a whole pass gives its tokens, while two
// listings add tokens until their first additions make way, and end.
func TestShortlistGivesTheSameBits(t *testing.T) {
	for name := range tinyArchs {
		m := loadModel(t, tinyOf(name).write(t), Options{MaxBatch: 64})
		ids := tokensOf(5, 9)
		whole := feed(t, m, newSeq(t, m, len(ids)), ids)
		s, err := m.NewShortlist(30, 51, 5, 999)
		require.NoError(t, err)
		stay := append(sequence(0, 32), sequence(48, 16)...)
		require.Equal(t, stay, s.IDs())
		a, b := s.NewListing(33), s.NewListing(16)
		check := func() {
			listed := s.IDs()
			require.Equal(t, stay, listed[:48])
			require.EqualValues(t, len(s.whole.Tiles)/quant.Tiles(tinyVocab)*len(listed)/quant.TileRows, s.Bytes())
			batch := Batch{Tokens: ids, Spans: []Span{{Seq: newSeq(t, m, len(ids)), N: len(ids)}}, Logits: sequence(0, len(ids)), Shortlist: s}
			logits, err := m.Forward(&batch)
			require.NoError(t, err)
			for row := range ids {
				require.Len(t, logits.Row(row), len(listed))
				for i, id := range listed {
					require.Equal(t, whole[row][id], logits.Row(row)[i], "%s: row %d, token %d", name, row, id)
				}
			}
			b.Restrict(logits.Row(0), 7e9)
			for i, id := range listed {
				require.Equal(t, !b.Has(id), logits.Row(0)[i] == 7e9, "%s: token %d", name, id)
			}
		}
		for i, add := range [][]int32{nil, {3, 100}, {320, 322, -1, 999}, {200, 300}, {310}, {100, 3}} {
			a.Add(add)
			if i%2 == 1 {
				b.Add(add)
			}
			for _, id := range add {
				require.Equal(t, id >= 0 && id < 320, a.Has(id), "%s: %d of %v", name, id, add)
			}
			require.LessOrEqual(t, len(s.IDs()), 48+48+16)
			check()
		}
		require.True(t, a.Has(200) == false && a.Has(300) && a.Has(310) && a.Has(100), "the oldest makes way, in turns")
		require.True(t, b.Has(100) && !b.Has(300), "of its own")
		a.Close()
		require.Len(t, s.IDs(), 48+16)
		check()
		b.Close()
		check()
		require.Equal(t, stay, s.IDs())
		s.Free()
	}
}

// TestAListingIsTheSameInCompany adds the same tokens to a listing alone and between those of others that come and go.
func TestAListingIsTheSameInCompany(t *testing.T) {
	m := loadModel(t, tinyGGUF("llama").write(t), Options{MaxBatch: 8})
	rapid.Check(t, func(t *rapid.T) {
		s, err := m.NewShortlist(16)
		require.NoError(t, err)
		defer s.Free()
		lone, err := m.NewShortlist(16)
		require.NoError(t, err)
		defer lone.Free()
		own, alone := s.NewListing(48), lone.NewListing(48)
		others := []*Listing{s.NewListing(0), s.NewListing(300), s.NewListing(32)}
		token := rapid.Int32Range(-1, tinyVocab)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if k := rapid.IntRange(0, 3).Draw(t, "who"); k < 3 {
				if others[k].Add(rapid.SliceOfN(token, 0, 8).Draw(t, "theirs")); rapid.Bool().Draw(t, "ends") {
					others[k].Close()
				}
				continue
			}
			ids := rapid.SliceOfN(token, 0, 8).Draw(t, "own")
			own.Add(ids)
			for _, id := range ids {
				alone.Add([]int32{id})
			}
			for id := range int32(tinyVocab) {
				require.Equal(t, alone.Has(id), own.Has(id), "token %d", id)
			}
			used := map[int32]bool{}
			for i, id := range s.IDs() {
				require.False(t, used[id], "token %d is there twice", id)
				used[id] = true
				require.EqualValues(t, i/16, s.placeOf[id/16])
			}
			for id := range int32(tinyVocab) {
				require.Equal(t, own.Has(id) || others[0].Has(id) || others[1].Has(id) || others[2].Has(id), used[id], "token %d", id)
			}
		}
	})
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
	for _, first := range []int{0, -1, tinyVocab + 1} {
		_, err := m.NewShortlist(first)
		require.ErrorContains(t, err, "want 1 to 323")
	}
	s, err := m.NewShortlist(tinyVocab)
	require.NoError(t, err)
	defer s.Free()
	require.Len(t, s.IDs(), 320, "the last tile is not whole")
	l := s.NewListing(100)
	l.Add([]int32{322, 5})
	require.Len(t, s.IDs(), 320)
}

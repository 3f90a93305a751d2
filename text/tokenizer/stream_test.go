package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// checkStream feeds ids one by one and demands valid UTF-8 at each step and the text of Decode as a whole.
func checkStream(t testing.TB, tok *Tokenizer, ids []int32) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		s := tok.NewStream(skip)
		var b strings.Builder
		for _, id := range ids {
			part := s.Push(id)
			if !utf8.ValidString(part) {
				t.Errorf("Push(%d) of %v returned %q, which is not UTF-8", id, ids, part)
			}
			b.WriteString(part)
		}
		b.WriteString(s.Flush())
		if want := tok.Decode(ids, skip); b.String() != want {
			t.Errorf("stream of %v, skip %v: %q, Decode gives %q", ids, skip, b.String(), want)
		}
	}
}

// TestStreamOfAnyIDs streams ids in any order, which cut characters anywhere.
func TestStreamOfAnyIDs(t *testing.T) {
	spm, err := FromGGUF(smallSPM(t, nil))
	require.NoError(t, err)
	uni, err := FromJSON(smallUnigram(t), nil)
	require.NoError(t, err)
	for name, tok := range map[string]*Tokenizer{"bytes": small(t), "spm": spm, "unigram": uni} {
		t.Run(name, rapid.MakeCheck(func(r *rapid.T) {
			ids := rapid.SliceOf(rapid.Int32Range(-1, int32(tok.VocabSize()))).Draw(r, "ids")
			before := len(ids)
			for _, b := range []byte(rapid.String().Draw(r, "text")) {
				if id, ok := tok.ID(string(byteRunes[b])); ok {
					ids = append(ids, id)
				}
			}
			checkStream(t, tok, ids)
			if t.Failed() {
				r.Fatalf("ids %v, %d of them drawn", ids, before)
			}
		}))
	}
}

// TestStreamHoldsBack checks what each push returns: characters when they are complete, U+FFFD when they cannot be any more.
func TestStreamHoldsBack(t *testing.T) {
	tok := small(t)
	for _, c := range []struct {
		name  string
		bytes string
		want  []string // of each Push, then of Flush
	}{
		{"two bytes", "é", []string{"", "é", ""}},
		{"four bytes", "😀", []string{"", "", "", "😀", ""}},
		{"cut by a letter", "\xe4\xbda", []string{"", "", "\uFFFDa", ""}},
		{"cut by another", "\xe4\xe4\xbd\xa0", []string{"", "\uFFFD", "", "你", ""}},
		{"cut at the end", "a\xf0\x9f", []string{"a", "", "", "\uFFFD"}},
		{"never a start", "\xffa\x80", []string{"\uFFFD", "a", "\uFFFD", ""}},
		{"surrogate", "\xed\xa0\x80", []string{"", "\uFFFD\uFFFD", "\uFFFD", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tok.NewStream(true)
			var got []string
			for _, b := range []byte(c.bytes) {
				id, ok := tok.ID(string(byteRunes[b]))
				require.True(t, ok)
				got = append(got, s.Push(id))
			}
			require.Equal(t, c.want, append(got, s.Flush()))
		})
	}
}

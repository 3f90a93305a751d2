package text

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/text/tokenizer"
)

// pieces are tokens of several bytes beside one for each byte, some with half a character, and one that is special.
var pieces = []string{"ST", "OP", "STOP", "aS", "Pb", "ab", "ba", "aa", "\n\n", "né", "é\n", "\xa9b", "x\xe4\xbd", "\xa0STO", "你", "🙂"}

// special is the id of "<end>".
const special = 256 + 16

// stopTokenizer is a tokenizer of bytes and pieces.
func stopTokenizer(t testing.TB) *tokenizer.Tokenizer {
	var of [256]rune
	shifted := rune(256)
	for b := range rune(256) {
		of[b] = b
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			of[b] = shifted
			shifted++
		}
	}
	vocab := map[string]int{}
	for b := range 256 {
		vocab[string(of[b])] = b
	}
	for i, p := range pieces {
		var word strings.Builder
		for _, b := range []byte(p) {
			word.WriteRune(of[b])
		}
		if _, ok := vocab[word.String()]; !ok {
			vocab[word.String()] = 256 + i
		}
	}
	data, err := json.Marshal(map[string]any{
		"added_tokens":  []any{map[string]any{"id": special, "content": "<end>", "special": true}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false}, "decoder": map[string]any{"type": "ByteLevel"},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	require.NoError(t, err)
	tok, err := tokenizer.FromJSON(data, nil)
	require.NoError(t, err)
	return tok
}

// ids are tokens given as texts: each a piece, or bytes.
func ids(texts ...string) (list []int32) {
	for _, s := range texts {
		at := -1
		for i, p := range pieces {
			if p == s {
				at = i
			}
		}
		switch {
		case s == "<end>":
			list = append(list, special)
		case at >= 0 && len(s) > 1:
			list = append(list, int32(256+at))
		default:
			for _, b := range []byte(s) {
				list = append(list, int32(b))
			}
		}
	}
	return list
}

func TestStopStrings(t *testing.T) {
	tok := stopTokenizer(t)
	for _, c := range []struct {
		name  string
		stops []string
		ids   []int32
		want  []string // of each Push until the stop, then of Flush
	}{
		{"over a border", []string{"STOP"}, ids("a", "ST", "OP", "b"), []string{"a", "", "", ""}},
		{"inside a token", []string{"TO"}, ids("a", "STOP"), []string{"a", "S", ""}},
		{"at both ends of tokens", []string{"SSTO"}, ids("aS", "STOP"), []string{"a", "", ""}},
		{"text after it in the same token", []string{"STOP"}, ids("ST", "O", "Pb"), []string{"", "", "", ""}},
		{"only a start", []string{"STOP"}, ids("a", "ST", "O"), []string{"a", "", "", "STO"}},
		{"a start that is none", []string{"STOP"}, ids("ST", "b", "ST"), []string{"", "STb", "", "ST"}},
		{"a start within a start", []string{"aab"}, ids("a", "aa", "b"), []string{"", "a", "", ""}},
		{"one in another", []string{"ab", "b"}, ids("x", "a", "b"), []string{"x", "", "", ""}},
		{"the one that ends first", []string{"abab", "ba"}, ids("a", "b", "ab"), []string{"", "", "a", ""}},
		{"the one that ends first, in one token", []string{"STOP", "TO"}, ids("STOP"), []string{"S", ""}},
		{"none", nil, ids("STOP", "a"), []string{"STOP", "a", ""}},
		{"half a character", []string{"é"}, ids("a", "\xc3", "\xa9b"), []string{"a", "", "", ""}},
		{"a character that begins like it", []string{"é"}, ids("\xc3", "\xa8", "a"), []string{"", "è", "a", ""}},
		{"a cut character at the end", []string{"x\uFFFD"}, ids("a", "x\xe4\xbd"), []string{"a", "", ""}},
		{"two newlines", []string{"\n\n"}, ids("a", "\n", "é\n", "\n\n"), []string{"a", "", "\né", "", ""}},
		{"special tokens are no text", []string{"<end>", "ab"}, ids("a", "<end>", "b"), []string{"", "", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewStopStream(tok, c.stops)
			require.NoError(t, err)
			engines, err := NewStopStream(tok, c.stops)
			require.NoError(t, err)
			var got []string
			for _, id := range c.ids {
				got = append(got, s.Push(id))
				if engines.Accept(id) {
					break
				}
			}
			require.Equal(t, c.want, append(got, s.Flush()))
			require.Empty(t, s.Push('x')+s.Flush(), "nothing comes after the end")
		})
	}
}

// untilStop is the text before the stop string that ends first, the longest of those that end there, and the number of bytes at its
// end that could become one if there is none.
func untilStop(text string, stops []string) (before string, held int, stopped bool) {
	for end := 1; end <= len(text); end++ {
		from := end
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				from = min(from, end-len(s))
			}
		}
		if from < end {
			return text[:from], 0, true
		}
	}
	for _, s := range stops {
		for n := 1; n < len(s); n++ {
			if strings.HasSuffix(text, s[:n]) {
				held = max(held, n)
			}
		}
	}
	return text, held, false
}

// TestStopStringsByDefinition takes random tokens and overlapping stop strings. After each token, what was shown is all that cannot be
// part of a stop string.
func TestStopStringsByDefinition(t *testing.T) {
	tok := stopTokenizer(t)
	stopped := 0
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("abSTOPé\n你")), 1, 5, -1)
		stops := rapid.SliceOfN(letters, 0, 4).Draw(t, "stops")
		s, err := NewStopStream(tok, stops)
		require.NoError(t, err)
		engines, err := NewStopStream(tok, stops)
		require.NoError(t, err)
		plain := tok.NewStream(true)
		var all, shown strings.Builder
		known := slices.Concat([]string{"a", "b", "S", "\n", "<end>", "\xc3", "\xa9", "\xff"}, pieces, stops)
		for _, word := range rapid.SliceOfN(rapid.SampledFrom(known), 0, 30).Draw(t, "words") {
			for _, id := range ids(word) {
				all.WriteString(plain.Push(id))
				part := s.Push(id)
				require.True(t, utf8.ValidString(part))
				shown.WriteString(part)
				want, held, over := untilStop(all.String(), stops)
				require.Equal(t, want[:len(want)-held], shown.String())
				require.Equal(t, over, engines.Accept(id))
				if over {
					stopped++
					require.Empty(t, s.Push(id)+s.Flush())
					return
				}
			}
		}
		all.WriteString(plain.Flush())
		shown.WriteString(s.Flush())
		want, _, _ := untilStop(all.String(), stops)
		require.Equal(t, want, shown.String())
	})
	require.True(t, stopped > 0 || testing.Short(), "no answer was stopped")
}

func TestStopStringsThatCannotBe(t *testing.T) {
	tok := stopTokenizer(t)
	for want, stops := range map[string][]string{
		"stop string 2 of 3 is empty: want a text": {"a", "", "b"}, `stop string 1 of 1 is "\xff": want UTF-8`: {"\xff"},
	} {
		_, err := NewStopStream(tok, stops)
		require.ErrorContains(t, err, want)
	}
}

// TestLongStopStrings feeds what makes naive searches slow: a text that is always nearly the stop string.
func TestLongStopStrings(t *testing.T) {
	tok := stopTokenizer(t)
	most := strings.Repeat("a", 1<<13)
	s, err := NewStopStream(tok, []string{most + "b", most + "c"})
	require.NoError(t, err)
	n := 0
	for range 1 << 14 {
		n += len(s.Push('a'))
	}
	require.Equal(t, 1<<13, n)
}

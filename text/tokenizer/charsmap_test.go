package tokenizer

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
)

// compiled is the table of some replacements: each prefix of what is replaced has 256 units of its own, which its bytes lead to.
func compiled(replace map[string]string) []byte {
	bases := map[string]uint32{"": 256}
	for from := range replace {
		for n := 1; n <= len(from); n++ {
			if bases[from[:n]] == 0 {
				bases[from[:n]] = uint32(256 * (len(bases) + 1))
			}
		}
	}
	units := make([]uint32, 256*(len(bases)+1))
	units[0] = 256 << 10
	var texts []byte
	for prefix, base := range bases {
		if prefix == "" {
			continue
		}
		last := prefix[len(prefix)-1]
		at := bases[prefix[:len(prefix)-1]] ^ uint32(last)
		units[at] = (at^base)<<10 | uint32(last)
		if text, ok := replace[prefix]; ok {
			units[at] |= 1 << 8
			units[base] = uint32(len(texts)) | 1<<31
			texts = append(append(texts, text...), 0)
		}
	}
	data := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		data = binary.LittleEndian.AppendUint32(data, u)
	}
	return append(data, texts...)
}

// slowly is what a table has for s as a whole, by the format's description. end says that no longer text has anything.
func slowly(c *charsmap, s string) (text string, found, end bool) {
	at := unitOffset(c.units[0])
	for i := range len(s) {
		at ^= uint32(s[i])
		if s[i] == 0 || int(at) >= len(c.units) || c.units[at]&(1<<31|0xFF) != uint32(s[i]) {
			return "", false, true
		}
		leaf := c.units[at]&(1<<8) != 0
		if at ^= unitOffset(c.units[at]); !leaf {
			found = false
			continue
		}
		if int(at) >= len(c.units) {
			return "", false, true
		}
		from := int(c.units[at] & (1<<31 - 1))
		if from > len(c.text) {
			return "", false, true
		}
		text, _, found = strings.Cut(c.text[from:], "\x00")
		if !found || len(text) >= maxReplacement {
			return "", false, true
		}
	}
	return text, found, false
}

// prefixes are the lengths of the prefixes of s that a table has, shortest first, and what for.
func prefixes(c *charsmap, s string) (lengths []int, texts []string) {
	for n := 1; n <= len(s); n++ {
		text, found, end := slowly(c, s[:n])
		if end {
			break
		}
		if found {
			lengths, texts = append(lengths, n), append(texts, text)
		}
	}
	return lengths, texts
}

// slowNormalize is charsmap.normalize without its way around plain text.
func slowNormalize(c *charsmap, s string) (out string) {
	for s != "" {
		var g string
		g, s, _, _ = uniseg.FirstGraphemeClusterInString(s, -1)
		if _, texts := prefixes(c, g); len(g) < 6 && texts != nil {
			out += texts[0]
			continue
		}
		for g != "" {
			_, n := utf8.DecodeRuneInString(g)
			piece := g[:n]
			if _, texts := prefixes(c, piece); texts != nil {
				piece = texts[0]
			}
			out, g = out+piece, g[n:]
		}
	}
	return out
}

// slowPieces are what sentencePiece makes of the parts of a text before it looks at spaces.
func slowPieces(c *charsmap, s string) (pieces []string) {
	for s != "" {
		_, n := utf8.DecodeRuneInString(s)
		piece := s[:n]
		if lengths, texts := prefixes(c, s); lengths != nil {
			n, piece = slices.Max(lengths), texts[len(texts)-1]
		}
		pieces, s = append(pieces, piece), s[n:]
	}
	return pieces
}

var severalSpaces = regexp.MustCompile(" +")

// checkCharsmap compares what a table makes of a text with what the slow ways make of it.
func checkCharsmap(t *testing.T, c *charsmap, text string) (out string) {
	t.Helper()
	out = c.normalize(text)
	require.Equal(t, slowNormalize(c, text), out, "%q", text)
	pieces := slowPieces(c, text)
	plain := strings.Join(pieces, "")
	require.Equal(t, strings.ReplaceAll(plain, " ", spaceMark), (&sentencePiece{chars: c}).normalize(text), "%q", text)
	squeezed := (&sentencePiece{chars: c, squeeze: true, prefix: true}).normalize(text)
	if slices.ContainsFunc(pieces, func(p string) bool { return strings.Contains(p, "  ") }) { // spaces inside a replacement stay
		require.False(t, strings.HasPrefix(strings.TrimPrefix(squeezed, spaceMark), spaceMark) || strings.HasSuffix(squeezed, spaceMark), "%q", squeezed)
		return out
	}
	want := strings.Trim(severalSpaces.ReplaceAllString(plain, " "), " ")
	if want != "" {
		want = " " + want
	}
	require.Equal(t, strings.ReplaceAll(want, " ", spaceMark), squeezed, "%q", text)
	return out
}

// someReplacements are a prefix of another, of graphemes, of plain ASCII, of nothing, and with spaces in them.
var someReplacements = map[string]string{
	"ﬁ": "fi", "é": "é", "e\u0301": "é", "x": "yy", "xa": "z", "\t": " ", "\u3000": " ", "½": " 1/2 ", "\u200b": "", "あ": "  a",
}

func TestCharsmap(t *testing.T) {
	c, err := newCharsmap(compiled(someReplacements))
	require.NoError(t, err)
	for from, to := range someReplacements {
		lengths, texts := prefixes(c, from)
		require.Equal(t, len(from), slices.Max(lengths), "%q", from)
		require.Equal(t, to, texts[len(texts)-1])
	}
	require.Equal(t, "yya yyb é fi 1/2   aZ", checkCharsmap(t, c, "xa xb e\u0301 ﬁ½あZ"))
	require.Equal(t, "▁z▁yyb▁é▁fi▁1/2▁aZ", (&sentencePiece{chars: c, squeeze: true, prefix: true}).normalize("\t xa  xb e\u0301 ﬁ½あZ\u3000"))
}

// FuzzCharsmap reads any bytes as a table of replacements and applies it: the fast ways make what the slow ones make.
func FuzzCharsmap(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 0, 4, 0, 0, 'x', 0}, "a")
	f.Add(bytes.Repeat([]byte{1, 1, 0, 0}, 20), "é\u0301 ﬁ")
	for _, text := range []string{"", "xa\u0301 xx e\u0301\u0301 ﬁ½ あ", " \t a\u3000 \u200b ", "plain text, x", "plain text\u0301 é\u0301\u0301 b", "\xff\xe3\x81x\x00x"} {
		f.Add(compiled(someReplacements), text)
		f.Add(compiled(map[string]string{"é": "e", "ß": "ss", "t\u0301": "T"}), text)
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		if c, err := newCharsmap(data); err == nil {
			checkCharsmap(t, c, text[:min(len(text), 200)]) // the slow ways may take the cube of that
		}
	})
}

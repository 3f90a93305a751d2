package tokenizer

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// TestNormForms compares with x/text on text it does not insert joiners into, of characters both have the tables for.
func TestNormForms(t *testing.T) {
	runes := rapid.OneOf(
		rapid.Int32Range(0x20, 0x24F), rapid.Int32Range(0x300, 0x36F), rapid.Int32Range(0x1100, 0x1200), rapid.Int32Range(0xAC00, 0xAC40),
		rapid.Int32Range(0x900, 0xDFF), rapid.Int32Range(0x1E00, 0x1FFF), rapid.Int32Range(0xF900, 0xFB4F), rapid.Int32Range(0x1D160, 0x1D1C0),
	).Filter(func(r int32) bool { return !unicode.Is(newerNorm, r) })
	for name, form := range normForms {
		t.Run(name, rapid.MakeCheck(func(r *rapid.T) {
			text := string(rapid.SliceOfN(runes, 0, 12).Draw(r, "text"))
			if got, want := normForm(form)(text), form.String(text); got != want {
				r.Fatalf("%s of %+q: %+q, want %+q", name, text, got, want)
			}
		}))
	}
}

func TestNFC(t *testing.T) {
	nfc := normForm(norm.NFC)
	marks := strings.Repeat("\u0316", 70)
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"e\u0301", "é"},
		{"xe\u0301\u0327 e\u0301y", "xȩ\u0301 éy"},
		{"e" + marks + "\u0301", "é" + marks}, // no joiner after 30 marks
		{"\xff\u0301e\u0301\xfe", "\xff\u0301é\xfe"},
		{"\u1112\u1161\u11ab", "한"},
		{"\uac00\u11a8", "각"},
		{"\u212b", "Å"},
		{"\u1ae0\u0316", "\u1ae0\u0316"}, // U+1AE0 has no combining class in the reference's tables
	} {
		require.Equal(t, c.want, nfc(c.text), "%+q", c.text)
	}
}

func TestCharsmapRefusals(t *testing.T) {
	for _, data := range [][]byte{nil, {1}, {0, 0, 0, 0}, {3, 0, 0, 0, 1, 2, 3}, {8, 0, 0, 0, 1, 2, 3, 4}, {0xFC, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}} {
		_, err := newCharsmap(data)
		require.ErrorContains(t, err, "precompiled_charsmap", "% x", data)
	}
}

package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func words(p preTokenizer, text string) []string {
	var all []string
	p.run(text, true, func(w string) { all = append(all, w) })
	return all
}

func TestScanners(t *testing.T) {
	for _, c := range []struct {
		name string
		scan scanner
		text string
		want string // words, divided by |
	}{
		{"llama digits", scanLlama, "12345 1", "123|45| |1"},
		{"qwen digits", scanQwen, "123", "1|2|3"},
		{"gpt2 digits", scanGPT2, "a 1234", "a| 1234"},
		{"contractions", scanLlama, "I'LL don't x'ſy'", "I|'LL| don|'t| x|'ſ|y|'"},
		{"gpt2 case", scanGPT2, "I'LL we'll", "I|'|LL| we|'ll"},
		{"spaces", scanLlama, "a   b  ", "a|  | b|  "},
		{"newlines", scanLlama, "a \n\n  b!\n\nc", "a| \n\n| | b|!\n\n|c"},
		{"gpt2 newlines", scanGPT2, "a \n\n  b", "a| \n\n | b"},
		{"prefix", scanQwen, "(abc $x \u00a0y", "(abc| $|x| |\u00a0y"},
		{"tekken case", scanTekken, "helloWorld HTTPServer ABC", "hello|World| HTTPServer| ABC"},
		{"tekken slash", scanTekken, "a//\n b", "a|//\n| b"},
		{"tekken marks", scanTekken, "\u0301ABC a\u0301B", "\u0301|ABC| a\u0301|B"},
		{"tekken ideographs", scanTekken, "中文A字Bc", "中文A字Bc"},
		{"not UTF-8", scanLlama, "a\xff\xfeb", "a|\xff\xfe|b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, strings.Join(words(preTokenizer{byScanner(c.scan)}, c.text), "|"))
		})
	}
}

// TestScannersKeepEverything joins the words of any text and demands the text.
func TestScannersKeepEverything(t *testing.T) {
	for name, p := range map[string]preTokenizer{
		"llama": {byScanner(scanLlama)}, "qwen": {byScanner(scanQwen)}, "tekken": {byScanner(scanTekken)}, "gpt2": {byScanner(scanGPT2)},
		"smollm": {digits(true), byScanner(scanGPT2)}, "digits": {digits(false)}, "before": {literal("a", "MergedWithPrevious")},
		"after": {literal("a", "MergedWithNext")}, "alone": {literal("ab", "Isolated")},
	} {
		t.Run(name, rapid.MakeCheck(func(r *rapid.T) {
			text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ab1 '\nLÀ中́ ]*`)).Draw(r, "text")
			all := words(p, text)
			if strings.Join(all, "") != text {
				r.Fatalf("%q became %q", text, all)
			}
			for _, w := range all {
				if w == "" {
					r.Fatalf("%q has an empty word: %q", text, all)
				}
			}
		}))
	}
}

func TestSplitters(t *testing.T) {
	for _, c := range []struct {
		name  string
		split splitter
		text  string
		want  string
	}{
		{"always", metaspace("▁", "always", true), "a  b", "▁a|▁|▁b"},
		{"whole", metaspace("▁", "first", false), "a b", "▁a▁b"},
		{"no second mark", metaspace("▁", "always", true), " a", "▁a"},
		{"never", metaspace("▁", "never", true), "a b", "a|▁b"},
		{"spaces", spaces, " a \n b\u3000", "a|b"},
		{"removed", literal("-", "Removed"), "a--b-", "a|b"},
		{"isolated", literal("-", "Isolated"), "a--b", "a|-|-|b"},
		{"previous", literal("-", "MergedWithPrevious"), "a--b", "a-|-|b"},
		{"next", literal("-", "MergedWithNext"), "a--b", "a|-|-b"},
		{"prefix space", prefixSpace, "a", " a"},
		{"runs of digits", digits(false), "a12b", "a|12|b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, strings.Join(words(preTokenizer{c.split}, c.text), "|"))
		})
	}
}

func TestAddedTokens(t *testing.T) {
	m, err := newMatcher([]addedToken{
		{id: 1, text: "<a>"}, {id: 2, text: "<a>b", special: true}, {id: 3, text: "[L]", lstrip: true}, {id: 4, text: "[R]", rstrip: true}, {id: 5, text: "word", singleWord: true},
		{id: 6, text: ". "},
	})
	require.NoError(t, err)
	for _, c := range []struct {
		text    string
		special bool
		parts   []string
		ids     []int32
	}{
		{"", true, nil, nil},
		{"x<a>c", false, []string{"x", "", "c"}, []int32{-1, 1, -1}},
		{"<a>b", true, []string{""}, []int32{2}},
		{"<a>b", false, []string{"<a>b"}, []int32{-1}}, // the shorter token in it is not looked for
		{"x \u3000[L] y", true, []string{"x", "", " y"}, []int32{-1, 3, -1}},
		{"x[R] \n y", true, []string{"x", "", "y"}, []int32{-1, 4, -1}},
		{"[R]  [L]", true, []string{"", ""}, []int32{4, 3}},
		{"word, swords word", true, []string{"", ", swords ", ""}, []int32{5, -1, 5}},
		{"x. [L]y", true, []string{"x", "", "", "y"}, []int32{-1, 6, 3, -1}}, // two want the space: the first has it
	} {
		var parts []string
		var ids []int32
		at := 0
		m.split(c.text, c.special, func(part string, start int, id int32) {
			parts, ids = append(parts, part), append(ids, id)
			require.GreaterOrEqual(t, start, at, "%q: parts follow one another", c.text)
			if at = start + len(part); id < 0 {
				require.Equal(t, part, c.text[start:at])
				return
			}
			for _, a := range m.tokens {
				if a.id == id {
					at = start + len(a.text)
				}
			}
		})
		require.Equal(t, c.parts, parts, "%q", c.text)
		require.Equal(t, c.ids, ids, "%q", c.text)
	}
}

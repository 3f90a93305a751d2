package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// textFn makes a method of a function from a string to a string that is at most grow times as long, or costs as much.
func textFn(grow int, fn func(string) string) *builtin {
	return &builtin{fn: func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		if err := r.allocTimes(len(s), grow); err != nil {
			return self, err
		}
		return jinja.NewString(fn(s)), nil
	}}
}

// runeTest makes an isalpha-like method: true when there are characters and all pass.
func runeTest(ok func(rune) bool) *builtin {
	return &builtin{fn: func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		all := s != "" && strings.IndexFunc(s, func(c rune) bool { return !ok(c) }) < 0
		return jinja.NewBool(all), r.spend(len(s) / 32)
	}}
}

var strMethods map[string]*builtin

func init() {
	strMethods = map[string]*builtin{
		"strip":        stripMethod(true, true),
		"lstrip":       stripMethod(true, false),
		"rstrip":       stripMethod(false, true),
		"split":        {params: []string{"sep", "maxsplit"}, fn: strSplit},
		"rsplit":       {params: []string{"sep", "maxsplit"}, fn: strRsplit},
		"splitlines":   {params: []string{"keepends"}, fn: strSplitlines},
		"partition":    {min: 1, params: []string{"sep"}, fn: partition(strings.Index)},
		"rpartition":   {min: 1, params: []string{"sep"}, fn: rpartition},
		"join":         {min: 1, params: []string{"iterable"}, fn: strJoin},
		"replace":      {min: 2, params: []string{"old", "new", "count"}, fn: strReplace},
		"startswith":   {min: 1, params: []string{"prefix", "start", "end"}, fn: affix(strings.HasPrefix)},
		"endswith":     {min: 1, params: []string{"suffix", "start", "end"}, fn: affix(strings.HasSuffix)},
		"find":         {min: 1, params: []string{"sub", "start", "end"}, fn: finder(strings.Index, false)},
		"rfind":        {min: 1, params: []string{"sub", "start", "end"}, fn: finder(strings.LastIndex, false)},
		"index":        {min: 1, params: []string{"sub", "start", "end"}, fn: finder(strings.Index, true)},
		"rindex":       {min: 1, params: []string{"sub", "start", "end"}, fn: finder(strings.LastIndex, true)},
		"count":        {min: 1, params: []string{"sub", "start", "end"}, fn: strCount},
		"removeprefix": {min: 1, params: []string{"prefix"}, fn: remover(strings.TrimPrefix)},
		"removesuffix": {min: 1, params: []string{"suffix"}, fn: remover(strings.TrimSuffix)},
		"upper":        textFn(3, upperText),
		"lower":        textFn(3, lowerText),
		"casefold":     textFn(3, func(s string) string { return cases.Fold().String(s) }),
		"capitalize":   textFn(3, capitalize),
		"title":        textFn(64, title),
		"swapcase":     textFn(64, swapcase),
		"center":       {min: 1, params: []string{"width", "fillchar"}, fn: pad(func(n, width int) int { return n/2 + n&width&1 })},
		"ljust":        {min: 1, params: []string{"width", "fillchar"}, fn: pad(func(_, _ int) int { return 0 })},
		"rjust":        {min: 1, params: []string{"width", "fillchar"}, fn: pad(func(n, _ int) int { return n })},
		"zfill":        {min: 1, params: []string{"width"}, fn: strZfill},
		"format":       {raw: strFormat},
		"isalpha":      runeTest(unicode.IsLetter),
		"isdigit":      runeTest(unicode.IsDigit),
		"isdecimal":    runeTest(unicode.IsDigit),
		"isnumeric":    runeTest(unicode.IsNumber),
		"isalnum":      runeTest(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":      runeTest(isSpace),
		"isascii":      {fn: strIsASCII},
		"islower":      {fn: cased(unicode.IsLower, unicode.IsUpper)},
		"isupper":      {fn: cased(unicode.IsUpper, unicode.IsLower)},
	}
}

// upperText, lowerText and titleFirst follow Unicode's full case mapping, as Python does: one character may become several.
// ASCII goes a faster way.
func upperText(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lowerText(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// titleFirst is the title case of one character.
func titleFirst(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Title(language.Und, cases.NoLower).String(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return titleFirst(s[:n]) + lowerText(s[n:])
}

// title starts each run of cased characters with a capital, as str.title does.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for _, c := range s {
		switch {
		case inWord:
			b.WriteString(lowerText(string(c)))
		default:
			b.WriteString(titleFirst(string(c)))
		}
		inWord = unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
	}
	return b.String()
}

func swapcase(s string) string {
	var b strings.Builder
	for _, c := range s {
		if unicode.IsUpper(c) {
			b.WriteString(lowerText(string(c)))
		} else {
			b.WriteString(upperText(string(c)))
		}
	}
	return b.String()
}

func strIsASCII(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	s, _ := str(self)
	return jinja.NewBool(isASCII(s)), r.spend(len(s) / 32)
}

// cased is true when s has characters of the wanted case and none of the other.
func cased(want, other func(rune) bool) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		ok := strings.IndexFunc(s, want) >= 0 && strings.IndexFunc(s, func(c rune) bool { return other(c) || unicode.IsTitle(c) }) < 0
		return jinja.NewBool(ok), r.spend(len(s) / 32)
	}
}

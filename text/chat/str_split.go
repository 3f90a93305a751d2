package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// stripMethod trims white space or the given characters.
func stripMethod(left, right bool) *builtin {
	return &builtin{params: []string{"chars"}, fn: func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		out, err := r.strip(self, a[0], left, right)
		return jinja.NewString(out), err
	}}
}

func (r *run) strip(self, chars jinja.Value, left, right bool) (string, error) {
	s, _ := str(self)
	drop := isSpace
	if given(chars) {
		set, ok := str(chars)
		if !ok {
			return "", pyErr("strip arg must be None or str, not %s", r.kind(chars))
		}
		if err := r.allocTimes(min(len(s), 64)+1, len(set)/32+1); err != nil {
			return "", err
		}
		drop = func(c rune) bool { return strings.ContainsRune(set, c) }
		if len(set) > 64 {
			members := make(map[rune]bool, len(set))
			for _, c := range set {
				members[c] = true
			}
			drop = func(c rune) bool { return members[c] }
		}
	}
	if left {
		s = strings.TrimLeftFunc(s, drop)
	}
	if right {
		s = strings.TrimRightFunc(s, drop)
	}
	return s, r.spend(len(s) / 32)
}

// textArg returns the text of a string argument.
func (r *run) textArg(v jinja.Value, what string) (string, error) {
	if s, ok := str(v); ok {
		return s, nil
	}
	return "", pyErr("%s must be str, not %s", what, r.kind(v))
}

// intArg returns an optional integer argument.
func (r *run) intArg(v jinja.Value, what string, fallback int) (int, error) {
	if v.IsUndefined() {
		return fallback, nil
	}
	if i, ok := integer(v); ok {
		return int(i), nil
	}
	return 0, pyErr("%s must be an integer, not %s", what, r.kind(v))
}

// strings makes a list of strings that share the memory of one.
func (r *run) strings(parts []string) (jinja.Value, error) {
	if err := r.allocTimes(len(parts)+2, valueBytes+32); err != nil {
		return jinja.Value{}, err
	}
	items := make([]jinja.Value, len(parts))
	for i, p := range parts {
		items[i] = jinja.NewString(p)
	}
	return list(items), nil
}

func strSplit(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	return r.split(self, a, false)
}

func strRsplit(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	return r.split(self, a, true)
}

func (r *run) split(self jinja.Value, a []jinja.Value, fromRight bool) (jinja.Value, error) {
	s, _ := str(self)
	limit, err := r.intArg(a[1], "maxsplit", -1)
	if err != nil {
		return self, err
	}
	if err := r.spend(len(s) / 32); err != nil {
		return self, err
	}
	if !given(a[0]) {
		if err := r.allocTimes(countWords(s), 32); err != nil {
			return self, err
		}
		return r.strings(splitSpace(s, limit, fromRight))
	}
	sep, err := r.textArg(a[0], "separator")
	if err != nil {
		return self, err
	}
	if sep == "" {
		return self, pyErr("empty separator")
	}
	n := strings.Count(s, sep)
	if err := r.allocTimes(n, 16); err != nil {
		return self, err
	}
	if limit < 0 || limit >= n {
		return r.strings(strings.Split(s, sep))
	}
	if !fromRight {
		return r.strings(strings.SplitN(s, sep, limit+1))
	}
	parts := make([]string, limit+1)
	for i := limit; i > 0; i-- {
		at := strings.LastIndex(s, sep)
		parts[i] = s[at+len(sep):]
		s = s[:at]
	}
	parts[0] = s
	return r.strings(parts)
}

func countWords(s string) int {
	n, inWord := 0, false
	for _, c := range s {
		if space := isSpace(c); space == inWord {
			inWord = !space
			if inWord {
				n++
			}
		}
	}
	return n
}

// splitSpace cuts at runs of white space, at most limit times.
func splitSpace(s string, limit int, fromRight bool) []string {
	words := strings.FieldsFunc(s, isSpace)
	if limit < 0 || limit >= len(words) {
		return words
	}
	if fromRight {
		rest := strings.TrimRightFunc(s, isSpace)
		for range limit {
			rest = rest[:strings.LastIndexFunc(rest, isSpace)]
			rest = strings.TrimRightFunc(rest, isSpace)
		}
		return append([]string{rest}, words[len(words)-limit:]...)
	}
	rest := strings.TrimLeftFunc(s, isSpace)
	for range limit {
		rest = strings.TrimLeftFunc(rest[strings.IndexFunc(rest, isSpace):], isSpace)
	}
	return append(words[:limit:limit], rest)
}

// isLineEnd tells the characters at which Python's splitlines cuts.
func isLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

func countLines(s string) int {
	n := 1
	for _, c := range s {
		if isLineEnd(c) {
			n++
		}
	}
	return n
}

// lines cuts at line ends, which keep leaves on.
func lines(s string, keep bool) []string {
	var out []string
	for s != "" {
		at := strings.IndexFunc(s, isLineEnd)
		if at < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			n = 2
		}
		end := at
		if keep {
			end += n
		}
		out = append(out, s[:end])
		s = s[at+n:]
	}
	return out
}

func strSplitlines(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	s, _ := str(self)
	if err := r.allocTimes(countLines(s), 32); err != nil {
		return self, err
	}
	return r.strings(lines(s, truthy(a[0])))
}

func partition(find func(s, sep string) int) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		return r.cut(self, a[0], find, false)
	}
}

func rpartition(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	return r.cut(self, a[0], strings.LastIndex, true)
}

func (r *run) cut(self, by jinja.Value, find func(s, sep string) int, fromRight bool) (jinja.Value, error) {
	s, _ := str(self)
	sep, err := r.textArg(by, "separator")
	if err != nil {
		return self, err
	}
	if sep == "" {
		return self, pyErr("empty separator")
	}
	parts := []string{s, "", ""}
	if at := find(s, sep); at >= 0 {
		parts = []string{s[:at], sep, s[at+len(sep):]}
	} else if fromRight {
		parts = []string{"", "", s}
	}
	v, err := r.strings(parts)
	if err != nil {
		return v, err
	}
	r.mark(v.AsList(), tagTuple)
	return v, r.alloc(pairBytes + len(s)/32)
}

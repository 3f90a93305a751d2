package chat

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a token inside {{ }} or {% %}.
type tokenKind uint8

const (
	tokEnd    tokenKind = iota // the closing }} or %}
	tokName                    // identifier or keyword
	tokString                  // text, unescaped
	tokInt                     // decimal digits
	tokFloat                   // as strconv.ParseFloat reads it
	tokOp                      // operator or bracket
)

type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	if t.kind == tokEnd {
		return "end of the tag"
	}
	return strconv.Quote(t.text)
}

// tagKind is what follows a piece of text.
type tagKind uint8

const (
	tagEOF tagKind = iota
	tagVariable
	tagBlock
)

// lexer cuts a template as jinja2's lexer does with trim_blocks and lstrip_blocks. Between tags data returns text; inside a
// tag token returns tokens.
type lexer struct {
	src      string
	pos      int
	line     int
	block    bool   // inside {% %}, else {{ }}
	brackets []byte // closing brackets expected, so that }} inside a dict does not end the tag
}

func newLexer(src string) *lexer {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	return &lexer{src: strings.TrimSuffix(src, "\n"), line: 1}
}

func (l *lexer) fail(format string, args ...any) error {
	return &Error{Line: l.line, Msg: fmt.Sprintf(format, args...)}
}

// advance moves to pos, counting lines.
func (l *lexer) advance(pos int) {
	l.line += strings.Count(l.src[l.pos:pos], "\n")
	l.pos = pos
}

// data returns the text up to the next {{ or {%, comments left out and raw blocks taken in, and which of them it is.
func (l *lexer) data() (string, tagKind, error) {
	var text strings.Builder
	for {
		at := l.nextTag()
		if at < 0 {
			text.WriteString(l.src[l.pos:])
			l.advance(len(l.src))
			return text.String(), tagEOF, nil
		}
		kind := l.src[at+1]
		open := at + 2
		sign := byte(0)
		if open < len(l.src) && (l.src[open] == '-' || l.src[open] == '+') {
			sign = l.src[open]
			open++
		}
		text.WriteString(l.stripLeft(l.src[l.pos:at], sign, kind))
		l.advance(open)
		switch kind {
		case '{':
			l.block = false
			return text.String(), tagVariable, nil
		case '#':
			if err := l.comment(); err != nil {
				return "", tagEOF, err
			}
			continue
		}
		raw, isRaw, err := l.raw()
		if err != nil {
			return "", tagEOF, err
		}
		if !isRaw {
			l.block = true
			return text.String(), tagBlock, nil
		}
		text.WriteString(raw)
	}
}

// nextTag returns the offset of the next opening {{, {% or {#, or -1.
func (l *lexer) nextTag() int {
	for i := l.pos; ; i++ {
		j := strings.IndexByte(l.src[i:], '{')
		if j < 0 || i+j+1 >= len(l.src) {
			return -1
		}
		i += j
		if strings.IndexByte("{%#", l.src[i+1]) >= 0 {
			return i
		}
	}
}

// stripLeft removes the white space before a tag: all of it for {%- and {{-, and the indentation of a line that starts with
// the tag for others but {{ and {%+.
func (l *lexer) stripLeft(text string, sign, kind byte) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || kind == '{':
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	lineStart := l.pos == 0 || l.src[l.pos-1] == '\n'
	if (start > 0 || lineStart) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

// closeAt returns the offset after a closing tag that starts at i, or -1. The end may carry a + or -; trim_blocks takes one
// newline after a block or comment.
func (l *lexer) closeAt(i int, closer string) int {
	rest := l.src[i:]
	switch {
	case strings.HasPrefix(rest, "-"+closer):
		after := rest[1+len(closer):]
		return len(l.src) - len(strings.TrimLeftFunc(after, isSpace))
	case closer != "}}" && strings.HasPrefix(rest, "+"+closer):
		return i + 1 + len(closer)
	case strings.HasPrefix(rest, closer):
		i += len(closer)
		if closer != "}}" && i < len(l.src) && l.src[i] == '\n' {
			i++
		}
		return i
	}
	return -1
}

// comment skips to the end of a comment.
func (l *lexer) comment() error {
	for i := l.pos; i < len(l.src); i++ {
		if end := l.closeAt(i, "#}"); end >= 0 {
			l.advance(end)
			return nil
		}
	}
	return l.fail("comment is not closed")
}

// raw returns the text of a raw block when the {% before pos opens one.
func (l *lexer) raw() (string, bool, error) {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(l.src[l.pos:], isSpace), "raw")
	if !ok {
		return "", false, nil
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	switch {
	case strings.HasPrefix(rest, "-%}"):
		rest = strings.TrimLeftFunc(rest[3:], isSpace)
	case strings.HasPrefix(rest, "%}"):
		rest = rest[2:]
	default:
		return "", false, nil
	}
	l.advance(len(l.src) - len(rest))
	for i := l.pos; i < len(l.src); i++ {
		tag, ok := strings.CutPrefix(l.src[i:], "{%")
		if !ok {
			continue
		}
		sign := byte(0)
		if tag != "" && (tag[0] == '-' || tag[0] == '+') {
			sign = tag[0]
			tag = tag[1:]
		}
		tag, ok = strings.CutPrefix(strings.TrimLeftFunc(tag, isSpace), "endraw")
		if !ok {
			continue
		}
		tag = strings.TrimLeftFunc(tag, isSpace)
		if end := l.closeAt(len(l.src)-len(tag), "%}"); end >= 0 {
			text := l.stripLeft(l.src[l.pos:i], sign, '%')
			l.advance(end)
			return text, true, nil
		}
	}
	return "", false, l.fail("raw block is not closed")
}

var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// token returns the next token of the tag that data opened; tokEnd closes it.
func (l *lexer) token() (token, error) {
	for {
		if len(l.brackets) == 0 {
			closer := "}}"
			if l.block {
				closer = "%}"
			}
			if end := l.closeAt(l.pos, closer); end >= 0 {
				t := token{kind: tokEnd, line: l.line}
				l.advance(end)
				return t, nil
			}
		}
		if l.pos >= len(l.src) {
			return token{}, l.fail("tag is not closed")
		}
		r, size := utf8.DecodeRuneInString(l.src[l.pos:])
		if !isSpace(r) {
			return l.scan(r)
		}
		l.advance(l.pos + size)
	}
}

func (l *lexer) scan(r rune) (token, error) {
	switch {
	case r >= '0' && r <= '9':
		return l.number()
	case r == '_' || unicode.IsLetter(r):
		rest := strings.TrimLeftFunc(l.src[l.pos:], func(r rune) bool {
			return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		})
		return l.take(tokName, len(l.src)-len(rest)), nil
	case r == '"' || r == '\'':
		return l.quoted(byte(r))
	}
	for _, op := range operators {
		if strings.HasPrefix(l.src[l.pos:], op) {
			if err := l.balance(op[0]); err != nil {
				return token{}, err
			}
			return l.take(tokOp, l.pos+len(op)), nil
		}
	}
	return token{}, l.fail("unexpected character %q", r)
}

// take makes a token of the source up to end.
func (l *lexer) take(kind tokenKind, end int) token {
	t := token{kind: kind, text: l.src[l.pos:end], line: l.line}
	l.advance(end)
	return t
}

// balance follows brackets.
func (l *lexer) balance(op byte) error {
	switch op {
	case '(':
		l.brackets = append(l.brackets, ')')
	case '[':
		l.brackets = append(l.brackets, ']')
	case '{':
		l.brackets = append(l.brackets, '}')
	case ')', ']', '}':
		if len(l.brackets) == 0 || l.brackets[len(l.brackets)-1] != op {
			return l.fail("unexpected %q", op)
		}
		l.brackets = l.brackets[:len(l.brackets)-1]
	}
	if len(l.brackets) > maxNest {
		return l.fail("brackets nest deeper than %d", maxNest)
	}
	return nil
}

// number reads jinja2's numbers: 1_000, 0x1f, 0o17, 0b1, 1.5, 1e3. A dot before it, as in a.0.1, makes it an integer.
func (l *lexer) number() (token, error) {
	src := l.src[l.pos:]
	n := digits(src)
	if n < len(src) && n == 1 && src[0] == '0' && strings.IndexByte("xXoObB", src[1]) >= 0 {
		end := 2
		for end < len(src) && (src[end] == '_' || unicode.Is(unicode.ASCII_Hex_Digit, rune(src[end]))) {
			end++
		}
		t := l.take(tokInt, l.pos+end)
		v, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			return t, l.fail("number %q is not an integer of 64 bits", t.text)
		}
		t.text = strconv.FormatInt(v, 10)
		return t, nil
	}
	kind := tokInt
	if l.pos == 0 || l.src[l.pos-1] != '.' {
		if n < len(src) && src[n] == '.' {
			if d := digits(src[n+1:]); d > 0 {
				n += 1 + d
				kind = tokFloat
			}
		}
		if n < len(src) && (src[n] == 'e' || src[n] == 'E') {
			e := n + 1
			if e < len(src) && (src[e] == '+' || src[e] == '-') {
				e++
			}
			if d := digits(src[e:]); d > 0 {
				n = e + d
				kind = tokFloat
			}
		}
	}
	t := l.take(kind, l.pos+n)
	t.text = strings.ReplaceAll(t.text, "_", "")
	if kind == tokInt && t.text[0] == '0' && strings.Trim(t.text, "0") != "" {
		return t, l.fail("integer %s starts with a zero", t.text)
	}
	return t, nil
}

// digits returns the length of the run of digits, possibly parted by single underscores, that s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && (s[n] >= '0' && s[n] <= '9' || n > 0 && s[n] == '_' && n+1 < len(s) && s[n+1] >= '0' && s[n+1] <= '9') {
		n++
	}
	return n
}

// quoted reads a string literal with Python's escapes.
func (l *lexer) quoted(quote byte) (token, error) {
	end := l.pos + 1
	for end < len(l.src) && l.src[end] != quote {
		if l.src[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(l.src) {
		return token{}, l.fail("string is not closed")
	}
	t := l.take(tokString, end+1)
	text, err := unescape(t.text[1 : len(t.text)-1])
	if err != nil {
		return t, l.fail("%v", err)
	}
	t.text = text
	return t, nil
}

const simpleEscapes = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v"

// unescape replaces Python's escape sequences; an unknown one stays as it is.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		if c == '\n' {
			continue
		}
		if at := strings.IndexByte(simpleEscapes, c); at >= 0 && at%2 == 0 {
			b.WriteByte(simpleEscapes[at+1])
			continue
		}
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case width > 0:
			if i+width >= len(s) {
				return "", fmt.Errorf("escape \\%c wants %d hexadecimal digits", c, width)
			}
			v, err := strconv.ParseUint(s[i+1:i+1+width], 16, 32)
			if err != nil || v > unicode.MaxRune {
				return "", fmt.Errorf("escape \\%s is not a character", s[i:i+1+width])
			}
			b.WriteRune(rune(v))
			i += width
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(v))
			i += n - 1
		case c == 'N':
			return "", fmt.Errorf("escape \\N{...} is not supported")
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

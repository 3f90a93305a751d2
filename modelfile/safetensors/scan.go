package safetensors

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Limits on a JSON document. They keep the largest document that is taken within some tens of MiB of memory: a header
// of 20,000 tensors has 160,000 values in 3 MiB.
const (
	maxJSONBytes = 6 << 20
	maxValues    = 200_000
	maxDepth     = 64 // simdjson-go stops at 128
)

// scan accepts exactly the documents of RFC 8259 that are valid UTF-8, whose escaped surrogates come in pairs, whose
// numbers are finite as float64, and which keep to the limits. It runs before either parser, so that both take and
// refuse the same documents: they differ in control characters, lone surrogates, number range and depth.
type scanner struct {
	data   []byte
	off    int
	values int
}

// scanError is a place in a document and what is wrong there.
type scanError struct {
	off    int
	reason string
}

func (e *scanError) Error() string { return fmt.Sprintf("at byte %d: %s", e.off, e.reason) }

func scan(data []byte) error {
	if len(data) > maxJSONBytes {
		return &scanError{0, fmt.Sprintf("the JSON has %d bytes, want at most %d", len(data), maxJSONBytes)}
	}
	if !utf8.Valid(data) {
		return &scanError{invalidUTF8(data), "is not valid UTF-8"}
	}
	s := &scanner{data: data}
	s.space()
	if err := s.value(0); err != nil {
		return err
	}
	s.space()
	if s.off != len(data) {
		return s.fail("something follows the JSON value")
	}
	return nil
}

func invalidUTF8(data []byte) int {
	off := 0
	for off < len(data) {
		r, n := utf8.DecodeRune(data[off:])
		if r == utf8.RuneError && n == 1 {
			return off
		}
		off += n
	}
	return off
}

func (s *scanner) fail(reason string, args ...any) error {
	return &scanError{s.off, fmt.Sprintf(reason, args...)}
}

func (s *scanner) space() {
	for s.off < len(s.data) {
		switch s.data[s.off] {
		case ' ', '\t', '\n', '\r':
			s.off++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end; a 0 in the document is refused wherever it stands.
func (s *scanner) peek() byte {
	if s.off < len(s.data) {
		return s.data[s.off]
	}
	return 0
}

func (s *scanner) expect(c byte, where string) error {
	if s.peek() != c {
		return s.fail("want %q %s", c, where)
	}
	s.off++
	return nil
}

// value scans one value inside depth arrays and objects.
func (s *scanner) value(depth int) error {
	if s.values++; s.values > maxValues {
		return s.fail("the JSON has more than %d values", maxValues)
	}
	switch c := s.peek(); {
	case c == '{':
		return s.list(depth, '}', s.member)
	case c == '[':
		return s.list(depth, ']', s.value)
	case c == '"':
		return s.str()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if end := s.off + len(word); end <= len(s.data) && string(s.data[s.off:end]) == word {
			s.off = end
			return nil
		}
	}
	if s.off == len(s.data) {
		return s.fail("the JSON ends where a value is wanted")
	}
	return s.fail("want a JSON value")
}

// list scans the items of an array or object, from its opening to its closing bracket.
func (s *scanner) list(depth int, closing byte, item func(depth int) error) error {
	if depth == maxDepth {
		return s.fail("arrays and objects lie more than %d deep", maxDepth)
	}
	s.off++
	if s.space(); s.peek() == closing {
		s.off++
		return nil
	}
	for {
		s.space()
		if err := item(depth + 1); err != nil {
			return err
		}
		if s.space(); s.peek() != ',' {
			return s.expect(closing, "or \",\" after a value")
		}
		s.off++
	}
}

// member scans a key and its value.
func (s *scanner) member(depth int) error {
	if s.peek() != '"' {
		return s.fail(`want '"' before a key`)
	}
	if err := s.str(); err != nil {
		return err
	}
	s.space()
	if err := s.expect(':', "after a key"); err != nil {
		return err
	}
	s.space()
	return s.value(depth)
}

// str scans a string from quote to quote.
func (s *scanner) str() error {
	s.off++
	for s.off < len(s.data) {
		switch c := s.data[s.off]; {
		case c == '"':
			s.off++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < ' ':
			return s.fail("control character %#x stands in a string, want it escaped", c)
		default:
			s.off++
		}
	}
	return s.fail("the JSON ends inside a string")
}

func (s *scanner) escape() error {
	if s.off+1 >= len(s.data) {
		return s.fail("the JSON ends inside a string")
	}
	switch s.data[s.off+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.off += 2
		return nil
	}
	r, ok := s.unicode(s.off)
	switch {
	case !ok:
		return s.fail("want one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u and four hexadecimal digits")
	case 0xDC00 <= r && r < 0xE000:
		return s.fail("second half of a surrogate pair without the first")
	case 0xD800 <= r && r < 0xDC00:
		if low, ok := s.unicode(s.off + 6); !ok || low < 0xDC00 || low >= 0xE000 {
			return s.fail("first half of a surrogate pair without the second")
		}
		s.off += 6
	}
	s.off += 6
	return nil
}

// unicode reads a \uXXXX escape at off.
func (s *scanner) unicode(off int) (uint64, bool) {
	if off+6 > len(s.data) || s.data[off] != '\\' || s.data[off+1] != 'u' {
		return 0, false
	}
	for _, c := range s.data[off+2 : off+6] {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return 0, false
		}
	}
	r, err := strconv.ParseUint(string(s.data[off+2:off+6]), 16, 32)
	return r, err == nil
}

func (s *scanner) digits() bool {
	start := s.off
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.off++
	}
	return s.off > start
}

// number scans a number and checks that it is finite.
func (s *scanner) number() error {
	start := s.off
	if s.peek() == '-' {
		s.off++
	}
	whole := s.off
	if !s.digits() {
		return s.fail("want a digit")
	}
	if s.data[whole] == '0' && s.off-whole > 1 {
		return s.fail("a number starts with 0")
	}
	if s.peek() == '.' {
		s.off++
		if !s.digits() {
			return s.fail("want a digit after the point")
		}
	}
	if s.peek()|0x20 == 'e' {
		s.off++
		if c := s.peek(); c == '+' || c == '-' {
			s.off++
		}
		if !s.digits() {
			return s.fail("want a digit in the exponent")
		}
	}
	text := string(s.data[start:s.off])
	if _, err := number(text); err != nil {
		s.off = start
		return s.fail("number %s is too large for a float64", show(text))
	}
	return nil
}

// number gives the value of a number that scan accepts: int64 or uint64 when it is written as an integer and fits,
// float64 otherwise. This is how simdjson-go sorts them.
func number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, nil
	}
	return strconv.ParseFloat(text, 64)
}

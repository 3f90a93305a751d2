package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// guard stands inside guarded special tokens. It is a noncharacter: Unicode reserves it for use within a program.
const guard = "\uFDD0"

// GuardSpecial marks the special tokens in a text that a user typed, so that they stay plain text when the text comes
// back inside a rendered prompt and EncodePrompt reads that. Without special tokens the text comes back as it is.
func (t *Tokenizer) GuardSpecial(text string) string {
	return t.raw.guard(t.normed.guard(text))
}

// guard puts the mark behind the first character of every special token of m.
func (m *matcher) guard(s string) string {
	if len(m.tokens) == 0 {
		return s
	}
	var out strings.Builder
	from := 0
	for i := 0; ; {
		token, start, end := m.next(s, i)
		if token == nil {
			break
		}
		i = end
		if token.special {
			_, n := utf8.DecodeRuneInString(s[start:])
			out.WriteString(s[from : start+n])
			out.WriteString(guard)
			from = start + n
		}
	}
	if from == 0 {
		return s
	}
	out.WriteString(s[from:])
	return out.String()
}

package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Classes of characters that the pre-tokenizer rules tell apart. Each character has exactly one of letter, number, space
// and other; upper and lower follow the sets of the tekken rule, which overlap.
const (
	isLetter  = 1 << iota // \p{L}
	isNumber              // \p{N}
	isSpace               // \s: Unicode White_Space
	isOther               // [^\s\p{L}\p{N}], bytes that are not UTF-8 included
	isNewline             // \r or \n, spaces too
	isUpper               // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	isLower               // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
)

// classTable holds the class of each character of the first two planes.
type classTable [0x20000]uint8

var classes = sync.OnceValue(func() *classTable {
	t := new(classTable)
	t.add(unicode.L, isLetter)
	t.add(unicode.N, isNumber)
	t.add(unicode.White_Space, isSpace)
	for _, tab := range []*unicode.RangeTable{unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M} {
		t.add(tab, isUpper)
	}
	for _, tab := range []*unicode.RangeTable{unicode.Ll, unicode.Lm, unicode.Lo, unicode.M} {
		t.add(tab, isLower)
	}
	t.each(newerClass, func(c *uint8) { *c = 0 })
	t[0x295] = isLetter | isLower // Ll until 16.0
	t['\r'] |= isNewline
	t['\n'] |= isNewline
	for r := range t {
		if t[r]&(isLetter|isNumber|isSpace) == 0 {
			t[r] |= isOther
		}
	}
	return t
})

func (t *classTable) add(tab *unicode.RangeTable, class uint8) {
	t.each(tab, func(c *uint8) { *c |= class })
}

// each calls do with the class of every character of tab that the table holds.
func (t *classTable) each(tab *unicode.RangeTable, do func(class *uint8)) {
	for _, r := range tab.R16 {
		for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
			do(&t[c])
		}
	}
	for _, r := range tab.R32 {
		for c := r.Lo; c <= r.Hi && c < uint32(len(t)); c += r.Stride {
			do(&t[c])
		}
	}
}

// at returns the class and length of the character at s[i:]; 0, 0 at the end.
func (t *classTable) at(s string, i int) (class uint8, size int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return t[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && n == 1 {
		return isOther, 1
	}
	return t.of(r), n
}

// of returns the class of a character. The planes from 2 on hold ideographs and unassigned or private characters.
func (t *classTable) of(r rune) uint8 {
	switch {
	case int(r) < len(t):
		return t[r]
	case unicode.Is(newerClass, r):
		return isOther
	case unicode.Is(unicode.L, r):
		return isLetter | isUpper | isLower
	case unicode.Is(unicode.M, r):
		return isOther | isUpper | isLower
	}
	return isOther
}

// run returns the end of the characters from i on that have a class of mask.
func (t *classTable) run(s string, i int, mask uint8) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&mask == 0 {
			break
		}
		i += n
	}
	return i
}

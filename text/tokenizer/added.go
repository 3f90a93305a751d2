package tokenizer

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token found in the text before the model runs.
type addedToken struct {
	id         int32
	text       string
	special    bool
	singleWord bool // only where no letter, digit or underscore touches it
	lstrip     bool // takes the white space before it along
	rstrip     bool // takes the white space after it along
	normalized bool // looked for in normalised text
}

// maxAddedBytes bounds an added token, and with it the work at each position of a text.
const maxAddedBytes = 1024

// matcher finds added tokens: at each position the longest.
type matcher struct {
	first  [256]bool // bytes that start a token
	trie   trie
	tokens []addedToken
}

func newMatcher(tokens []addedToken) (matcher, error) {
	total := 0
	for _, a := range tokens {
		if len(a.text) > maxAddedBytes {
			return matcher{}, fmt.Errorf("tokenizer: added token %d is %d bytes long; at most %d are allowed", a.id, len(a.text), maxAddedBytes)
		}
		total += len(a.text)
	}
	m := matcher{trie: newTrie(total), tokens: tokens}
	for i, a := range tokens {
		if a.text != "" {
			m.first[a.text[0]] = true
			m.trie.add(a.text, int32(i))
		}
	}
	return m, nil
}

// next returns the first token in s at or after i and its range; token is nil when there is none.
func (m *matcher) next(s string, i int) (token *addedToken, start, end int) {
	for ; i < len(s); i++ {
		if !m.first[s[i]] {
			continue
		}
		at, found := uint64(0), int32(-1)
		for j := i; j < len(s); j++ {
			to, ok := m.trie.step(at, s[j])
			if !ok {
				break
			}
			at = to
			if v := m.trie.value[at]; v >= 0 {
				found, end = v, j+1
			}
		}
		if found >= 0 {
			return &m.tokens[found], i, end
		}
	}
	return nil, len(s), len(s)
}

// split cuts s into added tokens (id) and what is between them (id -1). start is where a part begins in s. Without
// special, special tokens stay part of the text; shorter tokens inside them are not looked for.
func (m *matcher) split(s string, special bool, emit func(part string, start int, id int32)) {
	from := 0
	if len(m.tokens) > 0 {
		for i := 0; ; {
			token, start, end := m.next(s, i)
			if token == nil {
				break
			}
			i = end
			if token.special && !special || token.singleWord && touchesWord(s, start, end) {
				continue
			}
			if token.lstrip {
				start = max(trimLeftOf(s, start), from)
			}
			if token.rstrip {
				end = classes().run(s, end, isSpace)
			}
			if from < start {
				emit(s[from:start], from, -1)
			}
			emit("", start, token.id)
			from = end
		}
	}
	if from < len(s) {
		emit(s[from:], from, -1)
	}
}

// trimLeftOf returns where the white space that ends at end begins.
func trimLeftOf(s string, end int) int {
	for end > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:end])
		if !unicode.Is(unicode.White_Space, r) {
			break
		}
		end -= n
	}
	return end
}

// touchesWord reports whether a word character stands directly before or after s[start:end].
func touchesWord(s string, start, end int) bool {
	before, n := utf8.DecodeLastRuneInString(s[:start])
	after, m := utf8.DecodeRuneInString(s[end:])
	return n > 0 && isWordRune(before) || m > 0 && isWordRune(after)
}

// isWordRune is \w: letters, marks, decimal digits, letter numbers, connector punctuation and joiners.
func isWordRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe is byte-pair encoding: a word starts as its smallest symbols, and the pair of neighbours with the best rank is
// merged until no pair is left that can be.
type bpe struct {
	vocab  *vocab
	merges table // left id<<32 | right id -> rank<<32 | id of both together

	byteLevel bool
	whole     bool       // a word that is a piece itself is not built from merges ("ignore_merges")
	byteIDs   [256]int32 // byte-level: the piece of each byte; else the byte token <0xXX>; -1 for none
	fallback  bool       // characters without a piece become byte tokens; only if all of their bytes have one
	unknown   int32      // -1: characters without a piece are dropped
	fuse      bool       // neighbouring unknown characters become one token

	cut      bool              // words may be cut before ▁ without changing the result
	crossing map[rune]struct{} // but not after these characters
}

const (
	noMerge  = math.MaxUint64
	scanSyms = 96 // symbols up to which scanning for the best pair beats a heap
)

// newBPE makes a model without merges; addMerge adds them.
func newBPE(v *vocab, merges int, byteLevel bool) *bpe {
	m := &bpe{vocab: v, merges: newTable(merges), byteLevel: byteLevel, unknown: -1}
	for b := range m.byteIDs {
		piece := fmt.Sprintf("<0x%02X>", b)
		if byteLevel {
			piece = string(byteRunes[b])
		}
		m.byteIDs[b] = -1
		if id, ok := v.modelID(piece); ok {
			m.byteIDs[b] = id
		}
	}
	return m
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// addMerge adds a merge; a smaller rank is merged earlier.
func (m *bpe) addMerge(left, right, both int32, rank int) {
	m.merges.put(pairKey(left, right), uint64(rank)<<32|uint64(uint32(both)))
}

func (m *bpe) merge(left, right int32) uint64 {
	if v, ok := m.merges.get(pairKey(left, right)); ok {
		return v
	}
	return noMerge
}

// findCuts allows words to be cut before ▁ where no piece reaches over the cut. Models that treat a text as one word
// (Llama 2, Gemma) then profit from the cache of words, with the same result.
func (m *bpe) findCuts() {
	if m.byteLevel || m.unknown >= 0 && m.fuse && !m.allBytes() {
		return
	}
	m.cut, m.crossing = true, map[rune]struct{}{}
	for _, p := range m.vocab.pieces {
		for from := 0; ; {
			n := strings.Index(p[from:], spaceMark)
			if n < 0 {
				break
			}
			if r, _ := utf8.DecodeLastRuneInString(p[:from+n]); from+n > 0 && string(r) != spaceMark {
				m.crossing[r] = struct{}{}
			}
			from += n + len(spaceMark)
		}
	}
}

func (m *bpe) allBytes() bool {
	for _, id := range m.byteIDs {
		if id < 0 {
			return false
		}
	}
	return m.fallback
}

func (m *bpe) encode(s *scratch, text string) {
	if !m.cut {
		m.word(s, text)
		return
	}
	start := 0
	for i := len(spaceMark); i < len(text); {
		n := strings.Index(text[i:], spaceMark)
		if n < 0 {
			break
		}
		at := i + n
		i = at + len(spaceMark)
		r, _ := utf8.DecodeLastRuneInString(text[:at])
		if _, crosses := m.crossing[r]; at > start && !crosses && string(r) != spaceMark {
			m.word(s, text[start:at])
			start = at
		}
	}
	if start < len(text) {
		m.word(s, text[start:])
	}
}

func (m *bpe) word(s *scratch, word string) {
	if s.recall(word) {
		return
	}
	from := len(s.ids)
	if id, ok := m.wholeWord(s, word); ok {
		s.ids = append(s.ids, id)
	} else {
		if m.byteLevel {
			m.byteSymbols(s, word)
		} else {
			m.charSymbols(s, word)
		}
		m.mergeAll(s)
		s.ids = append(s.ids, s.syms...)
	}
	s.remember(word, from)
}

func (m *bpe) wholeWord(s *scratch, word string) (int32, bool) {
	if !m.whole {
		return 0, false
	}
	s.buf = s.buf[:0]
	for i := range len(word) {
		s.buf = utf8.AppendRune(s.buf, byteRunes[word[i]])
	}
	id, ok := m.vocab.index[string(s.buf)]
	return id, ok && m.vocab.kinds[id]&kindModel != 0
}

// byteSymbols sets s.syms to the ids of the bytes of word; a byte without a piece is dropped, as the models' own
// tokenizers do.
func (m *bpe) byteSymbols(s *scratch, word string) {
	s.syms = slices.Grow(s.syms[:0], len(word))
	for i := range len(word) {
		if id := m.byteIDs[word[i]]; id >= 0 {
			s.syms = append(s.syms, id)
		} else if m.unknown >= 0 {
			s.syms = append(s.syms, m.unknown)
		}
	}
}

// charSymbols sets s.syms to the ids of the characters of word.
func (m *bpe) charSymbols(s *scratch, word string) {
	s.syms = slices.Grow(s.syms[:0], utf8.RuneCountInString(word))
	unknown := false // the last symbol is unknown
	for word != "" {
		_, n := utf8.DecodeRuneInString(word)
		char := word[:n]
		word = word[n:]
		if id, ok := m.vocab.modelID(char); ok {
			s.syms = append(s.syms, id)
			unknown = false
			continue
		}
		if m.fallback && m.hasBytes(char) {
			for i := range len(char) {
				s.syms = append(s.syms, m.byteIDs[char[i]])
			}
			unknown = false
			continue
		}
		if m.unknown >= 0 && !(unknown && m.fuse) {
			s.syms = append(s.syms, m.unknown)
		}
		unknown = true
	}
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.byteIDs[char[i]] < 0 {
			return false
		}
	}
	return true
}

// byteRunes is how byte-level vocabularies write each byte: printable Latin-1 characters stand for themselves, the other
// bytes for U+0100 and up.
var byteRunes = func() (t [256]rune) {
	next := rune(256)
	for b := range t {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			t[b] = rune(b)
		} else {
			t[b] = next
			next++
		}
	}
	return t
}()

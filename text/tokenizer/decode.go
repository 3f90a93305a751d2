package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decoder says how pieces become text again.
type decoder struct {
	byteLevel    bool
	byteFallback bool        // <0xXX> is a byte
	replace      [][2]string // in order: from, to
	strip        int         // spaces taken off the start of a text
	dropMark     string      // taken out of the first piece of a text wherever it stands; "" for nothing
}

// appendPiece appends what a piece decodes to inside a text.
func (d *decoder) appendPiece(dst []byte, piece string) []byte {
	if d.byteLevel {
		return appendByteLevel(dst, piece)
	}
	if b, ok := byteToken(piece); ok && d.byteFallback {
		return append(dst, b)
	}
	for _, r := range d.replace {
		piece = strings.ReplaceAll(piece, r[0], r[1])
	}
	return append(dst, piece...)
}

// appendByteLevel undoes byteRunes; a piece with other characters, such as an added token, is text already.
func appendByteLevel(dst []byte, piece string) []byte {
	from := len(dst)
	for _, r := range piece {
		b, ok := runeByte(r)
		if !ok {
			return append(dst[:from], piece...)
		}
		dst = append(dst, b)
	}
	return dst
}

var runeBytes = func() (t [256 + 68]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteRunes {
		t[r] = int16(b)
	}
	return t
}()

func runeByte(r rune) (byte, bool) {
	if r < 0 || int(r) >= len(runeBytes) || runeBytes[r] < 0 {
		return 0, false
	}
	return byte(runeBytes[r]), true
}

// Decode returns the text of ids; special tokens are left out if skipSpecial. Ids out of range are left out, bytes that
// are not UTF-8 become U+FFFD, one for each longest part that could have been the start of a character.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	var out []byte
	for _, id := range ids {
		out = s.push(out, id)
	}
	return string(s.flush(out))
}

// Stream decodes ids one at a time. What its calls return, joined, is what Decode returns for all ids, and every part of
// it is valid UTF-8: the bytes of a character are held back until it is complete.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	started     bool   // an id was decoded
	strip       int    // spaces still to take off the start
	held        []byte // bytes of an unfinished character
}

// NewStream starts the text of a new answer.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial, strip: t.dec.strip}
}

// Push takes the next id and returns the text that is complete with it, which may be "".
func (s *Stream) Push(id int32) string { return string(s.push(nil, id)) }

// Flush ends the text and returns what was held back: U+FFFD for an unfinished character, else "".
func (s *Stream) Flush() string { return string(s.flush(nil)) }

func (s *Stream) push(out []byte, id int32) []byte {
	if !s.t.vocab.has(id) || s.skipSpecial && s.t.IsSpecial(id) {
		return out
	}
	b := s.t.vocab.bytesOf(id)
	if mark := s.t.dec.dropMark; !s.started && mark != "" {
		b = s.t.dec.appendPiece(nil, strings.ReplaceAll(s.t.vocab.pieces[id], mark, ""))
	}
	s.started = true
	for s.strip > 0 && len(b) > 0 {
		if b[0] != ' ' {
			s.strip = 0
			break
		}
		b = b[1:]
		s.strip--
	}
	if len(s.held) > 0 {
		s.held = append(s.held, b...)
		b = s.held
	}
	out, rest := appendValid(out, b)
	s.held = append(s.held[:0], rest...)
	return out
}

func (s *Stream) flush(out []byte) []byte {
	if len(s.held) > 0 {
		out = append(out, "\uFFFD"...)
		s.held = s.held[:0]
	}
	return out
}

// appendValid appends the characters of b, and U+FFFD for what cannot become one. rest is the unfinished character at
// the end of b.
func appendValid(out, b []byte) (text, rest []byte) {
	for len(b) > 0 {
		if b[0] < utf8.RuneSelf {
			out = append(out, b[0])
			b = b[1:]
			continue
		}
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		}
		if !utf8.FullRune(b) {
			return out, b
		}
		out = append(out, "\uFFFD"...)
		b = b[badLen(b):]
	}
	return out, nil
}

// badLen returns how many bytes at the start of b, which no character begins with, one U+FFFD stands for: the longest
// start of a character, at least one byte.
func badLen(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	// b[:n] is the shortest prefix that cannot become a character; its last byte may start another one.
	if n > 1 && !utf8.FullRune(b[:n-1]) {
		return n - 1
	}
	return n
}

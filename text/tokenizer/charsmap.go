package tokenizer

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is SentencePiece's compiled table of replacements ("precompiled_charsmap"):
//
//	size u32 of the array in bytes | double array of u32 units | replacements, each ended by a NUL byte
//
// A unit is: bits 0-7 label and bit 31 | bit 8 has a leaf | bit 9 offset is shifted by 8 | bits 10-30 offset. The unit
// of a leaf holds the replacement's offset in bits 0-30.
type charsmap struct {
	units []uint32
	text  string
	ascii bool // no printable ASCII character is replaced when alone
}

// maxReplacement bounds a replacement and its NUL, and with it how much longer a text can become; the longest in use has 33
// bytes.
const maxReplacement = 256

func newCharsmap(data []byte) (*charsmap, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("tokenizer: precompiled_charsmap has %d bytes; at least 4 are needed", len(data))
	}
	size := binary.LittleEndian.Uint32(data)
	rest := data[4:]
	if size%4 != 0 || uint64(size) > uint64(len(rest)) || size == 0 {
		return nil, fmt.Errorf("tokenizer: precompiled_charsmap says its array has %d bytes; a multiple of 4 from 4 to the %d that follow is right", size, len(rest))
	}
	c := &charsmap{units: make([]uint32, size/4), text: string(rest[size:])}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(rest[4*i:])
	}
	c.ascii = true
	for b := byte(' '); b <= '~'; b++ {
		if _, n := c.lookup(string(rune(b)), true); n > 0 {
			c.ascii = false
		}
	}
	return c, nil
}

// lookup returns the replacement of a prefix of s and the prefix's length: the longest, or the shortest if shortest.
func (c *charsmap) lookup(s string, shortest bool) (text string, n int) {
	at := unitOffset(c.units[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		at ^= uint32(s[i])
		if uint64(at) >= uint64(len(c.units)) || c.units[at]&(1<<31|0xFF) != uint32(s[i]) {
			break
		}
		u := c.units[at]
		at ^= unitOffset(u)
		if u>>8&1 == 0 {
			continue
		}
		if uint64(at) >= uint64(len(c.units)) {
			break
		}
		from := c.units[at] & (1<<31 - 1)
		if uint64(from) > uint64(len(c.text)) {
			break
		}
		found := c.text[from:min(int(from)+maxReplacement, len(c.text))]
		end := strings.IndexByte(found, 0)
		if end < 0 {
			break
		}
		text, n = found[:end], i+1
		if shortest {
			break
		}
	}
	return text, n
}

func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// normalize applies the map as Hugging Face's tokenizers do: to each grapheme of less than 6 bytes as a whole if its
// shortest known prefix is in the map (what follows in the grapheme is dropped), else to each character.
func (c *charsmap) normalize(s string) string {
	if c.plain(s) == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for s != "" {
		if n := c.plain(s); n > 0 {
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		var g string
		g, s, _, _ = uniseg.FirstGraphemeClusterInString(s, -1)
		if len(g) < 6 {
			if text, n := c.lookup(g, true); n > 0 {
				b.WriteString(text)
				continue
			}
		}
		for g != "" {
			_, n := utf8.DecodeRuneInString(g)
			if text, m := c.lookup(g[:n], true); m > 0 {
				b.WriteString(text)
			} else {
				b.WriteString(g[:n])
			}
			g = g[n:]
		}
	}
	return b.String()
}

// plain returns how many bytes at the start of s are printable ASCII characters that are graphemes of their own and stay
// as they are. What follows the last of such characters may belong to its grapheme.
func (c *charsmap) plain(s string) int {
	if !c.ascii {
		return 0
	}
	n := 0
	for n < len(s) && s[n] >= ' ' && s[n] <= '~' {
		n++
	}
	if n > 0 && n < len(s) && s[n] >= utf8.RuneSelf {
		n--
	}
	return n
}

// sentencePiece normalises as the SentencePiece library does: the longest known prefix is replaced at each position, runs
// of spaces become one and those at the ends go if squeeze, spaces are written as ▁, and one is put in front if prefix.
type sentencePiece struct {
	chars   *charsmap // nil: no replacements
	squeeze bool
	prefix  bool
}

func (p *sentencePiece) normalize(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 8)
	space := p.squeeze // the last thing written was a space, or nothing was
	for s != "" {
		text, n := "", 0
		if p.chars != nil {
			text, n = p.chars.lookup(s, false)
		}
		if n == 0 {
			_, n = utf8.DecodeRuneInString(s)
			text = s[:n]
		}
		s = s[n:]
		for p.squeeze && space && strings.HasPrefix(text, " ") {
			text = text[1:]
		}
		if text != "" {
			b.WriteString(text)
			space = strings.HasSuffix(text, " ")
		}
	}
	out := b.String()
	if p.squeeze {
		out = strings.TrimRight(out, " ")
	}
	if p.prefix && out != "" {
		out = " " + out
	}
	return strings.ReplaceAll(out, " ", spaceMark)
}

// spaceMark is how SentencePiece vocabularies write a space.
const spaceMark = "▁"

package tokenizer

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites a part of a text before it is cut into words.
type normalizer func(string) string

// replace writes to for every from.
func replace(from, to string) normalizer {
	return func(s string) string { return strings.ReplaceAll(s, from, to) }
}

// replaceRuns writes to for every run of two or more spaces.
func replaceRuns(to string) normalizer {
	return func(s string) string {
		if !strings.Contains(s, "  ") {
			return s
		}
		var b strings.Builder
		for i := 0; i < len(s); {
			j := i
			for j < len(s) && s[j] == ' ' {
				j++
			}
			switch {
			case j-i >= 2:
				b.WriteString(to)
			case j == i:
				for j < len(s) && s[j] != ' ' {
					j++
				}
				fallthrough
			default:
				b.WriteString(s[i:j])
			}
			i = j
		}
		return b.String()
	}
}

// prepend puts head before text that is not empty.
func prepend(head string) normalizer {
	return func(s string) string {
		if s == "" {
			return s
		}
		return head + s
	}
}

// strip takes white space off the ends.
func strip(left, right bool) normalizer {
	space := func(r rune) bool { return unicode.Is(unicode.White_Space, r) }
	return func(s string) string {
		if left {
			s = strings.TrimLeftFunc(s, space)
		}
		if right {
			s = strings.TrimRightFunc(s, space)
		}
		return s
	}
}

// normForm brings text to a Unicode normalisation form. x/text inserts a joiner after 30 combining marks in a row (its
// "stream-safe" form), which the models were not trained with; so it serves for its tables and quick check only.
func normForm(form norm.Form) normalizer {
	decomposed, compose := norm.NFD, form == norm.NFC || form == norm.NFKC
	if form == norm.NFKC || form == norm.NFKD {
		decomposed = norm.NFKD
	}
	return func(s string) string {
		if form.IsNormalString(s) {
			return s
		}
		var b strings.Builder
		b.Grow(len(s))
		for s != "" {
			n := form.QuickSpanString(s)
			b.WriteString(s[:n])
			// No ASCII character joins what is before it, so that is where the part to change ends.
			end := min(n+1, len(s))
			for end < len(s) && s[end] >= utf8.RuneSelf {
				end++
			}
			marks := decompose(s[n:end], decomposed)
			if compose {
				marks = composeMarks(marks)
			}
			for _, m := range marks {
				if m.r < 0 {
					b.WriteByte(byte(-m.r - 1))
				} else {
					b.WriteRune(m.r)
				}
			}
			s = s[end:]
		}
		return b.String()
	}
}

// mark is a character with its canonical combining class; r = -1-b stands for a byte b that is not UTF-8.
type mark struct {
	r   rune
	ccc uint8
}

// decompose takes all characters of s apart and puts combining marks in canonical order.
func decompose(s string, form norm.Form) []mark {
	all := make([]mark, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			all = append(all, mark{r: -1 - rune(s[i])})
		case r < utf8.RuneSelf:
			all = append(all, mark{r: r})
		case r >= hangulBase && r < hangulEnd:
			l, v, t := splitHangul(r)
			all = append(all, mark{r: l}, mark{r: v})
			if t != jamoT {
				all = append(all, mark{r: t})
			}
		default:
			all = appendDecomposed(all, s[i:i+n], form)
		}
		i += n
	}
	for i := 0; i < len(all); i++ {
		j := i
		for j < len(all) && all[j].ccc != 0 {
			j++
		}
		if j > i+1 {
			run := all[i:j]
			sort.SliceStable(run, func(a, b int) bool { return run[a].ccc < run[b].ccc })
		}
		i = j
	}
	return all
}

func appendDecomposed(all []mark, char string, form norm.Form) []mark {
	r, _ := utf8.DecodeRuneInString(char)
	if unicode.Is(newerNorm, r) {
		return append(all, mark{r: r})
	}
	p := form.PropertiesString(char)
	d := p.Decomposition()
	if d == nil {
		return append(all, mark{r, p.CCC()})
	}
	for len(d) > 0 {
		r, n := utf8.DecodeRune(d)
		all = append(all, mark{r, norm.NFD.Properties(d).CCC()})
		d = d[n:]
	}
	return all
}

// composeMarks joins each starter with the marks after it that nothing blocks.
func composeMarks(all []mark) []mark {
	out := all[:0]
	starter := -1 // index in out
	for _, m := range all {
		if starter >= 0 {
			last := out[len(out)-1]
			blocked := len(out)-1 > starter && (last.ccc == 0 || last.ccc >= m.ccc)
			if !blocked {
				if r, ok := composePair(out[starter].r, m.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if m.ccc == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

// Composed Hangul syllables are counted: (lead*21 + vowel)*28 + tail from hangulBase, tail 0 meaning none.
const (
	hangulBase, hangulEnd     = 0xAC00, 0xD7A4
	jamoL, jamoV, jamoT       = 0x1100, 0x1161, 0x11A7
	countL, countV, countTail = 19, 21, 28
)

func splitHangul(r rune) (l, v, t rune) {
	r -= hangulBase
	return jamoL + r/(countV*countTail), jamoV + r/countTail%countV, jamoT + r%countTail
}

// composePair returns the character that a and b together are canonically equal to.
func composePair(a, b rune) (rune, bool) {
	switch {
	case a < 0 || b < 0 || b < 0x300:
		return 0, false
	case a >= jamoL && a < jamoL+countL && b >= jamoV && b < jamoV+countV:
		return hangulBase + ((a-jamoL)*countV+b-jamoV)*countTail, true
	case a >= hangulBase && a < hangulEnd && (a-hangulBase)%countTail == 0 && b > jamoT && b < jamoT+countTail:
		return a + b - jamoT, true
	}
	var buf [2 * utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], a)
	n += utf8.EncodeRune(buf[n:], b)
	var out [4 * utf8.UTFMax]byte
	joined := norm.NFC.Append(out[:0], buf[:n]...)
	r, size := utf8.DecodeRune(joined)
	return r, size == len(joined) && size > 0 && r != utf8.RuneError && !unicode.Is(newerNorm, r)
}

package tokenizer

// A scanner returns the end of the word that starts at s[i:], i < len(s). Scanners replace the regular expressions of
// the models: Go's regexp has no look-ahead and is an order of magnitude slower.
type scanner func(t *classTable, s string, i int) int

// The expressions as tokenizer.json files spell them, by which they are recognised.
const (
	llamaRegex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenRegex  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt2Regex  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	tekkenRegex = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanLlama follows llamaRegex.
func scanLlama(t *classTable, s string, i int) int { return scanWord(t, s, i, 3) }

// scanQwen follows qwenRegex.
func scanQwen(t *classTable, s string, i int) int { return scanWord(t, s, i, 1) }

// scanWord is what llamaRegex and qwenRegex share; they differ in how many digits stay together.
func scanWord(t *classTable, s string, i, digits int) int {
	if s[i] == '\'' {
		if n := contraction(s[i:], true); n > 0 {
			return i + n
		}
	}
	c, n := t.at(s, i)
	switch {
	case c&isLetter != 0:
		return t.run(s, i+n, isLetter)
	case c&isNumber != 0:
		for range digits - 1 {
			d, m := t.at(s, i+n)
			if d&isNumber == 0 {
				break
			}
			n += m
		}
		return i + n
	case c&isNewline == 0:
		if d, _ := t.at(s, i+n); d&isLetter != 0 {
			return t.run(s, i+n, isLetter)
		}
	}
	return scanRest(t, s, i, false)
}

// scanTekken follows tekkenRegex: words also end where a lower-case letter is followed by an upper-case one.
func scanTekken(t *classTable, s string, i int) int {
	c, n := t.at(s, i)
	prefix := c&(isLetter|isNumber|isNewline) == 0 // may be the optional first character
	if prefix {
		if end := camelWord(t, s, i+n); end > 0 {
			return end
		}
	}
	if end := camelWord(t, s, i); end > 0 {
		return end
	}
	if prefix {
		if end := capitals(t, s, i+n); end > 0 {
			return end
		}
	}
	if end := capitals(t, s, i); end > 0 {
		return end
	}
	if c&isNumber != 0 {
		return i + n
	}
	return scanRest(t, s, i, true)
}

// camelWord matches upper* lower+ at i with backtracking: where the run of upper is not followed by lower, it gives back
// characters until one of both sets can be the lower+. It returns 0 when there is no match.
func camelWord(t *classTable, s string, i int) int {
	both := 0 // end of the last character that is in both sets
	for i < len(s) {
		c, n := t.at(s, i)
		if c&isUpper == 0 {
			break
		}
		i += n
		if c&isLower != 0 {
			both = i
		}
	}
	if c, n := t.at(s, i); c&isLower != 0 {
		return t.run(s, i+n, isLower)
	}
	return both
}

// capitals matches upper+ lower* at i, where camelWord did not match; 0 when there is no match.
func capitals(t *classTable, s string, i int) int {
	end := t.run(s, i, isUpper)
	if end == i {
		return 0
	}
	return t.run(s, end, isLower)
}

// scanRest matches ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, with / added to the second set if slash.
func scanRest(t *classTable, s string, i int, slash bool) int {
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, n := t.at(s, j); c&isOther != 0 {
		end := t.run(s, j+n, isOther)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || slash && s[end] == '/') {
			end++
		}
		return end
	}
	return scanSpace(t, s, i, true)
}

// scanSpace matches `\s*[\r\n]+|\s+(?!\S)|\s+`, without the first alternative if not newlines.
func scanSpace(t *classTable, s string, i int, newlines bool) int {
	end, last, line := i, i, 0
	for end < len(s) {
		c, n := t.at(s, end)
		if c&isSpace == 0 {
			break
		}
		last = end
		end += n
		if c&isNewline != 0 {
			line = end
		}
	}
	switch {
	case newlines && line > 0:
		return line
	case end < len(s) && last > i:
		return last // the last space belongs to the word that follows
	}
	return end
}

// scanGPT2 follows gpt2Regex.
func scanGPT2(t *classTable, s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s[i:], false); n > 0 {
			return i + n
		}
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, n := t.at(s, j); c&(isLetter|isNumber|isOther) != 0 {
		return t.run(s, j+n, c&(isLetter|isNumber|isOther))
	}
	return scanSpace(t, s, i, false)
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the start of s, 0 when there is none. Ignoring
// case, the long s (U+017F) is an s.
func contraction(s string, fold bool) int {
	if len(s) < 2 {
		return 0
	}
	letter := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if fold && s[i] >= 'A' && s[i] <= 'Z' {
			return s[i] + 'a' - 'A'
		}
		return s[i]
	}
	a, b := letter(1), letter(2)
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	case fold && len(s) >= 3 && s[1:3] == "ſ":
		return 3
	}
	return 0
}

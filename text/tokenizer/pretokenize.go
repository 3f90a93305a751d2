package tokenizer

import "strings"

// splitter cuts a part of a text into smaller parts. first says that the part starts the text.
type splitter func(part string, first bool, emit func(part string, first bool))

// preTokenizer cuts normalised text into words by one splitter after the other; none leaves the text whole.
type preTokenizer []splitter

func (p preTokenizer) run(part string, first bool, emit func(word string)) {
	if len(p) == 0 {
		if part != "" {
			emit(part)
		}
		return
	}
	p[0](part, first, func(part string, first bool) { p[1:].run(part, first, emit) })
}

// byScanner cuts by one of the scanners.
func byScanner(scan scanner) splitter {
	t := classes()
	return func(part string, first bool, emit func(string, bool)) {
		for i := 0; i < len(part); {
			end := scan(t, part, i)
			emit(part[i:end], first && i == 0)
			i = end
		}
	}
}

// digits separates numbers from the rest: every digit alone, or runs of them together.
func digits(individual bool) splitter {
	t := classes()
	return func(part string, first bool, emit func(string, bool)) {
		for i := 0; i < len(part); {
			c, n := t.at(part, i)
			end := i + n
			switch {
			case c&isNumber == 0:
				end = t.run(part, end, ^uint8(isNumber))
			case !individual:
				end = t.run(part, end, isNumber)
			}
			emit(part[i:end], first && i == 0)
			i = end
		}
	}
}

// prefixSpace puts a space in front of a part that does not start with one.
func prefixSpace(part string, first bool, emit func(string, bool)) {
	if part != "" && part[0] != ' ' {
		part = " " + part
	}
	emit(part, first)
}

// metaspace writes mark for spaces, puts one in front ("always", only at the start of the text with "first", or "never")
// and cuts before each mark if split.
func metaspace(mark, scheme string, split bool) splitter {
	return func(part string, first bool, emit func(string, bool)) {
		part = strings.ReplaceAll(part, " ", mark)
		if part != "" && !strings.HasPrefix(part, mark) && (scheme == "always" || scheme == "first" && first) {
			part = mark + part
		}
		for split && part != "" {
			n := strings.Index(part[1:], mark)
			if n < 0 {
				break
			}
			emit(part[:n+1], first)
			part, first = part[n+1:], false
		}
		emit(part, first)
	}
}

// spaces drops white space and keeps what is between.
func spaces(part string, first bool, emit func(string, bool)) {
	t := classes()
	for i := 0; i < len(part); {
		start := t.run(part, i, isSpace)
		end := t.run(part, start, ^uint8(isSpace))
		if end > start {
			emit(part[start:end], first && start == 0)
		}
		i = end
	}
}

// literal cuts at each occurrence of sep, which stays alone ("Isolated"), goes ("Removed"), or stays with the part before
// ("MergedWithPrevious") or after it ("MergedWithNext").
func literal(sep, behavior string) splitter {
	return func(part string, first bool, emit func(string, bool)) {
		from := 0 // start of what was not emitted
		put := func(end int) {
			if end > from {
				emit(part[from:end], first && from == 0)
			}
			from = end
		}
		for i := 0; ; {
			n := strings.Index(part[i:], sep)
			if n < 0 {
				break
			}
			at := i + n
			i = at + len(sep)
			switch behavior {
			case "Removed":
				put(at)
				from = i
			case "Isolated":
				put(at)
				put(i)
			case "MergedWithPrevious":
				put(i)
			case "MergedWithNext":
				put(at)
			}
		}
		put(len(part))
	}
}

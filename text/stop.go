package text

import (
	"fmt"
	"unicode/utf8"

	"quickdraft/text/tokenizer"
)

// StopStream decodes the ids of an answer until a stop string is complete. Nothing of the stop string is shown: text that could be
// the start of one is held back, and only that. Where several end at the same place the longest counts, otherwise the one that ends
// first, so that the text does not depend on how it is cut into tokens.
//
// It is an engine.Stopper too. Engine and reader are in different places of the answer, so each needs one of its own.
type StopStream struct {
	stream *tokenizer.Stream
	stops  []stop
	held   []byte // the tail of the text that is the start of a stop string
	over   bool   // nothing more is shown
}

// stop follows one stop string through the text: the first at bytes of it are the text's tail.
type stop struct {
	text string
	back []int32 // (len(text)) back[i]: the longest proper start of text[:i+1] that is also its end
	at   int
}

// CheckStops returns an error for a stop string that could never be, or that every text has.
func CheckStops(stops []string) error {
	for i, s := range stops {
		switch {
		case s == "":
			return fmt.Errorf("stop string %d of %d is empty: want a text", i+1, len(stops))
		case !utf8.ValidString(s):
			return fmt.Errorf("stop string %d of %d is %q: want UTF-8, as every answer is", i+1, len(stops), s)
		}
	}
	return nil
}

// NewStopStream starts the text of an answer. Special tokens are not part of it, as in tokenizer.NewStream(true).
func NewStopStream(t *tokenizer.Tokenizer, stops []string) (*StopStream, error) {
	if err := CheckStops(stops); err != nil {
		return nil, err
	}
	s := &StopStream{stream: t.NewStream(true)}
	for _, text := range stops {
		s.stops = append(s.stops, newStop(text))
	}
	return s, nil
}

func newStop(text string) stop {
	s := stop{text: text, back: make([]int32, len(text))}
	for i := 1; i < len(text); i++ {
		s.step(text[i])
		s.back[i] = int32(s.at)
	}
	s.at = 0
	return s
}

// step takes the next byte of the text, which is not to follow a complete stop string.
func (s *stop) step(b byte) (complete bool) {
	for s.at > 0 && s.text[s.at] != b {
		s.at = int(s.back[s.at-1])
	}
	if s.text[s.at] == b {
		s.at++
	}
	return s.at == len(s.text)
}

// Push takes the next id and returns the text that is certain with it, which may be "". After a stop string it is always "".
func (s *StopStream) Push(id int32) string {
	if s.over {
		return ""
	}
	return s.take(s.stream.Push(id))
}

// Accept takes the next id and reports whether a stop string is complete with it.
func (s *StopStream) Accept(id int32) bool {
	s.Push(id)
	return s.over
}

// Flush ends the text and returns what was held back, unless it turns out to be a stop string.
func (s *StopStream) Flush() string {
	if s.over {
		return ""
	}
	text := s.take(s.stream.Flush())
	if !s.over {
		text += string(s.held)
	}
	s.held, s.over = nil, true
	return text
}

// take follows the text byte by byte and returns what cannot be part of a stop string any more.
func (s *StopStream) take(text string) string {
	from := len(s.held)
	s.held = append(s.held, text...)
	for i := from; i < len(s.held); i++ {
		if n := s.step(s.held[i]); n > 0 {
			s.over = true
			return string(s.held[:i+1-n])
		}
	}
	keep := 0
	for i := range s.stops {
		keep = max(keep, s.stops[i].at)
	}
	certain := len(s.held) - keep
	shown := string(s.held[:certain])
	s.held = append(s.held[:0], s.held[certain:]...)
	return shown
}

// step takes the next byte and returns the length of the longest stop string that ends with it, 0 for none.
func (s *StopStream) step(b byte) (n int) {
	for i := range s.stops {
		if s.stops[i].step(b) {
			n = max(n, len(s.stops[i].text))
		}
	}
	return n
}

package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// checkStream feeds ids one by one and demands valid UTF-8 at each step and the text of Decode as a whole.
func checkStream(t testing.TB, tok *Tokenizer, ids []int32) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		s := tok.NewStream(skip)
		var b strings.Builder
		for _, id := range ids {
			part := s.Push(id)
			if !utf8.ValidString(part) {
				t.Errorf("Push(%d) of %v returned %q, which is not UTF-8", id, ids, part)
			}
			b.WriteString(part)
		}
		b.WriteString(s.Flush())
		if want := tok.Decode(ids, skip); b.String() != want {
			t.Errorf("stream of %v, skip %v: %q, Decode gives %q", ids, skip, b.String(), want)
		}
	}
}

package drafter

import (
	"fmt"
	"regexp"
	"slices"
)

// Vocabulary is what has to agree between a target and its draft.
type Vocabulary struct {
	File  string                // for messages
	Size  int                   // tokens
	Piece func(id int32) string // a token's text
	EOS   []int32               // ids that end a text or a turn
}

// padding matches the names of tokens that only fill a vocabulary up.
var padding = regexp.MustCompile(`(?i)^$|^[\[<][|]?(pad|unused|reserved|extra|dummy)[^\s]*[|]?[\]>]$`)

// Compatible returns an error when guesses of the draft would mean something else to the target: when a token differs, or
// when the two end texts differently. One may have more padding than the other.
func Compatible(target, draft Vocabulary) error {
	where := func() string {
		return fmt.Sprintf("draft %s (%d tokens) does not fit target %s (%d tokens)", draft.File, draft.Size, target.File, target.Size)
	}
	for id := range int32(max(target.Size, draft.Size)) {
		a, b := pieceOf(target, id), pieceOf(draft, id)
		if a == b || padding.MatchString(a) && padding.MatchString(b) {
			continue
		}
		return fmt.Errorf("%s: token %d is %q in the target and %q in the draft; use a draft of the same vocabulary", where(), id, a, b)
	}
	a, b := slices.Sorted(slices.Values(target.EOS)), slices.Sorted(slices.Values(draft.EOS))
	if slices.Equal(a, b) {
		return nil
	}
	return fmt.Errorf("%s: the end of a text is %s in the target and %s in the draft", where(), named(target, a), named(draft, b))
}

// pieceOf is "" past the end.
func pieceOf(v Vocabulary, id int32) string {
	if int(id) >= v.Size {
		return ""
	}
	return v.Piece(id)
}

// named lists ids with their texts.
func named(v Vocabulary, ids []int32) string {
	if len(ids) == 0 {
		return "not named"
	}
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d %q", id, pieceOf(v, id))
	}
	return text
}

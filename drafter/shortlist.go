package drafter

import (
	"math"

	"quickdraft/model"
	"quickdraft/sample"
)

// shortlistRoom is how many tokens of its prompt and answer a request has on a shortlist unless options say.
const shortlistRoom = 8192

// rows turns rows of a draft's logits into the target's numbering. A draft may have another vocabulary, padding that is not
// to be proposed, or a shortlist, whose tokens alone have logits: what it lacks is never guessed, and because the
// distribution that guesses are drawn from and judged by lacks it too, the answer's distribution stays the target's
// (FR-Spec, arXiv 2502.14856, shortlists the most frequent tokens; merges of BPE are ordered by frequency, so ids nearly are).
// What is listed beside the first tokens is each request's own, so that nothing of its guesses depends on other requests.
type rows struct {
	tokens int // ids below this are proposed
	tr     *Translation
	short  *model.Shortlist
	row    []float32 // (target's Vocab) logits in the target's numbering; nil when the draft's rows are that already
	ranker sample.Ranker
}

// target is a row in the target's numbering, valid until the next call; own is the request's part of the shortlist.
func (r *rows) target(row []float32, own *model.Listing) []float32 {
	switch {
	case r.row == nil:
		return row
	case r.tr != nil:
		r.tr.scatter(r.row, row)
		return r.row
	case r.short != nil:
		for i := range r.row {
			r.row[i] = float32(math.Inf(-1))
		}
		own.Restrict(row, float32(math.Inf(-1)))
		for i, id := range r.short.IDs() {
			if int(id) < r.tokens {
				r.row[id] = row[i]
			}
		}
		return r.row
	}
	n := copy(r.row[:r.tokens], row)
	for i := range r.row[n:] {
		r.row[n+i] = float32(math.Inf(-1))
	}
	return r.row
}

// listed is a row with only the tokens that are to be proposed: id numbers its columns. It is not for drafts with a
// translation.
func (r *rows) listed(row []float32, own *model.Listing) []float32 {
	if r.short == nil {
		return row[:min(len(row), r.tokens)]
	}
	own.Restrict(row, float32(math.Inf(-1)))
	for i, id := range r.short.IDs() {
		if int(id) >= r.tokens {
			row[i] = float32(math.Inf(-1))
		}
	}
	return row
}

// id is the token of column i of a listed row.
func (r *rows) id(i int) int32 {
	if r.short != nil {
		return r.short.IDs()[i]
	}
	return int32(i)
}

// own is the draft's number of a token that it proposed.
func (r *rows) own(id int32) int32 {
	if r.tr != nil {
		return r.tr.draft[id]
	}
	return id
}

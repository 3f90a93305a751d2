package drafter

import (
	"fmt"
	"math"
)

func init() {
	register("crossvocab", Takes{MinP: true}, func(c *Config) (Drafter, error) {
		if c.Translation == nil {
			return nil, fmt.Errorf("crossvocab: no translation between the vocabularies given")
		}
		o := c.modelOptions(c.Draft)
		o.Translation = c.Translation
		return NewModel(o)
	})
}

// Text is a tokenizer as far as a translation needs it.
type Text struct {
	File    string                    // for messages
	Size    int                       // tokens
	Bytes   func(id int32) []byte     // what a token stands for
	Encode  func(text string) []int32 // without special tokens around
	Special func(id int32) bool       // tokens that stand for no text, a turn's beginning for one; nil: there are none
}

// Translation lets a model with another tokenizer draft. Tokens that both vocabularies spell with the same bytes are
// proposed; the draft's distribution is renormalised over these, and because it is the renormalised one that guesses are
// drawn from and judged by, the answer's distribution stays the target's. Other tokens of the sequence reach the draft as
// the tokens that its own tokenizer makes of their bytes.
type Translation struct {
	from   Text
	encode func(string) []int32
	draft  []int32 // (target tokens) the same token of the draft, -1: none
	shared []int32 // (draft tokens) the same token of the target, -1: none
	text   []byte
}

// encodeRun is how many committed tokens at once are encoded anew as text, rather than token by token: a prompt then
// looks to the draft like the texts it was trained on.
const encodeRun = 8

// NewTranslation matches the vocabularies. It is an error when they share no token.
func NewTranslation(target, draft Text) (*Translation, error) {
	t := &Translation{from: target, encode: draft.Encode, draft: make([]int32, target.Size), shared: make([]int32, draft.Size)}
	byBytes := make(map[string]int32, draft.Size)
	for id := int32(draft.Size) - 1; id >= 0; id-- {
		t.shared[id] = -1
		if b := draft.Bytes(id); len(b) > 0 {
			byBytes[string(b)] = id
		}
	}
	n := 0
	for id := range int32(target.Size) {
		d, ok := byBytes[string(target.Bytes(id))]
		if !ok {
			t.draft[id] = -1
			continue
		}
		t.draft[id] = d
		if t.shared[d] < 0 {
			t.shared[d] = id
			n++
		}
	}
	if n == 0 {
		return nil, fmt.Errorf("draft %s (%d tokens) and target %s (%d tokens) have no token in common", draft.File, draft.Size, target.File, target.Size)
	}
	return t, nil
}

// Shared counts the tokens that can be proposed.
func (t *Translation) Shared() (n int) {
	for _, id := range t.shared {
		if id >= 0 {
			n++
		}
	}
	return n
}

// toDraft appends what the draft reads for some of the target's tokens.
func (t *Translation) toDraft(dst, ids []int32) []int32 {
	t.text = t.text[:0]
	flush := func() {
		if len(t.text) > 0 {
			dst = append(dst, t.encode(string(t.text))...)
			t.text = t.text[:0]
		}
	}
	special := t.from.Special
	for _, id := range ids {
		whole := len(ids) < encodeRun || special != nil && special(id)
		if whole && int(id) < len(t.draft) && t.draft[id] >= 0 {
			flush()
			dst = append(dst, t.draft[id])
			continue
		}
		t.text = append(t.text, t.from.Bytes(id)...)
	}
	flush()
	return dst
}

// scatter gives the target's tokens the logits of the draft's, and the others none.
func (t *Translation) scatter(dst, row []float32) {
	for i := range dst {
		dst[i] = float32(math.Inf(-1))
	}
	for d, id := range t.shared {
		if id >= 0 && int(id) < len(dst) && d < len(row) {
			dst[id] = row[d]
		}
	}
}

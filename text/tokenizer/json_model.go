package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// jsonModel is the model of a tokenizer.json.
type jsonModel struct {
	Type         string          `json:"type"`
	Vocab        json.RawMessage `json:"vocab"`  // BPE: {piece: id}; unigram: [[piece, score]]
	Merges       json.RawMessage `json:"merges"` // ["left right"] or [[left, right]]
	UnkToken     *string         `json:"unk_token"`
	UnkID        *int64          `json:"unk_id"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	FuseUnk      bool            `json:"fuse_unk"`
	Dropout      *float64        `json:"dropout"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
}

// entry is one piece of a model's vocabulary.
type entry struct {
	piece string
	id    int64
	score float64
}

// entries reads the vocabulary.
func (m *jsonModel) entries() ([]entry, error) {
	switch m.Type {
	case "BPE", "":
		var ids map[string]int64
		if err := json.Unmarshal(m.Vocab, &ids); err != nil {
			return nil, fmt.Errorf("model.vocab: %w", err)
		}
		all := make([]entry, 0, len(ids))
		for piece, id := range ids {
			all = append(all, entry{piece: piece, id: id})
		}
		return all, nil
	case "Unigram":
		var pairs []scoredPiece
		if err := json.Unmarshal(m.Vocab, &pairs); err != nil {
			return nil, fmt.Errorf("model.vocab: %w", err)
		}
		all := make([]entry, len(pairs))
		for i, p := range pairs {
			all[i] = entry{p.piece, int64(i), p.score}
		}
		return all, nil
	}
	return nil, fmt.Errorf("model.type is %q; BPE and Unigram are supported", m.Type)
}

// scoredPiece is ["piece", score].
type scoredPiece struct {
	piece string
	score float64
}

// UnmarshalJSON reads the two values of the array.
func (p *scoredPiece) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	var number json.Number
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || json.Unmarshal(pair[0], &p.piece) != nil || json.Unmarshal(pair[1], &number) != nil || number == "" {
		return fmt.Errorf("%.60s is not [piece, score]", data)
	}
	p.score = looseFloat(string(number))
	return nil
}

// looseFloat reads a JSON number as the reference implementation does, which is not the nearest float: the digits as an
// integer, those that do not fit 64 bits ignored, divided by a power of ten. The last bit decides between segmentations of
// equal score. Numbers whose power of ten is out of range are read correctly instead.
func looseFloat(number string) float64 {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	exponent, err := strconv.Atoi(cmp.Or(power, "0"))
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, err2 := strconv.ParseUint(whole, 10, 64)
	for _, c := range fraction {
		d := uint64(c - '0')
		if digits > (math.MaxUint64-d)/10 {
			break
		}
		digits = digits*10 + d
		exponent--
	}
	if err != nil || err2 != nil || exponent < -300 || exponent > 300 {
		x, _ := strconv.ParseFloat(number, 64)
		return x
	}
	x := float64(digits)
	if exponent < 0 {
		x /= math.Pow10(-exponent)
	} else {
		x *= math.Pow10(exponent)
	}
	if number[0] == '-' {
		return -x
	}
	return x
}

// build makes the model. byteLevel says that the pre-tokenizer turns bytes into characters.
func (m *jsonModel) build(t *Tokenizer, entries []entry, byteLevel bool) error {
	if m.Dropout != nil && *m.Dropout != 0 {
		return fmt.Errorf("model.dropout is %v; only 0 gives the same ids each time", *m.Dropout)
	}
	if m.Prefix != nil && *m.Prefix != "" || m.Suffix != nil && *m.Suffix != "" {
		return errors.New("model.continuing_subword_prefix and end_of_word_suffix are not supported")
	}
	if m.Type == "Unigram" {
		return m.unigram(t, entries, byteLevel)
	}
	merges, err := m.merges()
	if err != nil {
		return err
	}
	b := newBPE(&t.vocab, len(merges), byteLevel)
	b.whole, b.fallback, b.fuse = m.IgnoreMerges, m.ByteFallback, m.FuseUnk
	if m.UnkToken != nil {
		id, ok := t.vocab.index[*m.UnkToken]
		if !ok {
			return fmt.Errorf("model.unk_token %q is not in the vocabulary", *m.UnkToken)
		}
		b.unknown = id
	}
	for rank, pair := range merges {
		if err := addNamedMerge(b, pair[0], pair[1], rank); err != nil {
			return fmt.Errorf("model.merges[%d]: %w", rank, err)
		}
	}
	b.findCuts()
	t.model = b
	return nil
}

// merges reads the merges, which older files have as "left right" and newer ones as [left, right].
func (m *jsonModel) merges() ([][]string, error) {
	if len(m.Merges) == 0 || string(m.Merges) == "null" {
		return nil, nil
	}
	var lines []string
	var pairs [][]string
	if json.Unmarshal(m.Merges, &lines) == nil {
		pairs = make([][]string, len(lines))
		for i, line := range lines {
			pairs[i] = strings.Split(line, " ")
		}
	} else if err := json.Unmarshal(m.Merges, &pairs); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("model.merges[%d] has %d parts (%.60q); two are right", i, len(p), p)
		}
	}
	return pairs, nil
}

func (m *jsonModel) unigram(t *Tokenizer, entries []entry, byteLevel bool) error {
	if byteLevel {
		return errors.New("a Unigram model behind a ByteLevel pre-tokenizer is not supported")
	}
	if m.UnkID == nil || *m.UnkID < 0 || *m.UnkID >= int64(len(entries)) {
		return fmt.Errorf("model.unk_id must be a piece: 0 to %d", len(entries)-1)
	}
	scores := make([]float64, len(t.vocab.pieces))
	for _, e := range entries {
		scores[e.id] = e.score
	}
	u, err := newUnigram(&t.vocab, scores, int32(*m.UnkID))
	if err != nil {
		return err
	}
	if m.ByteFallback {
		u.bytes = newBPE(&t.vocab, 0, false)
	}
	u.cache = true
	t.model = u
	return nil
}

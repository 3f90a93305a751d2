package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Kinds of models in a SentencePiece file.
const (
	spmUnigram = 1
	spmBPE     = 2
)

// spmModel is what is used of a SentencePiece file, the ModelProto of sentencepiece_model.proto. The types of pieces have
// the numbers that GGUF gives them.
type spmModel struct {
	pieces []string
	scores []float32
	types  []int32

	kind               int32 // unigram where the file does not say
	unk, bos, eos, pad int32 // -1: none
	byteFallback       bool
	suffix             bool // spaces belong to the word before
	charsmap           []byte
	prefix             bool // a space goes in front of the text
	squeeze            bool // runs of spaces become one
	escape             bool // spaces are written as ▁
}

// parseSPM reads a SentencePiece file.
func parseSPM(data []byte) (*spmModel, error) {
	m := &spmModel{kind: spmUnigram, bos: 1, eos: 2, pad: -1, prefix: true, squeeze: true, escape: true}
	err := eachField(data, func(f protoField) error {
		if f.number < 1 || f.number > 3 {
			return nil
		}
		part, err := f.bytes()
		if err != nil {
			return err
		}
		switch f.number {
		case 1:
			return m.piece(part)
		case 2:
			return eachField(part, m.trainer)
		}
		return eachField(part, m.normalizer)
	})
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// piece adds a piece: its text (1), score (2) and type (3).
func (m *spmModel) piece(message []byte) error {
	if len(m.pieces) == maxVocab {
		return fmt.Errorf("more than %d pieces", maxVocab)
	}
	text, score, kind := "", float32(0), int32(ggufNormal)
	err := eachField(message, func(f protoField) (err error) {
		var b []byte
		switch f.number {
		case 1:
			b, err = f.bytes()
			text = string(b)
		case 2:
			score, err = f.float()
		case 3:
			kind, err = f.int32()
		}
		return err
	})
	switch {
	case err != nil:
	case !utf8.ValidString(text):
		err = fmt.Errorf("%.40q is not UTF-8", text)
	case kind < ggufNormal || kind > ggufByte:
		err = fmt.Errorf("type %d, want %d to %d", kind, ggufNormal, ggufByte)
	case score != score || math.IsInf(float64(score), 0):
		err = fmt.Errorf("score %v, want a finite number", score)
	}
	if err != nil {
		return fmt.Errorf("piece %d: %w", len(m.pieces), err)
	}
	m.pieces, m.scores, m.types = append(m.pieces, text), append(m.scores, score), append(m.types, kind)
	return nil
}

// trainer reads a field of the TrainerSpec.
func (m *spmModel) trainer(f protoField) (err error) {
	switch f.number {
	case 3:
		m.kind, err = f.int32()
	case 24:
		m.suffix, err = f.bool()
	case 35:
		m.byteFallback, err = f.bool()
	case 40:
		m.unk, err = f.int32()
	case 41:
		m.bos, err = f.int32()
	case 42:
		m.eos, err = f.int32()
	case 43:
		m.pad, err = f.int32()
	}
	return err
}

// normalizer reads a field of the NormalizerSpec.
func (m *spmModel) normalizer(f protoField) (err error) {
	switch f.number {
	case 2:
		m.charsmap, err = f.bytes()
	case 3:
		m.prefix, err = f.bool()
	case 4:
		m.squeeze, err = f.bool()
	case 5:
		m.escape, err = f.bool()
	}
	return err
}

// check finds what the models here cannot do.
func (m *spmModel) check() error {
	switch {
	case len(m.pieces) == 0:
		return errors.New("no pieces: not a SentencePiece model")
	case m.kind != spmUnigram && m.kind != spmBPE:
		return fmt.Errorf("trainer_spec.model_type is %d, want 1 (unigram) or 2 (BPE)", m.kind)
	case m.suffix:
		return errors.New("trainer_spec.treat_whitespace_as_suffix is true, which is not supported")
	case !m.escape:
		return errors.New("normalizer_spec.escape_whitespaces is false, which is not supported")
	case m.unk < 0 || int(m.unk) >= len(m.pieces):
		return fmt.Errorf("trainer_spec.unk_id is %d, want 0 to %d", m.unk, len(m.pieces)-1)
	}
	for _, id := range []*int32{&m.bos, &m.eos, &m.pad} {
		if int(*id) >= len(m.pieces) || *id < 0 {
			*id = -1
		}
	}
	return nil
}

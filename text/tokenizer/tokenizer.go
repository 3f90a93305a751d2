// Package tokenizer turns text into token ids and back: byte-level BPE (Llama 3, Qwen, SmolLM2, Mistral Nemo, GPT-2),
// SentencePiece-style BPE with byte fallback (Llama 2, Mistral, Phi-3, Gemma) and unigram (T5). A Tokenizer is built from
// GGUF metadata (FromGGUF), from a tokenizer.json (FromJSON), or from a folder with one or with a SentencePiece file (FromDir).
//
// Text passes through these stages, each named as tokenizer.json names them:
//
//	added tokens found in the text as given -> normalizer -> added tokens found in normalised text
//	-> pre-tokenizer (words) -> model (ids of one word) -> post-processor (BOS, EOS)
package tokenizer

import (
	"strings"
	"sync"
)

// Tokenizer converts between text and ids. All methods may be called from several goroutines at once.
type Tokenizer struct {
	vocab  vocab
	raw    matcher // added tokens matched in the text as given
	normed matcher // added tokens matched after normalisation
	norm   []normalizer
	pre    preTokenizer
	model  model
	dec    decoder

	longestOnce sync.Once
	longest     int // bytes of the longest piece, see LeastTokens

	prefix, suffix []int32 // what AddSpecial puts around the ids
	bos, eos       int32   // -1 when the model names none
	eog            []int32

	mu   sync.Mutex
	free []*scratch // idle working memory, with its cache of words
}

// model turns one word of the pre-tokenizer into ids.
type model interface {
	// encode appends the ids of word to s.ids.
	encode(s *scratch, word string)
}

// EncodeOptions says how Encode treats special tokens. The zero value encodes text a user typed.
type EncodeOptions struct {
	AddSpecial   bool // put BOS and EOS where the model wants them
	ParseSpecial bool // recognise special tokens such as <|im_end|> in the text; added tokens that are not special always are
}

// Encode returns the ids of text. Bytes that are not valid UTF-8 are kept where the vocabulary has single-byte tokens.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	return t.encode(text, o, false)
}

// LeastTokens returns how few tokens a text of that many bytes can be, from the longest piece of the vocabulary: what is
// too long for a context for certain need not be encoded to be refused.
func (t *Tokenizer) LeastTokens(nBytes int) int {
	t.longestOnce.Do(func() {
		t.longest = 1
		for _, p := range t.vocab.pieces {
			t.longest = max(t.longest, len(p))
		}
	})
	return nBytes / t.longest
}

// EncodePrompt returns the ids of a rendered prompt: special tokens are recognised but for those that GuardSpecial marked,
// and BOS comes first exactly once if the model wants one, whether or not the text starts with it.
func (t *Tokenizer) EncodePrompt(text string) []int32 {
	ids := t.encode(text, EncodeOptions{ParseSpecial: true}, true)
	if len(t.prefix) == 0 || t.bos < 0 || len(ids) > 0 && ids[0] == t.bos {
		return ids
	}
	return append(append(make([]int32, 0, len(ids)+len(t.prefix)), t.prefix...), ids...)
}

// encode returns the ids of text. Marks of GuardSpecial are taken out of it if guarded.
func (t *Tokenizer) encode(text string, o EncodeOptions, guarded bool) []int32 {
	s := t.acquire()
	defer t.release(s)
	if o.AddSpecial {
		s.ids = append(s.ids, t.prefix...)
	}
	emit := func(word string) { t.model.encode(s, word) }
	t.raw.split(text, o.ParseSpecial, func(part string, start int, id int32) {
		if id >= 0 {
			s.ids = append(s.ids, id)
			return
		}
		for _, n := range t.norm {
			part = n(part)
		}
		t.normed.split(part, o.ParseSpecial, func(part string, inner int, id int32) {
			switch {
			case id >= 0:
				s.ids = append(s.ids, id)
			case guarded:
				t.pre.run(strings.ReplaceAll(part, guard, ""), start+inner == 0, emit)
			default:
				t.pre.run(part, start+inner == 0, emit)
			}
		})
	})
	if o.AddSpecial {
		s.ids = append(s.ids, t.suffix...)
	}
	return append(make([]int32, 0, len(s.ids)), s.ids...)
}

// VocabSize returns the number of ids: valid ids are 0 to VocabSize()-1.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.pieces) }

// BOS returns the id that starts a text, -1 when the model names none. Encode adds it only if the model wants it.
func (t *Tokenizer) BOS() int32 { return t.bos }

// AddsBOS reports whether the model wants its BOS in front of a prompt.
func (t *Tokenizer) AddsBOS() bool { return t.bos >= 0 && len(t.prefix) > 0 && t.prefix[0] == t.bos }

// EOS returns the id that ends a text, -1 when the model names none.
func (t *Tokenizer) EOS() int32 { return t.eos }

// EOGs returns every id that ends an answer, ascending: EOS and the model's end-of-turn and end-of-message tokens.
func (t *Tokenizer) EOGs() []int32 { return append([]int32(nil), t.eog...) }

// IsEOG reports whether id ends an answer.
func (t *Tokenizer) IsEOG(id int32) bool {
	for _, e := range t.eog {
		if e == id {
			return true
		}
	}
	return false
}

// Piece returns the vocabulary's own spelling of an id ("Ġhello", "▁hello", "<0x0A>"); "" for an id out of range.
func (t *Tokenizer) Piece(id int32) string {
	if !t.vocab.has(id) {
		return ""
	}
	return t.vocab.pieces[id]
}

// ID returns the id of a piece in the vocabulary's own spelling.
func (t *Tokenizer) ID(piece string) (int32, bool) {
	id, ok := t.vocab.index[piece]
	return id, ok
}

// IsSpecial reports whether id is a special token, which Decode leaves out when asked to.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return t.vocab.has(id) && t.vocab.kinds[id]&kindSpecial != 0
}

// Bytes returns the bytes that an id stands for in the middle of a text; nil for an id out of range. The caller must not
// change them.
func (t *Tokenizer) Bytes(id int32) []byte { return t.vocab.bytesOf(id) }

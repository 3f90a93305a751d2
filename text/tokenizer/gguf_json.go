package tokenizer

import (
	"encoding/json"
	"fmt"

	"quickdraft/modelfile/gguf"
)

// hfKey holds a whole tokenizer.json. It decides where tokenizer.ggml.model is "t5": what Hugging Face's tokenizers make of
// spaces and of marks before a Unigram model is not what the SentencePiece library makes of them, and the other keys can only
// say the latter.
const hfKey = "tokenizer.huggingface.json"

// fromHF builds the tokenizer of hfKey, whose pieces must be the file's; what is beyond them no text makes.
func (g *ggufReader) fromHF(t *Tokenizer, data string) error {
	var file jsonFile
	if err := json.Unmarshal([]byte(data), &file); err != nil {
		return g.f.KeyError(hfKey, "is not a tokenizer.json: %v", err)
	}
	if err := file.build(t); err != nil {
		return g.f.KeyError(hfKey, "cannot be used: %v", err)
	}
	v := &t.vocab
	if len(v.pieces) > len(g.tokens) {
		return g.f.KeyError(hfKey, "has %d tokens, want at most the %d of tokenizer.ggml.tokens", len(v.pieces), len(g.tokens))
	}
	for id, piece := range g.tokens {
		if id >= len(v.pieces) {
			v.pieces, v.kinds = append(v.pieces, piece), append(v.kinds, 0)
		} else if v.pieces[id] != piece && v.kinds[id] != 0 {
			return g.f.KeyError(hfKey, "has %.40q as token %d, want %.40q of tokenizer.ggml.tokens", v.pieces[id], id, piece)
		}
	}
	return nil
}

// charsmap reads the table of replacements, nil where there is none.
func (g *ggufReader) charsmap() (*charsmap, error) {
	const key = "tokenizer.ggml.precompiled_charsmap"
	v, ok := g.f.Value(key)
	if !ok || v.Kind() == gguf.KindArray && v.Len() == 0 {
		return nil, nil
	}
	if v.Kind() != gguf.KindArray || v.Elem() != gguf.KindUint8 && v.Elem() != gguf.KindInt8 {
		return nil, g.f.KeyError(key, "is of kind %s, want an array of bytes", v.Kind())
	}
	data := make([]byte, v.Len())
	for i, x := range g.f.Ints(key) {
		data[i] = byte(x)
	}
	c, err := newCharsmap(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return c, nil
}

package tokenizer

import "strings"

// unigram adds the keys of a Unigram model: those of SentencePiece, which other engines read, and where these cannot say what
// the tokenizer does, the tokenizer.json itself.
func (e *exporter) unigram(t *Tokenizer, data []byte, rows int) error {
	entries, err := e.file.Model.entries()
	if err != nil {
		return err
	}
	tokens, types := e.tokens(t, rows, false)
	scores := make([]float32, rows)
	for _, p := range entries {
		scores[p.id] = float32(p.score)
		if _, isByte := byteToken(p.piece); isByte && e.file.Model.ByteFallback {
			types[p.id] = ggufByte
		}
	}
	unknown := *e.file.Model.UnkID // the tokenizer was built with it
	types[unknown] = ggufUnknown
	e.set("model", "t5")
	e.set("pre", "default")
	e.set("tokens", tokens)
	e.set("token_type", types)
	e.set("scores", scores)
	e.set("unknown_token_id", uint32(unknown))
	e.set("add_space_prefix", e.spaceInFront())
	e.set("remove_extra_whitespaces", e.squeezes())
	for _, c := range e.file.Normalizer.flatten() {
		if c.Type == "Precompiled" && len(c.Charsmap) > 0 {
			e.set("precompiled_charsmap", c.Charsmap)
		}
	}
	if t.eos >= 0 {
		e.set("eos_token_id", uint32(t.eos))
	} else if len(t.suffix) == 1 {
		e.set("eos_token_id", uint32(t.suffix[0]))
	}
	e.ends(t)
	if e.try(t) == nil {
		return nil
	}
	e.keys = append(e.keys, Key{hfKey, string(data)})
	return e.try(t)
}

// squeezes reports whether runs of spaces become one.
func (e *exporter) squeezes() bool {
	for _, c := range append(e.file.Normalizer.flatten(), e.file.PreTokenizer.flatten()...) {
		regex := c.Pattern.Regex
		if c.Type == "WhitespaceSplit" || c.Type == "Replace" && regex != nil && strings.HasPrefix(*regex, " {2,}") {
			return true
		}
	}
	return false
}

package gguf

const (
	tokensKey    = "tokenizer.ggml.tokens"
	embeddingKey = "token_embd.weight"
)

// idKeys are the token ids that the engine feeds to the model or compares with what comes out. Others (padding, unknown)
// are -1 in real files and nobody looks them up without a check.
var idKeys = []string{
	"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
	"tokenizer.ggml.eom_token_id",
}

// checkVocabulary compares the tokens with the embedding rows: fewer tokens than rows is padding, more would make the
// embedding read past its end. It does nothing for what the file does not have.
func (f *File) checkVocabulary() error {
	tokens, ok := f.meta[tokensKey]
	if ok && (tokens.kind != KindArray || tokens.elem != KindString) {
		return f.KeyError(tokensKey, "is not an array of strings")
	}
	size := tokens.n
	if t, ok := f.byName[embeddingKey]; ok {
		if size > t.Rows() {
			return f.KeyError(tokensKey, "holds %d tokens, more than the %d rows of tensor %q", size, t.Rows(), embeddingKey)
		}
		if size == 0 {
			size = t.Rows()
		}
	}
	if size == 0 {
		return nil
	}
	for _, key := range idKeys {
		v, ok := f.meta[key]
		if !ok {
			continue
		}
		if id, ok := v.Uint(); !ok || id >= uint64(size) {
			return f.KeyError(key, "is not a token of the vocabulary, want 0 to %d", size-1)
		}
	}
	return nil
}

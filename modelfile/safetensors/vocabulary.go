package safetensors

import "strings"

// idKeys are the token ids that the engine feeds to the model or compares with what comes out.
var idKeys = []string{"bos_token_id", "eos_token_id"}

// checkVocabulary compares vocab_size with the embedding's rows (fewer is padding, more would read past its end), and the
// ids of special tokens with both. It does nothing for what the checkpoint does not have.
func (c *Checkpoint) checkVocabulary() error {
	config := c.config
	// Models of several parts keep their language model's fields in an object of their own.
	if text, ok, _ := config.Object("text_config"); ok {
		if _, has := config.Get("vocab_size"); !has {
			config = text
		}
	}
	size, ok, err := config.Int("vocab_size")
	if err != nil {
		return err
	}
	if ok && size < 1 {
		return config.Errorf("vocab_size", "is not a number of tokens, want at least 1")
	}
	if t := c.embedding(); t != nil {
		rows := int64(t.Rows())
		if size > rows {
			return config.Errorf("vocab_size", "tokens are more than the rows of tensor %s: %d", quote(t.Name), rows)
		}
		if !ok {
			size = rows
		}
	}
	if size == 0 {
		return nil
	}
	for _, o := range []*Object{config, c.generation} {
		if err := checkIDs(o, size); err != nil {
			return err
		}
	}
	return nil
}

func checkIDs(o *Object, size int64) error {
	if o == nil {
		return nil
	}
	for _, key := range idKeys {
		ids, _, err := o.Ints(key)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if id < 0 || id >= size {
				return o.Errorf(key, "names token %d, which is not in the vocabulary, want 0 to %d", id, size-1)
			}
		}
	}
	return nil
}

// embedding finds the token embedding under the names that checkpoints give it.
func (c *Checkpoint) embedding() *Tensor {
	for _, t := range c.tensors {
		if t.Name == "shared.weight" || strings.HasSuffix(t.Name, "embed_tokens.weight") {
			return t
		}
	}
	return nil
}

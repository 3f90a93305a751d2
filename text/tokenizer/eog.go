package tokenizer

import "slices"

// endPieces are the tokens by which models of various families end a turn or a message.
var endPieces = []string{
	"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<eos>", "<|endoftext|>",
	"<|end_of_text|>", "<EOT>", "<|eot|>", "<end_of_utterance>",
}

// setEOG fills t.eog from EOS, the ids that the model files name, and the names above, which count for added tokens only.
func (t *Tokenizer) setEOG(named ...int32) {
	ids := append([]int32(nil), named...)
	if t.eos >= 0 {
		ids = append(ids, t.eos)
	}
	for _, p := range endPieces {
		if p == "<|end|>" && t.hasAdded("<|return|>") && t.hasAdded("<|call|>") {
			continue // here it ends a message of several, not the answer
		}
		if t.hasAdded(p) {
			ids = append(ids, t.vocab.index[p])
		}
	}
	slices.Sort(ids)
	t.eog = slices.Compact(ids)
}

func (t *Tokenizer) hasAdded(piece string) bool {
	id, ok := t.vocab.index[piece]
	return ok && t.vocab.kinds[id]&kindAdded != 0
}

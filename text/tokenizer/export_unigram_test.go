package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// unigramJSON is a small tokenizer.json of a Unigram model, changed by change.
func unigramJSON(t *testing.T, bytes bool, change func(file map[string]any)) (tokenizer, config []byte) {
	t.Helper()
	vocab := []any{[]any{"<pad>", 0.0}, []any{"</s>", 0.0}, []any{"<unk>", 0.0}}
	for i, piece := range []string{"▁", "▁the", "▁he", "l", "o", "lo", "▁hello", "s", "e", "é", "h", "t", "▁a", "b", "▁user"} {
		vocab = append(vocab, []any{piece, -1.5 - float64(i)/3})
	}
	for b := 0; bytes && b < 256; b++ {
		vocab = append(vocab, []any{fmt.Sprintf("<0x%02X>", b), -20.0})
	}
	n := len(vocab)
	added := func(id int, text string, special bool) map[string]any {
		return map[string]any{"id": id, "content": text, "special": special, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false}
	}
	file := map[string]any{
		"added_tokens": []any{added(0, "<pad>", true), added(1, "</s>", true), added(2, "<unk>", true), added(n, "<extra_id_0>", true), added(n+1, "[user defined]", false)},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "WhitespaceSplit"}, map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
		}},
		"decoder": map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
		"model":   map[string]any{"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": bytes},
		"post_processor": map[string]any{
			"type": "TemplateProcessing", "single": []any{map[string]any{"Sequence": map[string]any{"id": "A"}}, map[string]any{"SpecialToken": map[string]any{"id": "</s>"}}},
			"special_tokens": map[string]any{"</s>": map[string]any{"id": "</s>", "ids": []int{1}}},
		},
	}
	if change != nil {
		change(file)
	}
	data, err := json.Marshal(file)
	require.NoError(t, err)
	return data, []byte(`{"eos_token": "</s>"}`)
}

// TestExportUnigram writes small Unigram tokenizers of all kinds as GGUF's keys and compares what they make of texts.
func TestExportUnigram(t *testing.T) {
	texts := append(slices.Clone(probes), "hello the hellos", "  hello   a\tb \n", "é e\u0301 漢字 🙂", "hello[user defined]lo", "a <extra_id_0> b</s>", "\u3000hello\u00a0", "<0x41>")
	for name, c := range map[string]struct {
		bytes  bool
		change func(file map[string]any)
	}{
		"plain":         {},
		"byte fallback": {bytes: true},
		"no space in front": {change: func(f map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}
			f["decoder"] = f["pre_tokenizer"]
		}},
		"spaces stay": {change: func(f map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}
		}},
		"composed": {bytes: true, change: func(f map[string]any) { f["normalizer"] = map[string]any{"type": "NFKC"} }},
		"no end":   {change: func(f map[string]any) { delete(f, "post_processor") }},
	} {
		t.Run(name, func(t *testing.T) {
			data, config := unigramJSON(t, c.bytes, c.change)
			tok, err := FromJSON(data, config)
			require.NoError(t, err)
			rows := tok.VocabSize() + 9
			keys, err := export(tok, data, rows)
			require.NoError(t, err)
			got := readKeys(t, "t5", keys)
			require.Equal(t, rows, got.VocabSize())
			require.Equal(t, tok.EOS(), got.EOS())
			require.Equal(t, tok.EOGs(), got.EOGs())
			for _, text := range texts {
				for _, o := range []EncodeOptions{{}, {AddSpecial: true}, {ParseSpecial: true}, {AddSpecial: true, ParseSpecial: true}} {
					want := tok.Encode(text, o)
					require.Equal(t, want, got.Encode(text, o), "%q %+v", text, o)
					require.Equal(t, tok.Decode(want, false), got.Decode(want, false), "%q", text)
				}
			}
		})
	}
}

// TestForeignJSONInGGUF wants a tokenizer.json in a file to have the pieces that the file has.
func TestForeignJSONInGGUF(t *testing.T) {
	data, config := unigramJSON(t, false, nil)
	tok, err := FromJSON(data, config)
	require.NoError(t, err)
	keys, err := export(tok, data, 0)
	require.NoError(t, err)
	with := func(json string) error {
		_, err := fromKeys("tokenizer", append(slices.Clone(keys), Key{hfKey, json}))
		return err
	}
	require.NoError(t, with(string(data)))
	other, _ := unigramJSON(t, false, func(f map[string]any) {
		f["model"].(map[string]any)["vocab"].([]any)[5] = []any{"▁she", -2.0}
	})
	require.ErrorContains(t, with(string(other)), `has "▁she" as token 5, want "▁he"`)
	larger, _ := unigramJSON(t, true, nil)
	require.ErrorContains(t, with(string(larger)), "want at most the")
	require.ErrorContains(t, with("{"), "is not a tokenizer.json")
	require.ErrorContains(t, with(`{"model": {"type": "WordPiece"}}`), "cannot be used")
}

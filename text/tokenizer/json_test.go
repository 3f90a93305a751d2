package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/invariants"
)

// smallUnigram is a tokenizer.json of a unigram model.
func smallUnigram(t testing.TB) []byte {
	t.Helper()
	return marshal(t, map[string]any{
		"normalizer": map[string]any{"type": "Sequence", "normalizers": []any{
			map[string]any{"type": "NFKC"},
			map[string]any{"type": "Strip", "strip_left": false, "strip_right": true},
			map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": " {2,}"}, "content": "▁"},
		}},
		"pre_tokenizer": map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
		"post_processor": map[string]any{
			"type":           "TemplateProcessing",
			"single":         []any{map[string]any{"Sequence": map[string]any{"id": "A"}}, map[string]any{"SpecialToken": map[string]any{"id": "</s>"}}},
			"special_tokens": map[string]any{"</s>": map[string]any{"ids": []int{0}}},
		},
		"decoder": map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
		"model": map[string]any{"type": "Unigram", "unk_id": 1, "vocab": []any{
			[]any{"</s>", 0}, []any{"<unk>", 0}, []any{"▁", -2}, []any{"▁he", -3}, []any{"llo", -4.5}, []any{"l", -3}, []any{"lo", -3.5}, []any{"fi", -5},
		}},
		"added_tokens": []any{map[string]any{"id": 0, "content": "</s>", "special": true}},
	})
}

func TestUnigram(t *testing.T) {
	tok, err := FromJSON(smallUnigram(t), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"▁he", "llo"}, pieces(tok, tok.Encode("hello  ", EncodeOptions{})))
	require.Equal(t, []string{"▁", "fi", "<unk>", "▁", "l", "</s>"}, pieces(tok, tok.Encode("ﬁzzy   l", EncodeOptions{AddSpecial: true})))
	require.Equal(t, "hello l", tok.Decode(tok.Encode("hello  l", EncodeOptions{}), false))
	require.Equal(t, int32(0), tok.EOS())
}

// TestRefusals changes one thing of a good file and demands an error that names it.
func TestRefusals(t *testing.T) {
	bpe, uni := string(smallBPE(t)), string(smallUnigram(t))
	for _, c := range []struct{ name, text, old, new, want string }{
		{"normalizer", uni, `"NFKC"`, `"BertNormalizer"`, `normalizer "BertNormalizer"`},
		{"replace", uni, ` {2,}`, `\\s+`, `regex "\\s+"`},
		{"pre-tokenizer", bpe, `"type":"ByteLevel"`, `"type":"Punctuation"`, `"Punctuation" is not supported`},
		{"split regex", bpe, `{"add_prefix_space":false,"type":"ByteLevel"}`, `{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated"}`, `"\\w+"`},
		{"after bytes", bpe, `{"add_prefix_space":false,"type":"ByteLevel"}`, `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`, `"Digits" after ByteLevel`},
		{"long content", uni, `"content":"▁"`, `"content":"` + strings.Repeat("x", 257) + `"`, "257 bytes"},
		{"long decoder content", bpe, `"decoder":{"type":"ByteLevel"}`, `"decoder":{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("x", 257) + `"}`, "257 bytes"},
		{"decoder", uni, `"decoder":{`, `"decoder":{"x":1,"type":"WordPiece"},"decoder2":{`, `decoder "WordPiece"`},
		{"no decoder", uni, `"decoder":{`, `"decoder2":{`, "decoder is missing"},
		{"post-processor", uni, `"TemplateProcessing"`, `"RobertaProcessing"`, `post_processor "RobertaProcessing"`},
		{"template id", uni, `"ids":[0]`, `"ids":[8]`, "id 8"},
		{"model", bpe, `"type":"BPE"`, `"type":"WordPiece"`, `"WordPiece"`},
		{"dropout", bpe, `"type":"BPE"`, `"type":"BPE","dropout":0.5`, "dropout is 0.5"},
		{"affix", bpe, `"type":"BPE"`, `"type":"BPE","end_of_word_suffix":"</w>"`, "end_of_word_suffix"},
		{"unk", bpe, `"type":"BPE"`, `"type":"BPE","unk_token":"nope"`, `"nope"`},
		{"unk id", uni, `"unk_id":1`, `"unk_id":8`, "0 to 7"},
		{"no unk id", uni, `"unk_id":1`, `"x":1`, "unk_id"},
		{"score", uni, `"▁he",-3`, `"▁he","x"`, "[piece, score]"},
		{"short entry", uni, `["▁he",-3]`, `["▁he"]`, "[piece, score]"},
		{"merge parts", bpe, `"h e"`, `"h e l"`, "model.merges[0] has 3 parts"},
		{"merge pieces", bpe, `"h e"`, `"h z"`, `"h" and "z"`},
		{"merge type", bpe, `"h e"`, `7`, "model.merges"},
		{"huge id", bpe, `"Ġhello":260`, `"Ġhello":2000000000`, `id of "Ġhello" is 2000000000`},
		{"negative id", bpe, `"Ġhello":260`, `"Ġhello":-1`, "-1"},
		{"fraction", bpe, `"Ġhello":260`, `"Ġhello":1.5`, "model.vocab"},
		{"same id", bpe, `"Ġhello":260`, `"Ġhello":0`, "same id 0"},
		{"added id", bpe, `"id":262`, `"id":4000000000`, "4000000000"},
		{"added taken", bpe, `"id":262`, `"id":5`, "id 5"},
		{"added long", bpe, `"<think>"`, `"` + strings.Repeat("a", maxAddedBytes+1) + `"`, "1025 bytes"},
		{"vocab type", bpe, `"vocab":{`, `"vocab":[],"v":{`, "model.vocab"},
		{"depth", bpe, `"post_processor":null`, `"post_processor":` + strings.Repeat(`{"type":"Sequence","processors":[`, 20000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Contains(t, c.text, c.old)
			start := invariants.CPUTime()
			tok, err := FromJSON([]byte(strings.Replace(c.text, c.old, c.new, 1)), nil)
			require.Error(t, err)
			require.Nil(t, tok)
			require.ErrorContains(t, err, c.want)
			require.True(t, invariants.Within(invariants.CPUTime()-start, 5*time.Second))
		})
	}
}

func TestTruncatedJSON(t *testing.T) {
	for _, data := range [][]byte{smallBPE(t), smallUnigram(t)} {
		for n := range data {
			_, err := FromJSON(data[:n], nil)
			require.Error(t, err, "first %d bytes", n)
		}
	}
}

func TestFromDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	_, err := FromDir(dir)
	require.ErrorContains(t, err, "tokenizer.json is missing")
	write("tokenizer.json", string(smallBPE(t)))
	write("tokenizer_config.json", `{"bos_token":null,"eos_token":{"content":"Ġhello"}}`)
	write("generation_config.json", `{"eos_token_id":[7,262]}`)
	write("config.json", `{"eos_token_id":9}`)
	tok, err := FromDir(dir)
	require.NoError(t, err)
	hello, _ := tok.ID("Ġhello")
	require.Equal(t, hello, tok.EOS())
	require.Equal(t, int32(-1), tok.BOS())
	require.Equal(t, []int32{7, 9, hello, 262}, tok.EOGs())
	write("config.json", `{"eos_token_id":"x"}`)
	_, err = FromDir(dir)
	require.ErrorContains(t, err, "eos_token_id")
	write("tokenizer_config.json", `{"eos_token":5}`)
	_, err = FromDir(dir)
	require.ErrorContains(t, err, "eos_token")
}

func TestLooseFloat(t *testing.T) {
	for number, want := range map[string]float64{
		"0": 0, "-2": -2, "1e3": 1000, "-0.5": -0.5, "2.5E-3": 0.0025,
		"-9.358983039855957": -9.358983039855955, // not the nearest float
		"1e-400":             0,
	} {
		require.Equal(t, want, looseFloat(number), number)
	}
}

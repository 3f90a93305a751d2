package tokenizer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
)

// ggufKinds says how each tokenizer of the conformance data is written to a GGUF file.
var ggufKinds = map[string]struct {
	model, pre, arch string
	addBOS, addEOS   bool
	prefix           bool // a space goes in front of the text
	flat             bool // all scores are equal
}{
	"llama2":       {model: "llama", pre: "default", arch: "llama", prefix: true},
	"mistral_v1":   {model: "llama", pre: "default", arch: "llama", prefix: true, addBOS: true},
	"mistral_v3":   {model: "llama", pre: "default", arch: "llama", prefix: true},
	"phi3":         {model: "llama", pre: "default", arch: "phi3", prefix: true},
	"gemma2":       {model: "llama", pre: "default", arch: "gemma2", addBOS: true},
	"gemma3":       {model: "llama", pre: "default", arch: "gemma3", addBOS: true, flat: true},
	"llama3":       {model: "gpt2", pre: "llama-bpe", arch: "llama"},
	"llama3_2":     {model: "gpt2", pre: "llama-bpe", arch: "llama", addBOS: true},
	"mistral_nemo": {model: "gpt2", pre: "tekken", arch: "llama", addBOS: true},
	"qwen2_5":      {model: "gpt2", pre: "qwen2", arch: "qwen2"},
	"qwen3":        {model: "gpt2", pre: "qwen2", arch: "qwen3"},
	"smollm2":      {model: "gpt2", pre: "smollm", arch: "llama"},
	"t5":           {model: "t5", pre: "default", arch: "t5", prefix: true, addEOS: true},
}

// asGGUF writes a tokenizer.json as the metadata of a GGUF file, in the way of the usual converters.
func asGGUF(t testing.TB, name string) *gguf.File {
	t.Helper()
	data, _ := goldenJSON(t, name)
	var file jsonFile
	require.NoError(t, json.Unmarshal(data, &file))
	entries, err := file.Model.entries()
	require.NoError(t, err)
	tok := &Tokenizer{}
	added, err := file.vocabulary(tok, entries)
	require.NoError(t, err)

	k := ggufKinds[name]
	n := len(tok.vocab.pieces)
	types, scores := make([]int32, n), make([]float32, n)
	tokens := append([]string(nil), tok.vocab.pieces...)
	for i := range types {
		types[i] = ggufNormal
		if _, ok := byteToken(tokens[i]); ok && k.model == "llama" {
			types[i] = ggufByte
		}
	}
	for _, e := range entries {
		if k.model == "t5" {
			scores[e.id] = float32(e.score)
		}
	}
	for _, a := range added {
		types[a.id] = ggufUser
		if a.special {
			types[a.id] = ggufControl
		}
		if k.model == "llama" {
			tokens[a.id] = strings.ReplaceAll(a.text, spaceMark, " ")
		}
	}
	merges, err := file.Model.merges()
	require.NoError(t, err)
	for rank, m := range merges {
		if id := tok.vocab.index[m[0]+m[1]]; !k.flat && scores[id] == 0 {
			scores[id] = -1 - float32(rank)
		}
	}
	return writeGGUF(t, name, tokens, types, scores, merges, file.charsmap())
}

// charsmap returns the table of a Precompiled normalizer, nil without one.
func (f *jsonFile) charsmap() []byte {
	if f.Normalizer == nil {
		return nil
	}
	for _, c := range append(f.Normalizer.Normalizers, *f.Normalizer) {
		if c.Type == "Precompiled" {
			return c.Charsmap
		}
	}
	return nil
}

func writeGGUF(t testing.TB, name string, tokens []string, types []int32, scores []float32, merges [][]string, charsmap []byte) *gguf.File {
	t.Helper()
	k := ggufKinds[name]
	w := gguf.NewWriter()
	w.Set("general.architecture", k.arch)
	w.Set("tokenizer.ggml.model", k.model)
	w.Set("tokenizer.ggml.pre", k.pre)
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.token_type", types)
	w.Set("tokenizer.ggml.add_bos_token", k.addBOS)
	w.Set("tokenizer.ggml.add_eos_token", k.addEOS)
	w.Set("tokenizer.ggml.add_space_prefix", k.prefix)
	ids := map[string]uint32{}
	for i, s := range tokens {
		ids[s] = uint32(i)
	}
	for key, names := range map[string][]string{
		"bos": {"<s>", "<bos>", "<|begin_of_text|>"}, "eos": {"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"}, "unknown": {"<unk>"},
	} {
		for _, s := range names {
			if id, ok := ids[s]; ok {
				w.Set("tokenizer.ggml."+key+"_token_id", id)
			}
		}
	}
	if k.model == "gpt2" {
		lines := make([]string, len(merges))
		for i, m := range merges {
			lines[i] = m[0] + " " + m[1]
		}
		w.Set("tokenizer.ggml.merges", lines)
	} else {
		w.Set("tokenizer.ggml.scores", scores)
	}
	if charsmap != nil {
		w.Set("tokenizer.ggml.precompiled_charsmap", charsmap)
		w.Set("tokenizer.ggml.remove_extra_whitespaces", true)
	}
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	f, err := gguf.Parse(name+".gguf", b.Bytes())
	require.NoError(t, err)
	return f
}

// TestGoldenFromGGUF compares the ids that GGUF metadata give with those of the tokenizer.json it was made from, and with
// those of the SentencePiece library where they are known.
func TestGoldenFromGGUF(t *testing.T) {
	golden.Dir(t, "tokenizers")
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			tok, err := FromGGUF(asGGUF(t, name))
			require.NoError(t, err)
			sentencePiece := name == "t5" || name == "mistral_v3" || name == "llama2" || name == "mistral_v1"
			for _, c := range goldenCases(t, name) {
				if name != "t5" && name != "mistral_v3" { // these two differ from the library where spaces are
					equalIDs(t, tok, c.IDs, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true}), "ids of %q", c.Text)
					equalIDs(t, tok, c.IDsSpecial, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true, AddSpecial: true}), "ids_special of %q", c.Text)
				}
				if sentencePiece && !strings.Contains(c.Text, "REFERENCE_DOC") && !strings.Contains(c.Text, "extra_id") {
					want := c.SPM
					if want == nil {
						want = c.IDs
					}
					equalIDs(t, tok, want, tok.Encode(c.Text, EncodeOptions{}), "spm_ids of %q", c.Text)
				}
				checkStream(t, tok, c.IDs)
			}
		})
	}
}

// realVocabularies are the golden tokenizers with the vocabularies of the real models.
var realVocabularies = map[string]string{"smollm2": "smollm2", "gemma3": "gemma3", "qwen05": "qwen2_5", "qwen15": "qwen2_5"}

// TestRealGGUF compares the ids of the real models' files with the conformance data.
func TestRealGGUF(t *testing.T) {
	for _, model := range golden.Models() {
		t.Run(model, func(t *testing.T) {
			name := realVocabularies[model]
			require.NotEmpty(t, name)
			f, err := gguf.Open(golden.Model(t, model))
			require.NoError(t, err)
			defer f.Close()
			tok, err := FromGGUF(f)
			require.NoError(t, err)
			for _, c := range goldenCases(t, name) {
				equalIDs(t, tok, c.IDs, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true}), "ids of %q", c.Text)
				equalIDs(t, tok, c.IDsSpecial, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true, AddSpecial: true}), "ids_special of %q", c.Text)
				if got := tok.Decode(c.IDs, false); got != c.Decoded {
					t.Errorf("decoded of %q: %q, want %q", c.Text, got, c.Decoded)
				}
			}
		})
	}
}

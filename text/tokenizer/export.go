package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Key is one key of GGUF metadata with its value.
type Key struct {
	Key   string
	Value any
}

// ExportDir is the tokenizer of a checkpoint folder as GGUF's keys. The vocabulary is filled up to rows with tokens that no
// text makes; 0 leaves it. The error says what GGUF, as FromGGUF reads it, has no way to express: both tokenizers are tried
// on texts of all kinds.
func ExportDir(dir string, rows int) ([]Key, error) {
	t, err := FromDir(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "tokenizer.json")
	data, err := readJSON(dir, "tokenizer.json")
	if err != nil {
		return nil, err
	}
	if data == nil {
		return exportSPM(dir, t, rows)
	}
	keys, err := export(t, data, rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// exportSPM makes the keys of a folder with a SentencePiece file and tries them.
func exportSPM(dir string, t *Tokenizer, rows int) ([]Key, error) {
	path, data, err := findSPM(dir)
	if err != nil {
		return nil, err
	}
	_, keys, err := fromSPM(dir, path, data, rows)
	if err != nil {
		return nil, err
	}
	e := exporter{keys: keys}
	if err := e.try(t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// export makes the keys and tries them.
func export(t *Tokenizer, data []byte, rows int) ([]Key, error) {
	var e exporter
	if err := json.Unmarshal(data, &e.file); err != nil {
		return nil, err
	}
	if n := t.VocabSize(); rows > 0 && n > rows {
		return nil, fmt.Errorf("%d tokens: the embedding has only %d rows", n, rows)
	}
	rows = max(rows, t.VocabSize())
	if e.file.Model.Type == "Unigram" {
		err := e.unigram(t, data, rows)
		return e.keys, err
	}
	if err := e.vocabulary(t, rows); err != nil {
		return nil, err
	}
	e.ends(t)
	return e.keys, e.try(t)
}

// ends says what goes around a text.
func (e *exporter) ends(t *Tokenizer) {
	e.set("add_bos_token", t.AddsBOS())
	e.set("add_eos_token", len(t.suffix) > 0)
	if t.bos >= 0 {
		e.set("bos_token_id", uint32(t.bos))
	}
}

type exporter struct {
	file jsonFile
	keys []Key
}

func (e *exporter) set(key string, value any) {
	e.keys = append(e.keys, Key{"tokenizer.ggml." + key, value})
}

// vocabulary adds tokens, types and scores or merges.
func (e *exporter) vocabulary(t *Tokenizer, rows int) error {
	pre, err := e.pre()
	if err != nil {
		return err
	}
	merges, err := e.file.Model.merges()
	if err != nil {
		return err
	}
	spm := pre == "default"
	tokens, types := e.tokens(t, rows, spm)
	e.set("model", map[bool]string{true: "llama", false: "gpt2"}[spm])
	e.set("pre", pre)
	e.set("tokens", tokens)
	e.set("token_type", types)
	if !spm {
		lines := make([]string, len(merges))
		for i, m := range merges {
			lines[i] = m[0] + " " + m[1]
		}
		e.set("merges", lines)
		return nil
	}
	scores := make([]float32, rows) // the earlier a piece is made, the higher
	for rank, m := range merges {
		if id := t.vocab.index[m[0]+m[1]]; scores[id] == 0 {
			scores[id] = -1 - float32(rank)
		}
	}
	e.set("scores", scores)
	e.set("add_space_prefix", e.spaceInFront())
	if unk := e.file.Model.UnkToken; unk != nil {
		e.set("unknown_token_id", uint32(t.vocab.index[*unk]))
	}
	return nil
}

// tokens are the pieces with their types, up to the rows of the embedding.
func (e *exporter) tokens(t *Tokenizer, rows int, spm bool) (tokens []string, types []int32) {
	tokens, types = slices.Clone(t.vocab.pieces), make([]int32, rows)
	for i, piece := range tokens {
		k := t.vocab.kinds[i]
		_, isByte := byteToken(piece)
		switch {
		case k&kindSpecial != 0:
			types[i] = ggufControl
		case k&kindAdded != 0:
			types[i] = ggufUser
		case k == 0:
			types[i] = ggufUnused
		case spm && isByte:
			types[i] = ggufByte
		default:
			types[i] = ggufNormal
		}
		if spm && k&kindAdded != 0 {
			tokens[i] = strings.ReplaceAll(piece, spaceMark, " ")
		}
	}
	for i := len(tokens); i < rows; i++ {
		tokens, types[i] = append(tokens, fmt.Sprintf("[PAD%d]", i)), ggufUnused
	}
	return tokens, types
}

// pre is the name that GGUF gives to the pre-tokenizer, "default" for byte fallback without one.
func (e *exporter) pre() (string, error) {
	if e.file.Model.ByteFallback {
		return "default", nil
	}
	steps := e.file.PreTokenizer.flatten()
	for _, c := range steps {
		if c.Pattern.Regex == nil {
			continue
		}
		switch *c.Pattern.Regex {
		case llamaRegex:
			return "llama-bpe", nil
		case qwenRegex:
			return "qwen2", nil
		case tekkenRegex:
			return "tekken", nil
		}
	}
	if n := len(steps); n > 0 && steps[n-1].Type == "ByteLevel" {
		switch {
		case n == 1:
			return "gpt-2", nil
		case n == 2 && steps[0].Type == "Digits":
			return "smollm", nil
		}
	}
	return "", errors.New("pre_tokenizer: GGUF has no name for it here")
}

// flatten lists the steps of a sequence of pre-tokenizers or normalizers.
func (c *component) flatten() []component {
	if c == nil {
		return nil
	}
	parts := append(append([]component(nil), c.Pretokenizers...), c.Normalizers...)
	if len(parts) == 0 {
		return []component{*c}
	}
	var all []component
	for i := range parts {
		all = append(all, parts[i].flatten()...)
	}
	return all
}

// spaceInFront reports whether a space goes in front of the text.
func (e *exporter) spaceInFront() bool {
	for _, c := range append(e.file.Normalizer.flatten(), e.file.PreTokenizer.flatten()...) {
		if c.Type == "Prepend" {
			return true
		}
		if c.Type == "Metaspace" {
			_, scheme, err := c.metaspace()
			return err == nil && scheme != "never"
		}
	}
	return false
}

// probes are texts that tell tokenizers apart: spaces, digits, cases, contractions, scripts, marks, controls, symbols.
var probes = []string{
	"", "Hello, world!", "  two  spaces and a tab\tthen\n\n\nlines \r\n  ", "1 22 333 4444 55555.67", "don't WE'LL they'Re I'm",
	"camelCaseWords HTTPServer mixedUPPER", "naïve café Ünïcode Ã ſ", "e\u0301 cafe\u0301", "漢字かな交じり文、テスト", "Привет мир", "مرحبا بالعالم",
	"🙂👩‍👩‍👧 ∑∞≠", "func f(x int) { return x*2 }\n\t// done", "a\u00a0b\u200bc", "x=1;y=2;;;...!!!???", " leading and trailing ", "\x00\x01\x7f",
	"</s>a</s> <unk> b <extra_id_0>c <pad>", "<b>bold</b> http://example.org/?q=1&r=%20", "^_^ ~~~ ``` \"quotes\" 'single'", strings.Repeat(" ", 17) + strings.Repeat("=", 40),
}

// try compares the ids that the keys give with those of the tokenizer that they were made from.
func (e *exporter) try(t *Tokenizer) error {
	got, err := fromKeys("tokenizer", e.keys)
	if err != nil {
		return err
	}
	options := []EncodeOptions{{}, {AddSpecial: true}}
	if e.file.Model.Type == "Unigram" { // else what surrounds special tokens depends on the architecture, which these keys lack
		options = append(options, EncodeOptions{ParseSpecial: true})
	}
	for _, text := range probes {
		for _, o := range options {
			a, b := t.Encode(text, o), got.Encode(text, o)
			if !slices.Equal(a, b) {
				return fmt.Errorf("a tokenizer that GGUF cannot express: %q is %v, and would be %v there", text, a, b)
			}
			if a, b := t.Decode(a, false), got.Decode(a, false); a != b {
				return fmt.Errorf("a tokenizer that GGUF cannot express: %q comes back as %q, and would as %q there", text, a, b)
			}
		}
	}
	return nil
}

package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"quickdraft/modelfile/gguf"
)

// spmNames are the SentencePiece files of checkpoint folders: of Llama 2, Mistral and Gemma, and of T5.
var spmNames = []string{"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}

// maxExtraIDs bounds T5's sentinels <extra_id_0> and up that a configuration may ask for.
const maxExtraIDs = 1 << 12

// findSPM returns the folder's SentencePiece file, nil data when it has none.
func findSPM(dir string) (path string, data []byte, err error) {
	for _, name := range spmNames {
		if data, err = readJSON(dir, name); data != nil || err != nil {
			return filepath.Join(dir, name), data, err
		}
	}
	return "", nil, nil
}

// fromSPM builds the tokenizer of a SentencePiece file with what the JSON files beside it add. The keys are those that GGUF
// has for it, with tokens for that many rows; 0 is what the files name.
func fromSPM(dir, path string, data []byte, rows int) (*Tokenizer, []Key, error) {
	m, err := parseSPM(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	config, err := readSPMConfig(dir)
	if err != nil {
		return nil, nil, err
	}
	keys, err := m.keys(config, rows)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	t, err := fromKeys(path, keys)
	if err != nil {
		return nil, nil, err
	}
	if err := m.beyondGGUF(t); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, keys, nil
}

// fromKeys is the tokenizer of a GGUF file with these keys; errors name path.
func fromKeys(path string, keys []Key) (*Tokenizer, error) {
	w := gguf.NewWriter()
	for _, k := range keys {
		w.Set(k.Key, k.Value)
	}
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		return nil, err
	}
	f, err := gguf.Parse(path, file.Bytes())
	if err != nil {
		return nil, err
	}
	return FromGGUF(f)
}

// beyondGGUF adds what a SentencePiece file can say and GGUF cannot: replacements before BPE, byte tokens of a unigram model.
func (m *spmModel) beyondGGUF(t *Tokenizer) error {
	if u, ok := t.model.(*unigram); ok {
		if m.byteFallback {
			u.bytes = newBPE(&t.vocab, 0, false)
			t.dec.byteFallback = true
			return t.vocab.render(&t.dec)
		}
		return nil
	}
	if len(m.charsmap) == 0 && !m.squeeze {
		return nil
	}
	sp := &sentencePiece{squeeze: m.squeeze, prefix: m.prefix}
	if len(m.charsmap) > 0 {
		var err error
		if sp.chars, err = newCharsmap(m.charsmap); err != nil {
			return err
		}
	}
	t.norm = []normalizer{sp.normalize}
	return nil
}

// spmConfig is what the JSON files beside a SentencePiece file say.
type spmConfig struct {
	AddBOS      *bool               `json:"add_bos_token"`
	AddEOS      *bool               `json:"add_eos_token"`
	PrefixSpace *bool               `json:"add_prefix_space"`
	ExtraIDs    int                 `json:"extra_ids"`
	BOS         json.RawMessage     `json:"bos_token"`
	EOS         json.RawMessage     `json:"eos_token"`
	Decoder     map[string]spmAdded `json:"added_tokens_decoder"`

	added map[int]spmAdded // of all files, by id
}

type spmAdded struct {
	Content string `json:"content"`
	Special bool   `json:"special"`
}

func readSPMConfig(dir string) (*spmConfig, error) {
	c := &spmConfig{added: map[int]spmAdded{}}
	byText := map[string]int{}
	for _, f := range []struct {
		name string
		into any
	}{{"added_tokens.json", &byText}, {"tokenizer_config.json", c}} {
		data, err := readJSON(dir, f.name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		if err := json.Unmarshal(data, f.into); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, f.name), err)
		}
	}
	for text, id := range byText {
		c.added[id] = spmAdded{Content: text}
	}
	for key, a := range c.Decoder {
		id, err := strconv.Atoi(key)
		if err != nil {
			return nil, fmt.Errorf("%s: added_tokens_decoder: %q is not a token id", filepath.Join(dir, "tokenizer_config.json"), key)
		}
		c.added[id] = a
	}
	if c.ExtraIDs < 0 || c.ExtraIDs > maxExtraIDs {
		return nil, fmt.Errorf("%s: extra_ids is %d, want 0 to %d", filepath.Join(dir, "tokenizer_config.json"), c.ExtraIDs, maxExtraIDs)
	}
	return c, nil
}

// keys describes the model as GGUF does.
func (m *spmModel) keys(c *spmConfig, rows int) ([]Key, error) {
	if err := m.add(c); err != nil {
		return nil, err
	}
	if rows > 0 && len(m.pieces) > rows {
		return nil, fmt.Errorf("%d tokens: the embedding has only %d rows", len(m.pieces), rows)
	}
	m.fill(rows)
	var e exporter
	e.set("model", map[bool]string{true: "llama", false: "t5"}[m.kind == spmBPE])
	e.set("pre", "default")
	e.set("tokens", m.pieces)
	e.set("scores", m.scores)
	e.set("token_type", m.types)
	e.set("add_bos_token", flag(c.AddBOS, m.kind == spmBPE))
	e.set("add_eos_token", flag(c.AddEOS, m.kind == spmUnigram))
	m.prefix = flag(c.PrefixSpace, m.prefix)
	e.set("add_space_prefix", m.prefix)
	if m.kind == spmUnigram {
		e.set("remove_extra_whitespaces", m.squeeze)
		if len(m.charsmap) > 0 {
			e.set("precompiled_charsmap", m.charsmap)
		}
	}
	e.set("unknown_token_id", uint32(m.unk))
	for _, k := range []struct {
		key string
		id  int32
		raw json.RawMessage
	}{{"bos_token_id", m.bos, c.BOS}, {"eos_token_id", m.eos, c.EOS}, {"padding_token_id", m.pad, nil}} {
		name, err := tokenName(k.raw)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %s: %w", k.key, err)
		}
		if i := slices.Index(m.pieces, name); name != "" && i >= 0 {
			k.id = int32(i)
		}
		if k.id >= 0 {
			e.set(k.key, uint32(k.id))
		}
	}
	return e.keys, nil
}

// add puts the added tokens in. They replace pieces of their ids, and gaps before them become tokens that no text makes.
func (m *spmModel) add(c *spmConfig) error {
	if m.kind == spmBPE {
		for i, p := range m.pieces { // they are looked for in the text as given
			if m.types[i] == ggufUser {
				m.pieces[i] = strings.ReplaceAll(p, spaceMark, " ")
			}
		}
	}
	n := len(m.pieces)
	if _, listed := c.added[n]; !listed {
		for i := range c.ExtraIDs { // the last sentinel has the lowest id
			c.added[n+i] = spmAdded{fmt.Sprintf("<extra_id_%d>", c.ExtraIDs-1-i), true}
		}
	}
	limit := min(2*n+1<<16, maxVocab) // gaps are allowed, but not to allocate gigabytes for them
	for id, a := range c.added {
		switch {
		case a.Content == "" || !utf8.ValidString(a.Content):
			return fmt.Errorf("added token %d: %.40q is not a text", id, a.Content)
		case id < 0 || id >= limit:
			return fmt.Errorf("added token %q: id %d, want 0 to %d beside %d pieces", a.Content, id, limit-1, n)
		}
		m.fill(id + 1)
		m.pieces[id], m.types[id] = a.Content, ggufUser
		if a.Special {
			m.types[id] = ggufControl
		}
		if int32(id) == m.unk {
			m.types[id] = ggufUnknown
		}
	}
	return nil
}

// fill adds tokens that no text makes, up to n tokens in all.
func (m *spmModel) fill(n int) {
	for i := len(m.pieces); i < n; i++ {
		m.pieces, m.scores, m.types = append(m.pieces, fmt.Sprintf("[PAD%d]", i)), append(m.scores, 0), append(m.types, ggufUnused)
	}
}

// errNoTokenizer says what a folder lacks.
var errNoTokenizer = errors.New("tokenizer.json is missing, and so is a SentencePiece file (" + strings.Join(spmNames, ", ") + ")")

package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxJSONBytes bounds the files that FromDir reads; the largest tokenizer.json known has 34 MB.
const maxJSONBytes = 512 << 20

// jsonFile is the part of a tokenizer.json that is used.
type jsonFile struct {
	AddedTokens   []jsonAdded `json:"added_tokens"`
	Normalizer    *component  `json:"normalizer"`
	PreTokenizer  *component  `json:"pre_tokenizer"`
	PostProcessor *component  `json:"post_processor"`
	Decoder       *component  `json:"decoder"`
	Model         jsonModel   `json:"model"`
}

type jsonAdded struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// FromDir builds the tokenizer of a checkpoint folder from its tokenizer.json, or where there is none from its SentencePiece
// file, and from added_tokens.json, tokenizer_config.json, generation_config.json and config.json where they are there.
func FromDir(dir string) (*Tokenizer, error) {
	data, err := readJSON(dir, "tokenizer.json")
	if err != nil {
		return nil, err
	}
	if data == nil {
		path, data, err := findSPM(dir)
		if err != nil {
			return nil, err
		}
		if data == nil {
			return nil, fmt.Errorf("%s: %w", dir, errNoTokenizer)
		}
		t, _, err := fromSPM(dir, path, data, 0)
		if err != nil {
			return nil, err
		}
		return t.configured(dir)
	}
	config, err := readJSON(dir, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	t, err := FromJSON(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return t.configured(dir)
}

// configured adds the ids that end an answer by the folder's configuration of the model.
func (t *Tokenizer) configured(dir string) (*Tokenizer, error) {
	var named []int32
	for _, name := range []string{"generation_config.json", "config.json"} {
		data, err := readJSON(dir, name)
		if err != nil {
			return nil, err
		}
		ids, err := t.endIDs(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		named = append(named, ids...)
	}
	if t.eos < 0 && len(named) > 0 {
		t.eos = named[0]
	}
	t.setEOG(named...)
	return t, nil
}

// readJSON returns the content of a file, nil when it does not exist.
func readJSON(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxJSONBytes {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), maxJSONBytes)
	}
	return os.ReadFile(path)
}

// endIDs returns eos_token_id of a configuration file, a number or a list; ids outside the vocabulary are an error.
func (t *Tokenizer) endIDs(data []byte) ([]int32, error) {
	var c struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if data == nil {
		return nil, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	var ids []int32
	if len(c.EOS) == 0 || string(c.EOS) == "null" {
		return nil, nil
	}
	if json.Unmarshal(c.EOS, &ids) != nil {
		ids = make([]int32, 1)
		if err := json.Unmarshal(c.EOS, &ids[0]); err != nil {
			return nil, fmt.Errorf("eos_token_id is %.40s; an integer or a list of integers is right", c.EOS)
		}
	}
	for _, id := range ids {
		if id < 0 {
			return nil, fmt.Errorf("eos_token_id is %d; it cannot be negative", id)
		}
	}
	return ids, nil
}

// FromJSON builds a tokenizer from the content of a tokenizer.json, and of the tokenizer_config.json beside it, which
// names BOS and EOS; config may be nil.
func FromJSON(tokenizer, config []byte) (*Tokenizer, error) {
	var file jsonFile
	if err := json.Unmarshal(tokenizer, &file); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t := &Tokenizer{bos: -1, eos: -1}
	if err := file.build(t); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if config != nil {
		if err := t.names(config); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	t.setEOG()
	return t, nil
}

func (f *jsonFile) build(t *Tokenizer) error {
	p := pipeline{t: t}
	if err := p.normalizer(f.Normalizer); err != nil {
		return err
	}
	if err := p.preTokenizer(f.PreTokenizer); err != nil {
		return err
	}
	if err := p.decoder(f.Decoder); err != nil {
		return err
	}
	entries, err := f.Model.entries()
	if err != nil {
		return err
	}
	added, err := f.vocabulary(t, entries)
	if err != nil {
		return err
	}
	var raw, normed []addedToken
	for _, a := range added {
		if !a.normalized {
			raw = append(raw, a)
			continue
		}
		for _, n := range t.norm {
			a.text = n(a.text)
		}
		normed = append(normed, a)
	}
	if t.raw, err = newMatcher(raw); err != nil {
		return err
	}
	if t.normed, err = newMatcher(normed); err != nil {
		return err
	}
	if err := f.Model.build(t, entries, p.byteLevel); err != nil {
		return err
	}
	if err := p.postProcessor(f.PostProcessor); err != nil {
		return err
	}
	return t.vocab.render(&t.dec)
}

// vocabulary gives each piece of the model and each added token its id. An added token that is a piece has the piece's.
func (f *jsonFile) vocabulary(t *Tokenizer, entries []entry) ([]addedToken, error) {
	n := int64(0)
	limit := 2*int64(len(entries)+len(f.AddedTokens)) + 1<<16 // gaps are allowed, but not to allocate gigabytes for them
	for _, e := range entries {
		if e.id < 0 || e.id >= min(limit, maxVocab) {
			return nil, fmt.Errorf("model.vocab: id of %q is %d; 0 to %d are possible for %d pieces", e.piece, e.id, min(limit, maxVocab)-1, len(entries))
		}
		n = max(n, e.id+1)
	}
	for _, a := range f.AddedTokens {
		if a.ID < 0 || a.ID >= min(limit, maxVocab) {
			return nil, fmt.Errorf("added_tokens: id of %q is %d; 0 to %d are possible for %d pieces", a.Content, a.ID, min(limit, maxVocab)-1, len(entries))
		}
		n = max(n, a.ID+1)
	}
	t.vocab = newVocab(int(n))
	for _, e := range entries {
		if t.vocab.kinds[e.id] != 0 {
			return nil, fmt.Errorf("model.vocab: %q and %q have the same id %d", e.piece, t.vocab.pieces[e.id], e.id)
		}
		t.vocab.set(int32(e.id), e.piece, kindModel)
	}
	added := make([]addedToken, 0, len(f.AddedTokens))
	for _, a := range f.AddedTokens {
		if a.Content == "" {
			continue
		}
		id, ok := t.vocab.index[a.Content]
		if !ok {
			id = int32(a.ID)
			if t.vocab.kinds[id] != 0 {
				return nil, fmt.Errorf("added_tokens: %q has id %d, which is %q in the vocabulary", a.Content, id, t.vocab.pieces[id])
			}
			t.vocab.set(id, a.Content, 0)
		}
		t.vocab.kinds[id] |= kindAdded
		if a.Special {
			t.vocab.kinds[id] |= kindSpecial
		}
		added = append(added, addedToken{
			id: id, text: a.Content, special: a.Special, singleWord: a.SingleWord,
			lstrip: a.Lstrip, rstrip: a.Rstrip, normalized: a.Normalized,
		})
	}
	return added, nil
}

// names sets BOS and EOS from a tokenizer_config.json.
func (t *Tokenizer) names(config []byte) error {
	var c struct {
		BOS json.RawMessage `json:"bos_token"`
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	for _, p := range []struct {
		key string
		raw json.RawMessage
		id  *int32
	}{{"bos_token", c.BOS, &t.bos}, {"eos_token", c.EOS, &t.eos}} {
		name, err := tokenName(p.raw)
		if err != nil {
			return fmt.Errorf("%s: %w", p.key, err)
		}
		if id, ok := t.vocab.index[name]; ok {
			*p.id = id
		}
	}
	return nil
}

// tokenName reads a token given as a string, as an object with its content, or as null ("").
func tokenName(raw json.RawMessage) (string, error) {
	var name string
	if len(raw) == 0 || json.Unmarshal(raw, &name) == nil {
		return name, nil
	}
	var object struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return "", fmt.Errorf("%.60s is neither a string nor an object with content", raw)
	}
	return object.Content, nil
}

// Package text opens what a model file says about text: its tokenizer and its chat template.
package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"quickdraft/modelfile/gguf"
	"quickdraft/text/chat"
	"quickdraft/text/tokenizer"
)

// Text turns conversations into token ids and ids into text for one model.
type Text struct {
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template // nil when the model has none
	BOS, EOS  string         // texts of the ids, "" when the model has none
}

// Open reads the tokenizer and the chat template of a GGUF file or of a Hugging Face folder (tokenizer.json or
// tokenizer.model, tokenizer_config.json, chat_template.jinja). A template that does not compile is an error here, at load.
func Open(path string) (*Text, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openDir(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return nil, err
	}
	template, err := ggufTemplate(f)
	if err != nil {
		return nil, err
	}
	return newText(path, tok, template)
}

// ggufTemplate is the template of a GGUF file, "" when it has none.
func ggufTemplate(f *gguf.File) (string, error) {
	const key = "tokenizer.chat_template"
	template, ok := f.String(key)
	if v, there := f.Value(key); there && !ok {
		return "", f.KeyError(key, "is of kind %s, want a string", v.Kind())
	}
	return template, nil
}

func openDir(dir string) (*Text, error) {
	tok, err := tokenizer.FromDir(dir)
	if err != nil {
		return nil, err
	}
	template, err := DirTemplate(dir)
	if err != nil {
		return nil, err
	}
	return newText(dir, tok, template)
}

// DirTemplate finds a folder's template: chat_template.jinja wins over the key in tokenizer_config.json, as in
// transformers. A list of named templates yields the one called "default", and a
// folder without any "".
func DirTemplate(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err == nil {
		return string(data), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	data, err = os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("%s: tokenizer_config.json: %w", dir, err)
	}
	if len(config.ChatTemplate) == 0 || string(config.ChatTemplate) == "null" {
		return "", nil
	}
	var one string
	if json.Unmarshal(config.ChatTemplate, &one) == nil {
		return one, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(config.ChatTemplate, &named); err != nil {
		return "", fmt.Errorf("%s: tokenizer_config.json: chat_template: want a string or a list of {name, template}", dir)
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", nil
}

func newText(path string, tok *tokenizer.Tokenizer, template string) (*Text, error) {
	t := &Text{Tokenizer: tok}
	if id := tok.BOS(); id >= 0 {
		t.BOS = tok.Piece(id)
	}
	if id := tok.EOS(); id >= 0 {
		t.EOS = tok.Piece(id)
	}
	if template == "" {
		return t, nil
	}
	var err error
	if t.Template, err = chat.Compile(template); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

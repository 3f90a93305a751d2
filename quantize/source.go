package quantize

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"quickdraft/model"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

// source is a checkpoint to be read, whatever its files are.
type source struct {
	path      string
	files     []string // that are read, or their folder
	shape     matrix   // what all matrices have in common
	hasOutput bool     // the embedding does not make the logits
	tensors   []sourceTensor
	metadata  func(w *gguf.Writer)
	close     func() error
}

// sourceTensor is one tensor to be read, under GGUF's name.
type sourceTensor struct{ model.ExportTensor }

func (t *sourceTensor) cols() int { return t.Dims[0] }

func (t *sourceTensor) rows() int {
	n := 1
	for _, d := range t.Dims[1:] {
		n *= d
	}
	return n
}

func (t *sourceTensor) bytes() int64 { return int64(t.rows()) * int64(t.Type.RowBytes(t.cols())) }

func open(path string) (*source, error) {
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
	s := &source{path: path, files: f.Paths(), close: f.Close, metadata: func(w *gguf.Writer) { copyMetadata(w, f) }}
	arch, _ := f.String("general.architecture")
	number := func(key string, absent int) int {
		if v, ok := f.Uint(arch + "." + key); ok && v < 1<<20 {
			return int(v)
		}
		return absent
	}
	s.shape = matrix{layers: number("block_count", 0), experts: number("expert_count", 0)}
	heads := number("attention.head_count", 1)
	s.shape.shared = heads / max(1, number("attention.head_count_kv", heads))
	for _, t := range f.Tensors() {
		s.add(model.ExportTensor{
			Name: t.Name, Dims: t.Dims, Type: t.Type, Release: func() { f.Release(t) },
			Rows: func(_ *[]byte, from, n int) []byte {
				rowBytes := t.Type.RowBytes(t.Cols())
				return t.Data[from*rowBytes : (from+n)*rowBytes]
			},
		})
	}
	return s, nil
}

func (s *source) add(t model.ExportTensor) {
	s.tensors = append(s.tensors, sourceTensor{t})
	s.hasOutput = s.hasOutput || t.Name == "output.weight"
}

// copyMetadata copies all keys but those of a split model.
func copyMetadata(w *gguf.Writer, f *gguf.File) {
	for _, key := range f.Keys() {
		if strings.HasPrefix(key, "split.") {
			continue
		}
		v, _ := f.Value(key)
		w.Set(key, v)
	}
}

// openDir opens a safetensors folder.
func openDir(dir string) (*source, error) {
	c, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	x, err := model.NewExport(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	vocabulary, err := readVocabulary(dir, x.Config.Vocab)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s := &source{path: dir, files: []string{dir}, close: c.Close, metadata: func(w *gguf.Writer) {
		for _, m := range x.Meta {
			w.Set(m.Key, m.Value)
		}
		if x.Config.Name == "" {
			w.Set("general.name", filepath.Base(filepath.Clean(dir)))
		}
		for _, m := range vocabulary {
			w.Set(m.Key, m.Value)
		}
	}}
	s.shape = matrix{layers: x.Config.Layers, experts: x.Config.Experts, shared: x.Config.Heads / x.Config.KVHeads}
	for _, t := range x.Tensors {
		s.add(t)
	}
	return s, nil
}

// readVocabulary is the folder's tokenizer and chat template as GGUF's keys, with tokens for all rows of the embedding.
func readVocabulary(dir string, rows int) ([]tokenizer.Key, error) {
	keys, err := tokenizer.ExportDir(dir, rows)
	if err != nil {
		return nil, err
	}
	template, err := text.DirTemplate(dir)
	if err != nil {
		return nil, err
	}
	if template != "" {
		keys = append(keys, tokenizer.Key{Key: "tokenizer.chat_template", Value: template})
	}
	return keys, nil
}

package gguf

import (
	"cmp"
	"slices"
)

// Parse reads a whole file from memory; name stands for the path in errors. The File refers to data, which must not
// change. A part of a split file is read by itself.
func Parse(name string, data []byte) (*File, error) {
	f, err := parsePart(name, data)
	if err != nil {
		return nil, err
	}
	if err := f.checkVocabulary(); err != nil {
		return nil, err
	}
	return f, nil
}

// parsePart reads one file without the checks that need all parts of a model.
func parsePart(name string, data []byte) (*File, error) {
	p := &parser{file: name, data: data}
	version, nTensors, nKeys, err := p.header()
	if err != nil {
		return nil, err
	}
	f := &File{path: name, version: version}
	if err := p.metadata(f, nKeys); err != nil {
		return nil, err
	}
	align, err := p.alignment(f)
	if err != nil {
		return nil, err
	}
	infos, err := p.tensorInfos(f, nTensors)
	if err != nil {
		return nil, err
	}
	if err := p.place(infos, align); err != nil {
		return nil, err
	}
	return f, nil
}

// alignment returns the value of general.alignment or its default.
func (p *parser) alignment(f *File) (int, error) {
	v, ok := f.meta[alignmentKey]
	if !ok {
		return defaultAlign, nil
	}
	align, ok := v.Uint()
	if !ok || !goodAlignment(align) {
		return 0, f.KeyError(alignmentKey, wantAlignment)
	}
	return int(align), nil
}

// goodAlignment holds what the format asks for, a multiple of 8, to powers of two and to a size that no page exceeds.
func goodAlignment(align uint64) bool {
	return align >= 8 && align <= maxAlignment && align&(align-1) == 0
}

const wantAlignment = "is not an alignment, want a power of two from 8 to 1048576"

// place gives each tensor its bytes, after checking that they lie in the file and in no other tensor.
func (p *parser) place(infos []placed, align int) error {
	if len(infos) == 0 {
		return nil
	}
	start := (p.off + align - 1) / align * align
	room := max(len(p.data)-start, 0)
	for _, t := range infos {
		p.tensor = t.Name
		switch {
		case t.offset%uint64(align) != 0:
			return p.fail(t.offsetAt, t.offset, "as offset is not a multiple of the alignment %d", align)
		case t.offset > uint64(room) || t.size > room-int(t.offset):
			return p.fail(t.offsetAt, t.offset, "as offset puts %d bytes of data outside the file, which holds %d bytes of data",
				t.size, room)
		}
		at := start + int(t.offset)
		t.Data = p.data[at : at+t.size : at+t.size]
	}
	inOrder := slices.SortedFunc(slices.Values(infos), func(a, b placed) int { return cmp.Compare(a.offset, b.offset) })
	for i, t := range inOrder[1:] {
		before := inOrder[i]
		if end := before.offset + uint64(before.size); t.offset < end {
			p.tensor = t.Name
			return p.fail(t.offsetAt, t.offset, "as offset lies inside tensor %s, which ends at %d", quote(before.Name), end)
		}
	}
	p.tensor = ""
	return nil
}

const (
	tokensKey    = "tokenizer.ggml.tokens"
	embeddingKey = "token_embd.weight"
)

// idKeys are the token ids that the engine feeds to the model or compares with what comes out. Others (padding, unknown)
// are -1 in real files and nobody looks them up without a check.
var idKeys = []string{
	"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
	"tokenizer.ggml.eom_token_id",
}

// checkVocabulary compares the tokens with the embedding rows: fewer tokens than rows is padding, more would make the
// embedding read past its end. It does nothing for what the file does not have.
func (f *File) checkVocabulary() error {
	tokens, ok := f.meta[tokensKey]
	if ok && (tokens.kind != KindArray || tokens.elem != KindString) {
		return f.KeyError(tokensKey, "is not an array of strings")
	}
	size := tokens.n
	if t, ok := f.byName[embeddingKey]; ok {
		if size > t.Rows() {
			return f.KeyError(tokensKey, "holds %d tokens, more than the %d rows of tensor %q", size, t.Rows(), embeddingKey)
		}
		if size == 0 {
			size = t.Rows()
		}
	}
	if size == 0 {
		return nil
	}
	for _, key := range idKeys {
		v, ok := f.meta[key]
		if !ok {
			continue
		}
		if id, ok := v.Uint(); !ok || id >= uint64(size) {
			return f.KeyError(key, "is not a token of the vocabulary, want 0 to %d", size-1)
		}
	}
	return nil
}

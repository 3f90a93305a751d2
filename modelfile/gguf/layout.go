package gguf

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
	f.headBytes = p.off
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

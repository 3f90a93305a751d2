package gguf

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// placed is a tensor with the places that its checks report.
type placed struct {
	*Tensor
	offset   uint64 // from the start of the data section
	size     int
	typeAt   int // where the file states type and offset
	offsetAt int
}

// tensorInfos reads the descriptions of the tensors.
func (p *parser) tensorInfos(f *File, nTensors int) ([]placed, error) {
	infos := make([]placed, 0, nTensors)
	f.tensors, f.byName = make([]*Tensor, 0, nTensors), make(map[string]*Tensor, nTensors)
	for i := range nTensors {
		p.tensor = ""
		at := p.off
		name, err := p.name(fmt.Sprintf("the name of tensor %d", i))
		if err != nil {
			return nil, err
		}
		p.tensor = name
		if _, dup := f.byName[name]; dup {
			return nil, p.fail(at, nil, "the tensor is there twice")
		}
		info, err := p.tensorInfo(name)
		if err != nil {
			return nil, err
		}
		info.at = at
		infos = append(infos, info)
		f.tensors = append(f.tensors, info.Tensor)
		f.byName[name] = info.Tensor
	}
	p.tensor = ""
	return infos, nil
}

func (p *parser) tensorInfo(name string) (placed, error) {
	info := placed{Tensor: &Tensor{Name: name, file: p.file}}
	weights, err := p.dims(info.Tensor)
	if err != nil {
		return info, err
	}
	info.typeAt = p.off
	id, err := p.u32("the tensor's type")
	if err != nil {
		return info, err
	}
	info.Type = Type(id)
	if !info.Type.Known() {
		return info, p.fail(info.typeAt, id, "is not a known tensor type%s, want one of %s", inBrackets(info.Type), typeNames())
	}
	block := info.Type.BlockSize()
	if info.Dims[0]%block != 0 {
		return info, p.fail(info.typeAt, info.Dims[0], "columns do not fill blocks of %s, want a multiple of %d", info.Type, block)
	}
	hi, size := bits.Mul64(weights/uint64(block), uint64(info.Type.BlockBytes()))
	if hi != 0 || size > uint64(len(p.data)) {
		return info, p.fail(info.typeAt, weights, "%s weights are claimed, but the file has %d bytes", info.Type, len(p.data))
	}
	info.size = int(size)
	info.offsetAt = p.off
	info.offset, err = p.u64("the tensor's offset")
	return info, err
}

// inBrackets gives the name of a type id that is not read but has one.
func inBrackets(t Type) string {
	if int64(t) < int64(len(types)) && types[t].name != "" {
		return " (" + t.String() + " is not supported)"
	}
	return ""
}

// dims reads a tensor's dimensions and returns their product.
func (p *parser) dims(t *Tensor) (weights uint64, err error) {
	at := p.off
	n, err := p.u32("the number of dimensions")
	if err != nil {
		return 0, err
	}
	if n == 0 || n > maxDims {
		return 0, p.fail(at, n, "dimensions are claimed, want 1 to %d", maxDims)
	}
	t.Dims = make([]int, n)
	weights = 1
	for i := range t.Dims {
		at = p.off
		d, err := p.u64("a dimension")
		if err != nil {
			return 0, err
		}
		hi, product := bits.Mul64(weights, d)
		switch {
		case d == 0:
			return 0, p.fail(at, nil, "dimension %d is 0, want at least 1", i)
		case hi != 0 || product > math.MaxInt:
			return 0, p.fail(at, d, "as dimension %d makes the number of weights overflow", i)
		}
		weights = product
		t.Dims[i] = int(d)
	}
	return weights, nil
}

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

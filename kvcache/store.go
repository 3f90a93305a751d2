package kvcache

import (
	"math"
	"unsafe"

	"quickdraft/quant"
	"quickdraft/tensor"
)

// store holds one layer's keys or values in one of three formats; the others are nil.
type store struct {
	half      []uint16
	row       []uint16 // (heads*dim): one token's, converted
	full      []float32
	eight     tensor.KV8
	heads     int
	dim       int
	blockSize int // values of a block
}

// format is how a store keeps its values.
type format uint8

const (
	halves format = iota
	floats
	eights
)

// blockBytes is the size of a block of keys or values.
func (cfg *Config) blockBytes(f format) int {
	switch f {
	case floats:
		return 4 * cfg.blockSize()
	case eights:
		return cfg.blockSize() + 2*cfg.blockScales()
	}
	return 2 * cfg.blockSize()
}

// blockScales is the number of scales of a block in 8 bits.
func (cfg *Config) blockScales() int {
	return cfg.KVHeads * ((cfg.HeadDim + tensor.KV8Group - 1) / tensor.KV8Group) * BlockTokens
}

// newStore views the first bytes of memory that is aligned to 16 bytes as a number of blocks, and returns the rest.
func newStore(b []byte, f format, blocks int, cfg *Config) (store, []byte) {
	n := blocks * cfg.blockBytes(f)
	rest := b[n:]
	s := store{heads: cfg.KVHeads, dim: cfg.HeadDim, blockSize: cfg.blockSize()}
	p := unsafe.Pointer(unsafe.SliceData(b))
	switch f {
	case floats:
		s.full = unsafe.Slice((*float32)(p), n/4)
	case eights:
		codes := blocks * s.blockSize
		s.eight.Codes = unsafe.Slice((*int8)(p), codes)
		s.eight.Scales = unsafe.Slice((*uint16)(unsafe.Add(p, codes)), (n-codes)/2)
	default:
		s.half, s.row = unsafe.Slice((*uint16)(p), n/2), make([]uint16, s.heads*s.dim)
	}
	return s, rest
}

// putKeys writes one token's keys, (KVHeads*HeadDim), to their lane of a block.
func (s *store) putKeys(block int, k []float32, lane int) {
	at := block*s.blockSize + lane
	switch {
	case s.eight.Codes != nil:
		s.quantize(block, k, lane, func(i int) int { return at + i*BlockTokens })
	case s.full != nil:
		for i, x := range k {
			s.full[at+i*BlockTokens] = x
		}
	default:
		tensor.ToHalves(s.row, k)
		for i, h := range s.row {
			s.half[at+i*BlockTokens] = h
		}
	}
}

// putValues writes one token's values to a block.
func (s *store) putValues(block int, v []float32, lane int) {
	at := block*s.blockSize + lane*s.dim
	if s.eight.Codes != nil {
		s.quantize(block, v, lane, func(i int) int { return at + i/s.dim*s.dim*BlockTokens + i%s.dim })
		return
	}
	for ; len(v) > 0; v, at = v[s.dim:], at+s.dim*BlockTokens {
		if s.full != nil {
			copy(s.full[at:], v[:s.dim])
		} else {
			tensor.ToHalves(s.half[at:at+s.dim], v[:s.dim])
		}
	}
}

// quantize writes one token's row in 8 bits; place gives the code's index of a value.
func (s *store) quantize(block int, row []float32, lane int, place func(i int) int) {
	groups := (s.dim + tensor.KV8Group - 1) / tensor.KV8Group
	scales := s.eight.Scales[block*s.heads*groups*BlockTokens:]
	for head := range s.heads {
		for g := range groups {
			first := head*s.dim + g*tensor.KV8Group
			values := row[first : head*s.dim+min((g+1)*tensor.KV8Group, s.dim)]
			scale := scaleOf(values)
			scales[(head*groups+g)*BlockTokens+lane] = scale
			d := quant.HalfToFloat(scale)
			for i, x := range values {
				s.eight.Codes[place(first+i)] = codeOf(x, d)
			}
		}
	}
}

// scaleOf is the float16 scale of a group: a 127th of its largest magnitude, NaN when that is no number.
func scaleOf(values []float32) uint16 {
	var biggest float32
	for _, x := range values {
		bits := math.Float32bits(x) & 0x7fffffff
		if bits >= 0x7f800000 {
			return 0x7e00
		}
		biggest = max(biggest, math.Float32frombits(bits))
	}
	return quant.FloatToHalf(biggest / 127)
}

// codeOf is x in units of d, rounded to even, within +-127; 0 where d is 0 or no number.
func codeOf(x, d float32) int8 {
	q := math.RoundToEven(float64(x / d))
	if !(d > 0) || q != q {
		return 0
	}
	return int8(min(max(q, -127), 127))
}

// copyKeys copies one token's keys from a lane of a block to another.
func (s *store) copyKeys(to, toLane, from, fromLane int) {
	size := s.blockSize
	for at := 0; at < size; at += BlockTokens {
		a, b := to*size+at+toLane, from*size+at+fromLane
		switch {
		case s.full != nil:
			s.full[a] = s.full[b]
		case s.half != nil:
			s.half[a] = s.half[b]
		default:
			s.eight.Codes[a] = s.eight.Codes[b]
		}
	}
	s.copyScales(to, toLane, from, fromLane)
}

// copyValues copies one token's values.
func (s *store) copyValues(to, toLane, from, fromLane int) {
	for head := range s.heads {
		a, b := to*s.blockSize+(head*BlockTokens+toLane)*s.dim, from*s.blockSize+(head*BlockTokens+fromLane)*s.dim
		switch {
		case s.full != nil:
			copy(s.full[a:a+s.dim], s.full[b:b+s.dim])
		case s.half != nil:
			copy(s.half[a:a+s.dim], s.half[b:b+s.dim])
		default:
			copy(s.eight.Codes[a:a+s.dim], s.eight.Codes[b:b+s.dim])
		}
	}
	s.copyScales(to, toLane, from, fromLane)
}

func (s *store) copyScales(to, toLane, from, fromLane int) {
	if s.eight.Codes == nil {
		return
	}
	n := s.scales()
	for at := 0; at < n; at += BlockTokens {
		s.eight.Scales[to*n+at+toLane] = s.eight.Scales[from*n+at+fromLane]
	}
}

// scales is the number of scales of a block.
func (s *store) scales() int { return len(s.eight.Scales) / (len(s.eight.Codes) / s.blockSize) }

// copyBlock copies a whole block.
func (s *store) copyBlock(to, from int) {
	target := s.memory(to)
	for i, b := range s.memory(from) {
		copy(target[i], b)
	}
}

// memory is a block as bytes, in one or two pieces.
func (s *store) memory(block int) (pieces [2][]byte) {
	n := s.blockSize
	switch {
	case s.full != nil:
		pieces[0] = bytesOf(s.full[block*n : (block+1)*n])
	case s.half != nil:
		pieces[0] = bytesOf(s.half[block*n : (block+1)*n])
	default:
		k := s.scales()
		pieces[0], pieces[1] = bytesOf(s.eight.Codes[block*n:(block+1)*n]), bytesOf(s.eight.Scales[block*k:(block+1)*k])
	}
	return pieces
}

// bytesOf views values as the bytes they consist of.
func bytesOf[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

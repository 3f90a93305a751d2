package main

// planeKind is how one bit field of the codes of a part (32 columns of 16 rows) is stored.
//
// Group g is columns 4g..4g+3; lane r is bytes 4r..4r+3 of a 64-byte line, byte i of a lane is column 4g+i of row r.
type planeKind int

const (
	nibbles planeKind = iota // 256 bytes: line p, low nibble is group p, high nibble group 4+p
	bits1                    // 64 bytes: bit g of a byte is group g
	bits2                    // 128 bytes: line h, bits 2j and 2j+1 are group 4h+j
	bytes8                   // 512 bytes: line g is group g
)

func (p planeKind) size() int { return [...]int{nibbles: 256, bits1: 64, bits2: 128, bytes8: 512}[p] }

// plane places a bit field at a bit of the code.
type plane struct {
	kind planeKind
	bit  int
}

// scaleKind is how the float factors of a part are found.
type scaleKind int

const (
	scaleF16  scaleKind = iota // 16 f16 after the codes
	scaleE8M0                  // 16 exponent bytes after the codes: 2^(e-128)
	scaleSub                   // 16 f16 for 256 columns, before the codes, times one byte for each sub-block and row
)

// floatKind is the type of float weights; their tiles have the 16 rows of a column side by side.
type floatKind int

const (
	notFloat floatKind = iota
	float32Weights
	float16Weights
	bfloat16Weights
)

// format is a block format as the generator sees it: tile layout and arithmetic, drawn in quant/<file>.go.
type format struct {
	file   string // file word: "q4_k"
	name   string // name in quant and gguf: "Q4_K"
	ident  string // in function names: "Q4K"
	super  bool   // 256 columns a block (8 parts), otherwise 32 (1 part)
	planes []plane
	table  []int8 // weight of each 4-bit code, nil if the weight is code - offset
	flip   bool   // codes are signed bytes: code ^ 0x80 is the unsigned code
	offset int    // weight = unsigned code - offset
	max    int    // largest unsigned code
	scale  scaleKind
	signed bool // sub-block scales are int8, otherwise uint8
	mins   bool // a min for every scale: added (f16 mins) or subtracted (sub-block mins)
	halves bool // a scale for 16 columns instead of 32
	packed bool // sub-block scale and min are the nibbles of one byte
	float  floatKind
}

// partBytes is the size of the codes of 32 columns.
func (f *format) partBytes() int {
	n := 0
	for _, p := range f.planes {
		n += p.kind.size()
	}
	return n
}

// factors is the number of scales of a part and row.
func (f *format) factors() int {
	if f.halves {
		return 2
	}
	return 1
}

// subBytes is the size of the sub-block scales and mins of a part: for each factor 16 scales, then 16 mins.
func (f *format) subBytes() int {
	n := 16 * f.factors()
	if f.mins && !f.packed {
		n *= 2
	}
	return n
}

// floatBytes is the size of the float scales of 16 rows, and of their mins.
func (f *format) floatBytes() int {
	n := 32
	if f.scale == scaleE8M0 {
		n = 16
	}
	if f.mins {
		n *= 2
	}
	return n
}

// headBytes is what lies before the codes of a tile block of 256 columns: float scales and mins, sub-block scales.
func (f *format) headBytes() int { return f.floatBytes() + 8*f.subBytes() }

// tileBytes is the size of a tile block; with 32 columns the floats come after the codes.
func (f *format) tileBytes() int {
	if f.super {
		return f.headBytes() + 8*f.partBytes()
	}
	return f.partBytes() + f.floatBytes()
}

// chain is how many groups' VPMADDUBSW results add up in 16 bits without saturation (activation codes are within +-127);
// 0 means that not even one does.
func (f *format) chain() int {
	for n := 8; n > 0; n /= 2 {
		if n*2*127*f.max <= 32767 {
			return n
		}
	}
	return 0
}

// codebook is the codebook of IQ4_NL and IQ4_XS.
var codebook = []int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// doubledFP4 is twice the value of each 4-bit float (1 sign, 2 exponent, 1 mantissa bits).
var doubledFP4 = []int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

var (
	n4    = plane{nibbles, 0}
	high5 = plane{bits1, 4}
)

var formats = []*format{
	{file: "f32", name: "F32", ident: "F32", float: float32Weights},
	{file: "f16", name: "F16", ident: "F16", float: float16Weights},
	{file: "bf16", name: "BF16", ident: "BF16", float: bfloat16Weights},
	{file: "q4_0", name: "Q4_0", ident: "Q40", planes: []plane{n4}, offset: 8, max: 15},
	{file: "q4_1", name: "Q4_1", ident: "Q41", planes: []plane{n4}, max: 15, mins: true},
	{file: "q5_0", name: "Q5_0", ident: "Q50", planes: []plane{n4, high5}, offset: 16, max: 31},
	{file: "q5_1", name: "Q5_1", ident: "Q51", planes: []plane{n4, high5}, max: 31, mins: true},
	{file: "q8_0", name: "Q8_0", ident: "Q80", planes: []plane{{bytes8, 0}}, flip: true, offset: 128, max: 255},
	{file: "iq4_nl", name: "IQ4_NL", ident: "IQ4NL", planes: []plane{n4}, table: codebook, offset: 128, max: 241},
	{file: "mxfp4", name: "MXFP4", ident: "MXFP4", planes: []plane{n4}, table: doubledFP4, offset: 12, max: 24, scale: scaleE8M0},
	{file: "q2_k", name: "Q2_K", ident: "Q2K", super: true, planes: []plane{{bits2, 0}}, max: 3,
		scale: scaleSub, mins: true, halves: true, packed: true},
	{file: "q3_k", name: "Q3_K", ident: "Q3K", super: true, planes: []plane{{bits2, 0}, {bits1, 2}}, offset: 4, max: 7,
		scale: scaleSub, signed: true, halves: true},
	{file: "q4_k", name: "Q4_K", ident: "Q4K", super: true, planes: []plane{n4}, max: 15, scale: scaleSub, mins: true},
	{file: "q5_k", name: "Q5_K", ident: "Q5K", super: true, planes: []plane{n4, high5}, max: 31, scale: scaleSub, mins: true},
	{file: "q6_k", name: "Q6_K", ident: "Q6K", super: true, planes: []plane{n4, {bits2, 4}}, offset: 32, max: 63,
		scale: scaleSub, signed: true, halves: true},
	{file: "iq4_xs", name: "IQ4_XS", ident: "IQ4XS", super: true, planes: []plane{n4}, table: codebook, offset: 128, max: 241,
		scale: scaleSub, signed: true},
}

package main

// level is an instruction set that every format's kernels are generated for.
type level struct {
	name   string // package below asm and value of QUICKDRAFT_ISA
	bits   int    // 512: one vector holds a tile's 16 rows; 256: two vectors of 8 rows, one after the other
	vnni   bool   // VPDPBUSD; otherwise VPMADDUBSW, VPADDW while 16 bits suffice, VPMADDWD
	unroll bool   // one function per token count, sums in registers; otherwise a loop over tokens, sums in dst
	amx    bool   // products on matrix registers; kernels for fewestOnMatrix tokens on, and for formats with one scale for 32 columns
	doc    string // what the processor must have
}

var levels = []level{
	{name: "avx2", bits: 256, doc: "AVX2, FMA and F16C"},
	{name: "avxvnni", bits: 256, vnni: true, doc: "AVX2, FMA, F16C and AVX-VNNI (the VEX form of VPDPBUSD)"},
	{name: "avx512", bits: 512, doc: "AVX-512 F, BW, VL and DQ"},
	{name: "vnni", bits: 512, vnni: true, unroll: true, doc: "AVX-512 F, BW, VL, DQ and AVX512_VNNI"},
	{name: "amx", bits: 512, vnni: true, unroll: true, amx: true, doc: "AVX-512 F, BW, VL, DQ and AVX512_VNNI, AMX-TILE and AMX-INT8"},
}

// maxTokens and wideTokens are the token counts kernels exist for: 1..maxTokens, and wideTokens for prefill; on matrix registers
// fewestOnMatrix..wideTokens.
const (
	maxTokens  = 8
	wideTokens = 16

	fewestOnMatrix = 9
)

// formats are those that the level has kernels for.
func (lv *level) formats() []*format {
	if !lv.amx {
		return formats
	}
	var out []*format
	for _, f := range formats {
		if f.float == notFloat && !f.halves {
			out = append(out, f)
		}
	}
	return out
}

// tokenCounts are those that the level has kernels for.
func (lv *level) tokenCounts() []int {
	var out []int
	if lv.amx {
		for m := fewestOnMatrix; m <= wideTokens; m++ {
			out = append(out, m)
		}
		return out
	}
	for m := 1; m <= maxTokens; m++ {
		out = append(out, m)
	}
	return append(out, wideTokens)
}

package quant

import (
	"fmt"
	"strings"

	"quickdraft/asm/amx"
	"quickdraft/asm/avx2"
	"quickdraft/asm/avx512"
	"quickdraft/asm/avxvnni"
	"quickdraft/asm/cpu"
	"quickdraft/asm/vnni"
)

// level is the kernel package of an instruction set level, with its table by format name and activation rows.
type level struct {
	cpu.Level
	dots map[string][WideM + 1]func(*float32, int, *byte, int, *byte, int, int)
}

// candidate returns the kernel of the level for a format and m activation rows, or two where none takes so many.
func (l level) candidate(f *Format, m int) (Candidate, bool) {
	dots := l.dots[f.Name]
	name := fmt.Sprintf("%s.Dot%sx", l, strings.ReplaceAll(f.Name, "_", ""))
	if dots[m] != nil || m <= MaxM {
		return Candidate{Level: l.Level, Name: fmt.Sprint(name, m), Dot: dots[m]}, dots[m] != nil
	}
	low, high := (m+1)/2, m/2
	if dots[low] == nil || dots[high] == nil {
		return Candidate{}, false
	}
	return Candidate{Level: l.Level, Name: fmt.Sprintf("%s%d+%d", name, low, high), Dot: twice(f, m, dots[low], dots[high])}, true
}

// levels lists the kernel packages, best first.
var levels = []level{
	{cpu.AMX, amx.Dots},
	{cpu.VNNI, vnni.Dots},
	{cpu.AVX512, avx512.Dots},
	{cpu.AVXVNNI, avxvnni.Dots},
	{cpu.AVX2, avx2.Dots},
}

// kernels returns the assembly implementations for a format and m activation rows, best level first.
func kernels(f *Format, m int) []Candidate {
	var out []Candidate
	for _, l := range levels {
		if c, ok := l.candidate(f, m); ok {
			out = append(out, c)
		}
	}
	return out
}

// quantizeKernels returns the assembly implementations of QuantizeRow, best level first.
func quantizeKernels() []Quantizer {
	return []Quantizer{
		{cpu.AVX512, "avx512.Quantize", avx512.Quantize},
		{cpu.AVX2, "avx2.Quantize", avx2.Quantize},
	}
}

package sample

import (
	"quickdraft/asm/avx2"
	"quickdraft/asm/avx512"
	"quickdraft/asm/cpu"
)

// assembly lists the sets of this architecture, best level first. The levels with VNNI include one of these.
func assembly() []*kernelSet {
	return []*kernelSet{
		{
			level: cpu.AVX512,
			tops:  avx512.Tops, tops64: avx512.Tops64, widen: avx512.Widen, expSums: avx512.ExpSums, expSums64: avx512.ExpSums64,
			atLeast: avx512.AtLeast, atLeast64: avx512.AtLeast64, sumWhere: avx512.SumWhere,
			surprise: avx512.Surprise, surprise64: avx512.Surprise64, nearness: avx512.Nearness, forbid: avx512.Forbid,
		},
		{
			level: cpu.AVX2,
			tops:  avx2.Tops, tops64: avx2.Tops64, widen: avx2.Widen, expSums: avx2.ExpSums, expSums64: avx2.ExpSums64,
			atLeast: avx2.AtLeast, atLeast64: avx2.AtLeast64, sumWhere: avx2.SumWhere,
			surprise: avx2.Surprise, surprise64: avx2.Surprise64, nearness: avx2.Nearness, forbid: avx2.Forbid,
		},
	}
}

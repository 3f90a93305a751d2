package tensor

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
			add:   avx512.Add, scale: avx512.Scale, divide: avx512.Divide, silu: avx512.SiLUMul, gelu: avx512.GELUTanhMul,
			softcap: avx512.Softcap, sumSquares: avx512.SumSquares, mulWeights: avx512.MulWeights, rotate: avx512.Rotate,
			softmax: avx512.Softmax, scores: avx512.Scores[:], addRows: avx512.AddRows[:],
			scoresF32: avx512.ScoresF32[:], addRowsF32: avx512.AddRowsF32[:],
			tops: avx512.Tops, decodeKeys8: avx512.DecodeKeys8, decodeValues8: avx512.DecodeValues8,
			halves: avx512.Halves, toHalves: avx512.ToHalves,
		},
		{
			level: cpu.AVX2,
			add:   avx2.Add, scale: avx2.Scale, divide: avx2.Divide, silu: avx2.SiLUMul, gelu: avx2.GELUTanhMul,
			softcap: avx2.Softcap, sumSquares: avx2.SumSquares, mulWeights: avx2.MulWeights, rotate: avx2.Rotate,
			softmax: avx2.Softmax, scores: avx2.Scores[:], addRows: avx2.AddRows[:],
			scoresF32: avx2.ScoresF32[:], addRowsF32: avx2.AddRowsF32[:],
			tops: avx2.Tops, decodeKeys8: avx2.DecodeKeys8, decodeValues8: avx2.DecodeValues8,
			halves: avx2.Halves, toHalves: avx2.ToHalves,
		},
	}
}

package probe

import (
	"quickdraft/asm/amx"
	"quickdraft/asm/avx2"
	"quickdraft/asm/avx512"
	"quickdraft/asm/avxvnni"
	"quickdraft/asm/cpu"
	"quickdraft/asm/vnni"
)

func read(src *byte, nLines int) {
	switch {
	case cpu.Active(cpu.AVX512):
		avx512.Read(src, nLines)
	case cpu.Active(cpu.AVX2):
		avx2.Read(src, nLines)
	default:
		readGo(src, nLines)
	}
}

func peak(rounds int) int64 {
	perRound := 0
	switch cpu.Best() {
	case cpu.VNNI, cpu.AMX:
		vnni.Peak(rounds)
		perRound = vnni.PeakMACs
	case cpu.AVX512:
		avx512.Peak(rounds)
		perRound = avx512.PeakMACs
	case cpu.AVXVNNI:
		avxvnni.Peak(rounds)
		perRound = avxvnni.PeakMACs
	case cpu.AVX2:
		avx2.Peak(rounds)
		perRound = avx2.PeakMACs
	}
	return int64(rounds) * int64(perRound)
}

func instructions() string {
	switch cpu.Best() {
	case cpu.VNNI, cpu.AMX, cpu.AVXVNNI:
		return "VPDPBUSD"
	case cpu.AVX512, cpu.AVX2:
		return "VPMADDUBSW, VPADDW"
	}
	return "none"
}

func matrixPeak(rounds int) int64 {
	if !cpu.Active(cpu.AMX) {
		return 0
	}
	amx.Peak(rounds)
	return int64(rounds) * amx.PeakMACs
}

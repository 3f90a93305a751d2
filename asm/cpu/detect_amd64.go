package cpu

import (
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// detect returns the bit set of present levels. cpuid reports AVX and the AVX-512 features only when XCR0 says that the
// operating system saves YMM, respectively opmask and ZMM, state. It does not look at the tile state: requestTiles does.
func detect() uint8 { return levelsOf(cpuid.CPU.Supports) }

// least are the features without which no kernel runs.
var least = []struct {
	id   cpuid.FeatureID
	name string
}{{cpuid.AVX, "AVX"}, {cpuid.AVX2, "AVX2"}, {cpuid.FMA3, "FMA"}, {cpuid.F16C, "F16C"}, {cpuid.BMI2, "BMI2"}}

// missing says what the lowest level with kernels lacks here, or "".
func missing() string { return lacks(missingOf(cpuid.CPU.Supports)) }

func lacks(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "this processor or operating system lacks " + strings.Join(names, ", ")
}

func missingOf(has func(...cpuid.FeatureID) bool) (names []string) {
	for _, f := range least {
		if !has(f.id) {
			names = append(names, f.name)
		}
	}
	return names
}

// levelsOf returns the bit set of levels whose features has reports.
func levelsOf(has func(...cpuid.FeatureID) bool) uint8 {
	set := uint8(1 << Go)
	if len(missingOf(has)) > 0 {
		return set
	}
	set |= 1 << AVX2
	if has(cpuid.AVXVNNI) {
		set |= 1 << AVXVNNI
	}
	if !has(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ) {
		return set
	}
	set |= 1 << AVX512
	if !has(cpuid.AVX512VNNI) {
		return set
	}
	set |= 1 << VNNI
	if has(cpuid.AMXTILE, cpuid.AMXINT8) {
		set |= 1 << AMX
	}
	return set
}

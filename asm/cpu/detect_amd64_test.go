package cpu

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"
	"github.com/stretchr/testify/require"
)

// featuresOf are the features of each level, beside those of the levels in it, by the names that Linux has for them.
var featuresOf = map[Level]map[string]cpuid.FeatureID{
	AVX2:    {"avx": cpuid.AVX, "avx2": cpuid.AVX2, "fma": cpuid.FMA3, "f16c": cpuid.F16C, "bmi2": cpuid.BMI2},
	AVXVNNI: {"avx_vnni": cpuid.AVXVNNI},
	AVX512:  {"avx512f": cpuid.AVX512F, "avx512bw": cpuid.AVX512BW, "avx512vl": cpuid.AVX512VL, "avx512dq": cpuid.AVX512DQ},
	VNNI:    {"avx512_vnni": cpuid.AVX512VNNI},
	AMX:     {"amx_tile": cpuid.AMXTILE, "amx_int8": cpuid.AMXINT8},
}

// TestLevelsOfFeatures takes each feature away from a processor that has all: the levels that need it go, and no other.
func TestLevelsOfFeatures(t *testing.T) {
	levels := func(missing ...cpuid.FeatureID) uint8 {
		return levelsOf(func(ids ...cpuid.FeatureID) bool {
			return !slices.ContainsFunc(ids, func(id cpuid.FeatureID) bool { return slices.Contains(missing, id) })
		})
	}
	require.Equal(t, uint8(1<<Go|1<<AVX2|1<<AVXVNNI|1<<AVX512|1<<VNNI|1<<AMX), levels())
	for level, features := range featuresOf {
		for name, id := range features {
			got := levels(id)
			for _, l := range Levels() {
				require.Equal(t, !l.Includes(level), got&(1<<l) != 0, "%s without %s", l, name)
			}
		}
	}
	// An operating system that does not save ZMM state: the library reports none of AVX-512.
	require.Equal(t, uint8(1<<Go|1<<AVX2|1<<AVXVNNI), levels(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512VNNI))
}

// TestDetectAgreesWithTheSystem compares with Linux, which lists a feature only when it saves its registers.
func TestDetectAgreesWithTheSystem(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no list of the processor's features here")
	}
	_, line, found := strings.Cut(string(info), "\nflags")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	has := strings.Fields(line)
	if !strings.Contains(string(info), cpuid.CPU.BrandName) {
		t.Skip("an emulated processor is not the one that the system lists")
	}
	for _, l := range Levels() {
		want := l != AMX || !current.capped || current.cap.Includes(AMX)
		for level, features := range featuresOf {
			for name := range features {
				want = want && (!l.Includes(level) || slices.Contains(has, name))
			}
		}
		require.Equal(t, want, Has(l), "%s", l)
	}
}

func TestMissing(t *testing.T) {
	without := func(absent ...cpuid.FeatureID) func(...cpuid.FeatureID) bool {
		return func(ids ...cpuid.FeatureID) bool {
			for _, id := range ids {
				if slices.Contains(absent, id) {
					return false
				}
			}
			return true
		}
	}
	for _, c := range []struct {
		absent []cpuid.FeatureID
		want   string
	}{
		{nil, ""},
		{[]cpuid.FeatureID{cpuid.AVX512F, cpuid.AVXVNNI}, ""},
		{[]cpuid.FeatureID{cpuid.AVX2, cpuid.BMI2}, "this processor or operating system lacks AVX2, BMI2"},
		{[]cpuid.FeatureID{cpuid.AVX, cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI2}, "this processor or operating system lacks AVX, AVX2, FMA, F16C, BMI2"},
	} {
		require.Equal(t, c.want, lacks(missingOf(without(c.absent...))))
		require.Equal(t, c.want == "", levelsOf(without(c.absent...)) != 1<<Go)
	}
	require.Equal(t, Has(AVX2), Missing() == "")
}

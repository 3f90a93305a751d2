package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPartialOrder(t *testing.T) {
	includes := map[Level][]Level{
		Go:      {Go},
		AVX2:    {Go, AVX2},
		AVXVNNI: {Go, AVX2, AVXVNNI},
		AVX512:  {Go, AVX2, AVX512},
		VNNI:    {Go, AVX2, AVX512, VNNI},
		AMX:     {Go, AVX2, AVX512, VNNI, AMX},
	}
	for _, l := range Levels() {
		var got []Level
		for _, m := range Levels() {
			if l.Includes(m) {
				got = append(got, m)
			}
		}
		require.Equal(t, includes[l], got, "%s", l)
	}
}

func TestParseLevel(t *testing.T) {
	for _, l := range Levels() {
		got, err := ParseLevel(l.String())
		require.NoError(t, err)
		require.Equal(t, l, got)
	}
	_, err := ParseLevel("AVX10")
	require.EqualError(t, err, `unknown instruction set "AVX10"; known are go, avx2, avxvnni, avx512, vnni, amx`)
	require.Equal(t, "level(9)", Level(9).String())
	require.False(t, Level(9).Includes(Go))
}

func TestChoose(t *testing.T) {
	const server = 1<<Go | 1<<AVX2 | 1<<AVXVNNI | 1<<AVX512 | 1<<VNNI
	const all = server | 1<<AMX
	const laptop = 1<<Go | 1<<AVX2 | 1<<AVXVNNI
	for _, c := range []struct {
		present uint8
		isa     string
		best    Level
		active  []Level
		err     string
	}{
		{all, "", AMX, Levels(), ""},
		{all, "amx", AMX, []Level{Go, AVX2, AVX512, VNNI, AMX}, ""},
		{all, "vnni", VNNI, []Level{Go, AVX2, AVX512, VNNI}, ""},
		{all, "avx512", AVX512, []Level{Go, AVX2, AVX512}, ""},
		{all, "avxvnni", AVXVNNI, []Level{Go, AVX2, AVXVNNI}, ""},
		{all, "avx2", AVX2, []Level{Go, AVX2}, ""},
		{all, "go", Go, []Level{Go}, ""},
		{laptop, "", AVXVNNI, []Level{Go, AVX2, AVXVNNI}, ""},
		{laptop, "vnni", AVX2, []Level{Go, AVX2}, "QUICKDRAFT_ISA=vnni: this processor or operating system lacks vnni; it has go, avx2, avxvnni"},
		{0, "", Go, []Level{Go}, ""},
		{all, "sse", Go, []Level{Go}, `QUICKDRAFT_ISA: unknown instruction set "sse"; known are go, avx2, avxvnni, avx512, vnni, amx`},
		{server, "", VNNI, []Level{Go, AVX2, AVXVNNI, AVX512, VNNI}, ""},
		{server, "amx", VNNI, []Level{Go, AVX2, AVX512, VNNI}, "QUICKDRAFT_ISA=amx: this processor or operating system lacks amx; it has go, avx2, avxvnni, avx512, vnni"},
	} {
		got := choose(c.present, c.isa)
		var active []Level
		for _, l := range Levels() {
			if got.active(l) {
				active = append(active, l)
			}
		}
		require.Equal(t, c.active, active, "isa %q", c.isa)
		require.Equal(t, c.best, got.best(), "isa %q", c.isa)
		if c.err == "" {
			require.NoError(t, got.err)
			continue
		}
		require.EqualError(t, got.err, c.err)
	}
}

// TestTilesAreRequested asks for the tile state only where kernels could use it, and has no AMX where that is refused.
func TestTilesAreRequested(t *testing.T) {
	const server = 1<<Go | 1<<AVX2 | 1<<AVX512 | 1<<VNNI
	for _, c := range []struct {
		present  uint8
		isa      string
		grant    bool
		requests int
		best     Level
	}{
		{server | 1<<AMX, "", true, 1, AMX},
		{server | 1<<AMX, "amx", true, 1, AMX},
		{server | 1<<AMX, "", false, 1, VNNI},
		{server | 1<<AMX, "amx", false, 1, VNNI},
		{server | 1<<AMX, "vnni", true, 0, VNNI},
		{server | 1<<AMX, "avx2", true, 0, AVX2},
		{server | 1<<AMX, "sse", true, 0, Go},
		{server, "", true, 0, VNNI},
	} {
		requests := 0
		got := start(c.present, c.isa, func() bool { requests++; return c.grant })
		require.Equal(t, c.requests, requests, "%+v", c)
		require.Equal(t, c.best, got.best(), "%+v", c)
		require.Equal(t, c.best == AMX, got.present&(1<<AMX) != 0, "%+v", c)
		require.Equal(t, got.present&^(1<<AMX), uint8(server), "%+v", c)
		require.Equal(t, c.isa == "sse" || c.isa == "amx" && !c.grant, got.err != nil, "%+v: %v", c, got.err)
	}
}

func TestDetectIsOrdered(t *testing.T) {
	for _, l := range Levels() {
		for _, m := range Levels() {
			if Has(l) && l.Includes(m) {
				require.True(t, Has(m), "%s is present, so %s must be", l, m)
			}
		}
	}
	require.True(t, Active(Go))
	require.True(t, Active(Best()))
	if level, capped := Cap(); capped && Err() == nil {
		require.Equal(t, level, Best())
	}
}

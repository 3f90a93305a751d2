package probe

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

// TestReadGoAddsUpEveryLine compares the sums with those of the words one by one.
func TestReadGoAddsUpEveryLine(t *testing.T) {
	b := make([]byte, 9*lineBytes)
	for i := range b {
		b[i] = byte(i*7 + i/256)
	}
	for lines := range 10 {
		var sums [8]uint64
		for i := range 8 * lines {
			sums[i%8] += binary.NativeEndian.Uint64(b[8*i:])
		}
		readGo(&b[0], lines)
		want := uint64(0)
		for _, s := range sums {
			want ^= s
		}
		require.Equal(t, want, sink.Load(), "%d lines", lines)
	}
}

func TestInt8PeakCounts(t *testing.T) {
	if cpu.Best() == cpu.Go {
		require.Zero(t, Int8Peak(10))
		return
	}
	one := Int8Peak(1)
	require.Positive(t, one)
	require.Equal(t, 1000*one, Int8Peak(1000))
	require.Zero(t, Int8Peak(0))
}

// TestInt8PeakRunsWhatItSays reads the loop in the assembly of the level in use.
func TestInt8PeakRunsWhatItSays(t *testing.T) {
	folder := cpu.Best().String()
	switch cpu.Best() {
	case cpu.Go:
		require.Equal(t, "none", Int8Instructions())
		return
	case cpu.AMX:
		folder = "vnni"
	}
	text, err := os.ReadFile(filepath.Join("..", folder, "probe_amd64.s"))
	require.NoError(t, err)
	_, loop, found := strings.Cut(string(text), "TEXT ·Peak(")
	require.True(t, found)
	_, loop, found = strings.Cut(loop, "round:")
	require.True(t, found)
	loop, _, found = strings.Cut(loop, "JNE")
	require.True(t, found)
	var names []string
	for _, name := range regexp.MustCompile(`\bVP\w+`).FindAllString(loop, -1) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	require.Equal(t, strings.Join(names, ", "), Int8Instructions())
}

func TestMatrixPeakCounts(t *testing.T) {
	if !cpu.Active(cpu.AMX) {
		require.Zero(t, MatrixPeak(10))
		return
	}
	one := MatrixPeak(1)
	require.Positive(t, one)
	require.Equal(t, 100*one, MatrixPeak(100))
	require.Zero(t, MatrixPeak(0))
}

func BenchmarkInt8Peak(b *testing.B) {
	var macs int64
	for b.Loop() {
		macs += Int8Peak(10000)
	}
	b.ReportMetric(float64(macs)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkRead(b *testing.B) {
	for name, size := range map[string]int{"16KiB": 16 << 10, "1MiB": 1 << 20, "64MiB": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				Read(buf)
			}
		})
	}
}

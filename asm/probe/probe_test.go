package probe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
)

func TestReadStaysInside(t *testing.T) {
	b := make([]byte, 64*9+63)
	for n := range b {
		require.NotPanics(t, func() { Read(b[:n]) }, "%d bytes", n)
	}
	readGo(&b[0], 9)
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

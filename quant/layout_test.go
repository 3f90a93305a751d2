package quant

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLayoutVersion holds every format's tiles to the bytes that belong to LayoutVersion: files of tiles outlive the
// program that wrote them. A failure here means a new version and new sums.
func TestLayoutVersion(t *testing.T) {
	const rows, cols, wantVersion = 19, 512, 1
	require.Equal(t, wantVersion, LayoutVersion)
	for _, f := range All() {
		rng := rand.New(rand.NewPCG(11, uint64(f.Type)))
		src := make([]byte, rows*f.RowBytes(cols))
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		tiles := make([]byte, Tiles(rows)*f.TileSize(cols))
		PackMatrix(tiles, f.Type, src, rows, cols, 0, Tiles(rows), nil)
		want, ok := layoutSums[f.Name]
		require.True(t, ok, f.Name)
		require.Equal(t, want, crc32.ChecksumIEEE(tiles), "%s: %#08x", f.Name, crc32.ChecksumIEEE(tiles))
	}
}

// layoutSums are CRC-32 sums of the tiles.
var layoutSums = map[string]uint32{
	"F32":    0x05c61e38,
	"F16":    0xa34f7fba,
	"Q4_0":   0xa7800036,
	"Q4_1":   0x94fb6cd6,
	"Q5_0":   0x6240a8cc,
	"Q5_1":   0xe46c4094,
	"Q8_0":   0x2cb0aac0,
	"Q2_K":   0xfe3a51bf,
	"Q3_K":   0x30c13fa1,
	"Q4_K":   0x5b3228bc,
	"Q5_K":   0x18ede17d,
	"Q6_K":   0x69da22dc,
	"IQ4_NL": 0xecd2d8d3,
	"IQ4_XS": 0x7aef0017,
	"BF16":   0xf632b35e,
	"MXFP4":  0xbb13707c,
}

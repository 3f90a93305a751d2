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

var layoutSums = map[string]uint32{}

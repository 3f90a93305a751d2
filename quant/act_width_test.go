package quant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuantizeRowWantsWholeBlocks refuses every width that is not a multiple of 32, and a destination that is too short.
func TestQuantizeRowWantsWholeBlocks(t *testing.T) {
	dst := make([]byte, ActBytes(256))
	for n := range 129 {
		quantize := func() { QuantizeRow(dst, make([]float32, n)) }
		if n%ActBlockCols == 0 {
			require.NotPanics(t, quantize, "%d columns", n)
			continue
		}
		require.Panics(t, quantize, "%d columns", n)
	}
	require.Panics(t, func() { QuantizeRow(make([]byte, 64), make([]float32, 64)) })
}

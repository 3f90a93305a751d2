package invariants

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWithin(t *testing.T) {
	t.Logf("this machine takes %.2f times as long as usual", slowness())
	require.True(t, Within(time.Second, time.Second))
	require.False(t, Within(1000*time.Hour, time.Second), "on no machine")
	took, allocated := Cost(sums)
	require.True(t, Within(took, 10*usual))
	require.Greater(t, allocated, uint64(100_000))
}

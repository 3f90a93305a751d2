package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheoryPrintsThePublishedFigures(t *testing.T) {
	th := NewTheory()
	require.Len(t, th.Operations, 6)
	require.InDelta(t, 1.53, th.Operations[0].Ops, 0.0051)
	require.InDelta(t, 6.86, th.Operations[5].Speed, 0.0051)
	require.Len(t, th.Measured, 12)
	require.InDelta(t, 3.2, th.Measured[0].Speed, 0.1)
	for _, r := range append(th.Measured, th.Alphas...) {
		require.GreaterOrEqual(t, r.BestTime, r.Speed)
		require.Equal(t, r.Alpha > r.C, r.Best > 0, "an improvement exists where alpha is above c: %+v", r)
	}
	require.Contains(t, th.String(), "1.53x")
}

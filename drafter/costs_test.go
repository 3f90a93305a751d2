package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCostsReadBetweenAndBeyond(t *testing.T) {
	pass, draft := NewCosts(32, false), NewCosts(32, true)
	require.Zero(t, pass.At(3))
	pass.Set(4, 8)
	draft.Set(4, 8)
	require.Equal(t, 8.0, pass.At(1), "below what was measured a pass costs as much")
	require.Equal(t, 2.0, draft.At(1))
	require.Equal(t, 16.0, pass.At(8))
	pass.Set(8, 12)
	require.Equal(t, 10.0, pass.At(6))
	require.Equal(t, 20.0, pass.At(16))
	require.Equal(t, 44.0, pass.At(40))
	require.Zero(t, pass.At(0))
}

func TestCostsNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCosts(24, rapid.Bool().Draw(t, "from zero"))
		for range rapid.IntRange(0, 60).Draw(t, "observations") {
			n, s := rapid.IntRange(-1, 30).Draw(t, "n"), rapid.Float64Range(-1, 10).Draw(t, "seconds")
			if rapid.Bool().Draw(t, "set") {
				c.Set(n, s)
			} else {
				c.Observe(n, s)
			}
		}
		for n := 1; n < 40; n++ {
			if c.At(n) < 0 || c.At(n+1) < c.At(n)-1e-12 {
				t.Fatalf("%d costs %v, %d costs %v", n, c.At(n), n+1, c.At(n+1))
			}
		}
	})
}

func TestCostsFollowTheMachine(t *testing.T) {
	c := NewCosts(16, false)
	for n := 1; n <= 16; n++ {
		c.Set(n, 1+0.1*float64(n))
	}
	for range 40 {
		c.Observe(5, 3) // twice as slow
	}
	require.InDelta(t, 3, c.At(5), 0.05)
	require.Greater(t, c.At(4), 1.5, "other counts follow")
	c.Observe(5, 1e9)
	require.Less(t, c.At(5), 4.0, "one outlier moves little")
}

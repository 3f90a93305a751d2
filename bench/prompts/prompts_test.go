package prompts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachKindHasTenPrompts(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range Kinds {
		set := Set(kind)
		require.Len(t, set, 10, kind)
		for _, p := range set {
			require.NotEmpty(t, p)
			require.False(t, seen[p], "twice: %s", p)
			seen[p] = true
		}
	}
	require.Nil(t, Set("nonsense"))
}

package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/engine"
	"quickdraft/internal/golden"
)

func TestFiguresOfGuesses(t *testing.T) {
	e, err := engine.Open(filepath.Join(golden.Dir(t, "archs"), "llama3-rope"), engine.Options{Context: 32})
	require.NoError(t, err)
	defer e.Close()
	m := &loaded{Engine: e}
	f := newFigures(m, engine.Stats{PromptTokens: 7, DecodedTokens: 11, Passes: 4, Decode: time.Second, Spec: engine.SpecStats{
		Rounds: 3, Drafted: 8, Accepted: 6, Failed: 1, Offered: []int{3, 3, 2}, PerDepth: []int{3, 2, 1},
	}})
	data, err := json.Marshal(f)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	require.EqualValues(t, 8, got["draft_n"])
	require.EqualValues(t, 6, got["draft_n_accepted"])
	require.EqualValues(t, 0.75, got["draft_acceptance_rate"])
	require.Equal(t, []any{3.0, 3.0, 2.0}, got["draft_n_per_position"])
	require.Equal(t, []any{3.0, 2.0, 1.0}, got["draft_n_accepted_per_position"])
	require.EqualValues(t, 1, got["draft_failed"])
	require.InDelta(t, 10.0, got["decode_tokens_per_second"], 1e-9)
	require.InDelta(t, 4*float64(m.Model().WeightBytes())/1e9, got["weight_gbps"], 1e-12)
	require.NotContains(t, got, "lossy")
	none := newFigures(m, engine.Stats{PromptTokens: 1})
	require.Zero(t, none.DraftRate)
}

package engine

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/sample"
)

// t5Golden is the part of an encoder-decoder's reference that an engine can show.
type t5Golden struct {
	Sequences []struct {
		Input  []int32 `json:"encoder_input_ids"`
		Greedy []int32 `json:"greedy"`
	}
}

func TestEncoderDecoder(t *testing.T) {
	for _, name := range []string{"t5-relu-tied", "t5-v1_1-gated-gelu"} {
		dir := filepath.Join(golden.Dir(t, "archs"), name)
		var g t5Golden
		golden.ReadJSON(t, filepath.Join(dir, "goldens.json"), &g)
		require.NotEmpty(t, g.Sequences)
		e, err := Open(dir, Options{F32: true, Threads: 2, Context: 64})
		require.NoError(t, err)
		var tickets []*Ticket
		for _, s := range g.Sequences {
			ticket, err := e.Submit(context.Background(), Request{
				Prompt: s.Input, MaxTokens: len(s.Greedy), Sampling: sample.Greedy(), IgnoreEOS: true,
			})
			require.NoError(t, err)
			tickets = append(tickets, ticket)
		}
		for i, ticket := range tickets {
			ids, why := drain(t, ticket)
			require.Equal(t, g.Sequences[i].Greedy, ids, "%s %d", name, i)
			require.Equal(t, FinishLength, why)
		}
		_, err = e.SubmitChoices(context.Background(), Request{Prompt: g.Sequences[0].Input, MaxTokens: 4, Sampling: sample.Greedy()}, 2, nil)
		require.ErrorIs(t, err, errEncoder)
		_, err = e.Beams(context.Background(), Request{Prompt: g.Sequences[0].Input, MaxTokens: 4, Sampling: sample.Greedy()}, BeamOptions{Beams: 2})
		require.ErrorIs(t, err, errEncoder)
		require.NoError(t, e.Close())
	}
}

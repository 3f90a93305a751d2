package engine

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/tensor"
)

// logitBits opens an engine that notes the bits of every row of logits.
func logitBits(t *testing.T, arch string, o Options) (*Engine, *[][]uint32) {
	e := open(t, filepath.Join(golden.Dir(t, "archs"), arch), o)
	var rows [][]uint32
	e.forward = func(b *model.Batch) (tensor.F32, error) {
		logits, err := e.model.Forward(b)
		if !slices.ContainsFunc(e.active, func(r *run) bool { return r.seq == b.Spans[0].Seq }) {
			return logits, err // a calibration's, which come when there is time for them
		}
		for i := range b.Logits {
			row := make([]uint32, logits.Cols)
			for j, x := range logits.Row(i) {
				row[j] = math.Float32bits(x)
			}
			rows = append(rows, row)
		}
		return logits, err
	}
	return e, &rows
}

// TestContiguousGivesTheBitsOfThePagedCache runs a stream of requests that continue, change and repeat what was there, with
// guesses that are taken back, on both caches.
func TestContiguousGivesTheBitsOfThePagedCache(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "gemma3-text"} {
		for _, types := range []string{"f16", "q8_0"} {
			var want [][]uint32
			for _, contiguous := range []bool{false, true} {
				o := Options{Context: 256, MaxRunning: 1, Contiguous: contiguous, CacheTypeK: types, CacheTypeV: types}
				o.Spec = SpecOptions{NMax: 4, Fixed: 4, Drafter: &scripted{guess: func(_ *scripted, r *drafter.Round) {
					parent := int32(-1)
					for i := range 3 { // right now and then
						parent = r.Tree.Add((r.IDs[len(r.IDs)-1]+int32(i))%200, parent, nil)
					}
				}}}
				e, rows := logitBits(t, arch, o)
				chat := request(1, 40, 20)
				for turn := range 4 {
					ids, _ := answer(t, e, chat)
					chat.Prompt = append(append([]int32{}, chat.Prompt...), append(ids, request(turn, 15, 0).Prompt...)...)
				}
				again := request(1, 40, 25)
				again.Prompt[30]++
				answer(t, e, again)
				answer(t, e, request(7, 60, 25))
				again.Prompt[35]++ // with a last prompt token alone in a pass, there would be guesses after it
				answer(t, e, again)
				require.NoError(t, e.Close())
				if want == nil {
					want = *rows
					require.Greater(t, len(want), 100)
					continue
				}
				for i, row := range *rows {
					require.True(t, i < len(want) && slices.Equal(want[i], row), "%s, %s: row %d of %d, %d with the paged cache", arch, types, i, len(*rows), len(want))
				}
				require.Len(t, want, len(*rows))
			}
		}
	}
}

func TestContiguousEngine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, WriteTinyModel(file, nil))
	o := Options{Context: 256, Contiguous: true, Threads: 1}
	e := open(t, file, o)
	first := request(1, 150, 10)
	want := whole(t, submit(t, e, first))
	longer := request(1, 150, 10)
	longer.Prompt = append(longer.Prompt, 9, 8, 7)
	ticket := submit(t, e, longer)
	whole(t, ticket)
	require.Equal(t, 150, ticket.Stats().CachedTokens)

	tickets, err := e.SubmitChoices(context.Background(), first, 3, nil)
	require.NoError(t, err)
	for i, ticket := range tickets {
		got := whole(t, ticket)
		require.Len(t, got, 11)
		if i == 0 {
			require.Equal(t, want, got)
		}
		require.Equal(t, 149, ticket.Stats().CachedTokens, "choice %d", i)
	}

	path := filepath.Join(t.TempDir(), "prefix")
	require.NoError(t, e.SavePrefix(t.Context(), path, first.Prompt))
	other := open(t, file, o)
	ids, err := other.RestorePrefix(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, first.Prompt, ids)
	ticket = submit(t, other, first)
	require.Equal(t, want, whole(t, ticket))
	require.Equal(t, 149, ticket.Stats().CachedTokens)

	_, err = e.Beams(t.Context(), first, BeamOptions{Beams: 2})
	require.EqualError(t, err, "num_beams: 2: not with a contiguous KV cache, which holds one sequence")
	_, err = Open(file, Options{Contiguous: true, MaxRunning: 2})
	require.EqualError(t, err, "running requests: 2 with a contiguous KV cache, which holds 1")
	_, err = Open(file, Options{StallTarget: -1})
	require.EqualError(t, err, "stall target: -1ns is negative")
}

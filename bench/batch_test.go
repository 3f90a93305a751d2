package bench

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/engine"
	"quickdraft/modelfile/gguf"
	"quickdraft/sample"
)

func TestDecoding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, tiny.Write(t.Context(), path, gguf.TypeQ8_0))
	o := BatchOptions{Streams: []int{1, 3}, Prompt: 9, Tokens: 40, Rounds: 2, Sample: sample.Default()}
	e, err := engine.Open(path, engine.Options{Threads: 2, Context: o.MaxTokens(), KVTokens: o.KVTokens(), MaxRunning: 3})
	require.NoError(t, err)
	defer e.Close()
	res, err := Decoding(context.Background(), e, "tiny", o)
	require.NoError(t, err)
	m := fields(t, res)
	positive(t, m, "dram_gbps", "prompt_tokens", "tokens_each", "rounds")
	rows := m["rows"].([]any)
	require.Len(t, rows, 2)
	for i, r := range rows {
		row := r.(map[string]any)
		require.EqualValues(t, o.Streams[i], row["streams"])
		require.EqualValues(t, o.Tokens, row["steps"])
		positive(t, row, "tokens_per_second", "ratio", "step_ms", "kernel_ms", "attention_ms", "other_ms", "sampling_ms", "scheduler_ms", "overhead_share")
		parts := 0.0
		for _, key := range []string{"kernel_ms", "attention_ms", "other_ms", "sampling_ms", "scheduler_ms", "idle_ms"} {
			parts += row[key].(float64)
		}
		require.InEpsilon(t, row["step_ms"], parts, 0.01, "the parts of a step")
		require.InEpsilon(t, 1e3*float64(o.Streams[i])/row["step_ms"].(float64), row["tokens_per_second"], 0.35, "tokens of a step")
	}
	require.EqualValues(t, 1, res.Rows[0].Ratio)
	require.Contains(t, res.String(), "streams   tokens/s")

	o.Prompt = 2000
	_, err = Decoding(context.Background(), e, "tiny", o)
	require.ErrorContains(t, err, "1 streams: prompt: 2000 tokens do not fit")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Prompt = 9
	_, err = Decoding(ctx, e, "tiny", o)
	require.ErrorIs(t, err, context.Canceled)
}

func TestStalling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, tiny.Write(t.Context(), path, gguf.TypeQ8_0))
	o := BatchOptions{Streams: []int{1, 3}, Prompt: 9, Tokens: 20, Rounds: 2, Stall: 900, Sample: sample.Default()}
	e, err := engine.Open(path, engine.Options{
		Threads: 2, Context: o.MaxTokens(), KVTokens: o.KVTokens(), MaxRunning: 4, NoPrefix: true, StallTarget: 5 * time.Millisecond,
	})
	require.NoError(t, err)
	defer e.Close()
	began := time.Now()
	res, err := Stalling(context.Background(), e, "tiny", o)
	took := time.Since(began)
	require.NoError(t, err)
	m := fields(t, res)
	positive(t, m, "dram_gbps", "prompt_tokens", "rounds")
	require.EqualValues(t, 5, m["target_ms"])
	rows := m["rows"].([]any)
	require.Len(t, rows, 2)
	for i, r := range rows {
		row := r.(map[string]any)
		require.EqualValues(t, o.Streams[i], row["streams"])
		positive(t, row, "median_gap_before_ms", "max_gap_before_ms", "median_gap_ms", "p99_gap_ms", "max_gap_ms", "prompt_seconds", "prompt_tokens_per_second", "streams_tokens_per_second")
		require.GreaterOrEqual(t, row["p99_gap_ms"], row["median_gap_ms"])
		require.GreaterOrEqual(t, row["max_gap_ms"], row["p99_gap_ms"])
		require.GreaterOrEqual(t, row["gaps"].(float64), float64(2*o.Streams[i]), "in both rounds every stream waited at least once")
		require.LessOrEqual(t, row["max_gap_ms"].(float64), 1e3*took.Seconds())
	}
	require.Contains(t, res.String(), "a prompt of 900 tokens arrives, target of a pass 5 ms")

	o.Stall = 3000
	_, err = Stalling(context.Background(), e, "tiny", o)
	require.ErrorContains(t, err, "1 streams: prompt: 3000 tokens do not fit")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Stall = 900
	_, err = Stalling(ctx, e, "tiny", o)
	require.ErrorIs(t, err, context.Canceled)
}

// TestGapsBelongToThePromptOrNot gives a stream's tokens by hand.
func TestGapsBelongToThePromptOrNot(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	s := stallSum{streams: 1, took: 200 * time.Millisecond}
	s.add([]time.Time{at(0), at(10), at(30), at(90), at(190), at(240), at(250)}, at(30), at(200))
	row := s.row(50)
	require.InDelta(t, 15, row.Before, 1e-9)
	require.Equal(t, 3, row.Gaps, "the gap that the prompt's first token falls into counts")
	require.InDelta(t, 60, row.Median, 1e-9)
	require.InDelta(t, 100, row.Max, 1e-9)
	require.InDelta(t, 250, row.PromptTPS, 1e-9)
	require.InDelta(t, 15, row.StreamTPS, 1e-9)
}

package bench

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/engine"
	"quickdraft/modelfile/gguf"
	"quickdraft/sample"
)

func TestDecoding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, tiny.Write(path, gguf.TypeQ8_0))
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

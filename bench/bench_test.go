package bench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
	"quickdraft/asm/probe"
	"quickdraft/model"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
	"quickdraft/text"
)

func TestMain(m *testing.M) {
	dramBytes = func() int { return 16 << 20 } // speed is not what tests look at
	os.Exit(m.Run())
}

// tiny is a shape that takes no time.
var tiny = Shape{
	Name: "tiny", Arch: "llama", Layers: 2, Dim: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 512, Vocab: 600, Context: 1024,
	RopeBase: 10000, Eps: 1e-5, Tied: true,
}

func runner(t *testing.T, maxTokens int) *Runner {
	t.Helper()
	pool := tensor.NewPool(2)
	t.Cleanup(pool.Close)
	m, err := tiny.Build(gguf.TypeQ4_0, model.Options{Pool: pool, MaxBatch: 32})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	r, err := NewRunner("tiny", m, maxTokens)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// fields turns a result into what --json prints.
func fields(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(data, &m))
	for _, key := range []string{"command", "machine", "isa", "threads"} {
		require.Contains(t, m, key)
	}
	return m
}

func positive(t *testing.T, m map[string]any, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.Contains(t, m, key)
		require.Positive(t, m[key], key)
	}
}

func TestPasses(t *testing.T) {
	r := runner(t, 100)
	require.EqualValues(t, 600*256, r.Work.LogitMACs)
	require.EqualValues(t, 2*(256*256*2+256*128*2+3*256*512), r.Work.TokenMACs)

	d, err := r.Decode(context.Background(), 20, 12, 2)
	require.NoError(t, err)
	positive(t, fields(t, d), "tokens_per_second", "weight_gbps", "dram_gbps", "bandwidth_share", "roofline_ratio")
	require.Equal(t, 24, d.Tokens)
	require.InEpsilon(t, d.TokensPerSecond*float64(r.Work.WeightBytes)/1e9, d.WeightGBps, 1e-9)
	require.Contains(t, d.String(), "tokens/s")

	v, err := r.Verify(context.Background(), 10, 16, 2)
	require.NoError(t, err)
	rows := fields(t, v)["rows"].([]any)
	require.Len(t, rows, 16)
	for i, row := range rows {
		m := row.(map[string]any)
		positive(t, m, "m", "ms", "ratio", "roofline_ratio")
		require.EqualValues(t, i+1, m["m"])
	}
	require.EqualValues(t, 1, v.Rows[0].Ratio)
	require.InEpsilon(t, v.Rows[7].Ms/v.Rows[0].Ms, v.Rows[7].Ratio, 1e-9)
	require.Contains(t, v.String(), "roofline")

	p, err := r.Prefill(context.Background(), 100, 2)
	require.NoError(t, err)
	f := fields(t, p)
	positive(t, f, "tokens_per_second", "gmacs", "roofline_ratio")
	if cpu.Best() != cpu.Go {
		positive(t, f, "peak_share", "peak_gmacs")
	}
	require.Contains(t, p.String(), "prefill")
}

func TestRunnerRefuses(t *testing.T) {
	r := runner(t, 8)
	_, err := NewRunner("tiny", r.model, 1025)
	require.ErrorContains(t, err, "want 1 to 1024")
	ctx, stop := context.WithCancel(context.Background())
	stop()
	_, err = r.Decode(ctx, 1, 4, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = r.Verify(ctx, 1, 2, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = r.Prefill(ctx, 4, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRooflineOfAPass(t *testing.T) {
	w := Work{WeightBytes: 1e9, TokenMACs: 2e9, LogitMACs: 1e9}
	at := Limit{DRAM: 40, Peak: 400}
	require.InDelta(t, 0.025, w.Roofline(1, 1, at), 1e-12, "reading")
	require.InDelta(t, 0.06, w.Roofline(8, 8, at), 1e-12, "products")
	require.InDelta(t, 0.0425, w.Roofline(8, 1, at), 1e-12, "one row of logits")
	require.InDelta(t, 0.025, w.Roofline(100, 1, Limit{DRAM: 40}), 1e-12, "no peak known")
}

func TestMeasureRoofline(t *testing.T) {
	saved := workingSets
	workingSets = []int{1, 4}
	defer func() { workingSets = saved }()
	res, err := MeasureRoofline(context.Background(), 2, 1)
	require.NoError(t, err)
	require.Len(t, res.Reads, 6)
	require.Len(t, res.Peaks, 2)
	if cpu.Active(cpu.AMX) {
		require.Len(t, res.MatrixPeaks, 2)
		require.Positive(t, res.MatrixPeaks[0].GMACs)
		require.Contains(t, res.String(), "amx int8")
	} else {
		require.Empty(t, res.MatrixPeaks)
	}
	for _, row := range res.Reads {
		require.Positive(t, row.GBps)
	}
	require.Greater(t, res.Chain.Bytes, 15<<20)
	require.LessOrEqual(t, res.Chain.Bytes, 17<<20)
	positive(t, fields(t, res)["chain"].(map[string]any), "gbps", "l3_gbps", "share")
	res.Place, err = runner(t, 64).PlaceModel(context.Background())
	require.NoError(t, err)
	require.Contains(t, res.String(), "place")
	require.Regexp(t, `int8 +(\d+|n/a) +n/a  `+probe.Int8Instructions(), res.String(), "measured once")
	require.Regexp(t, `in cache: .* GB/s \(spread n/a\)`, res.String())
	require.Nil(t, fields(t, res)["reads"].([]any)[0].(map[string]any)["spread"])
	require.Equal(t, []int{1, 2, 4, 6}, threadCounts(6))
	require.Equal(t, []int{1}, threadCounts(1))
}

// TestShapeFile reads a written shape back: it is a model, has a tokenizer, and is the same one that Build makes.
func TestShapeFile(t *testing.T) {
	for _, s := range []Shape{tiny, {
		Name: "tiny2", Arch: "qwen2", Layers: 1, Dim: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 512, Vocab: 700, Context: 64,
		RopeBase: 10000, Eps: 1e-6, AttnBias: true,
	}} {
		path := filepath.Join(t.TempDir(), "shape.gguf")
		require.NoError(t, s.Write(t.Context(), path, gguf.TypeQ8_0))
		m, err := model.Load(path, model.Options{})
		require.NoError(t, err)
		built, err := s.Build(gguf.TypeQ8_0, model.Options{})
		require.NoError(t, err)
		require.Equal(t, built.WeightBytes(), m.WeightBytes())
		require.NoError(t, built.Close())
		tok, err := text.Open(path)
		require.NoError(t, err)
		require.Equal(t, s.Vocab, tok.Tokenizer.VocabSize())
		require.Equal(t, "a  b", tok.Tokenizer.Decode(tok.Tokenizer.EncodePrompt("a  b"), true))
		r, err := NewRunner(path, m, 16)
		require.NoError(t, err)
		require.NoError(t, r.fill(16))
		r.Close()
		require.NoError(t, m.Close())
	}
	require.ErrorContains(t, tiny.Write(t.Context(), filepath.Join(t.TempDir(), "x"), gguf.Type(99)), "block")
	_, err := FindShape("gpt-5")
	require.ErrorContains(t, err, "llama-3.2-1b, llama-3.2-3b, qwen2.5-coder-7b")
	s, err := FindShape("Llama-3.2-3B")
	require.NoError(t, err)
	require.Equal(t, "llama-3.2-3b", s.Name)
}

func TestMedianAndSpread(t *testing.T) {
	require.Zero(t, Median(nil))
	require.Equal(t, 2.5, Median([]float64{4, 1, 2, 3}))
	require.Equal(t, Spread(1.5), SpreadOf([]float64{1, 2, 4}))
	x := []float64{100, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	require.Zero(t, SpreadOf(x), "one interruption in twenty does not count")
}

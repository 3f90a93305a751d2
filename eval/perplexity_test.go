package eval

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/tensor"
)

// openTiny loads a random-weight model of the golden set.
func openTiny(t *testing.T, name string, o model.Options) *model.Model {
	t.Helper()
	o.Pool = tensor.NewPool(2)
	t.Cleanup(o.Pool.Close)
	m, err := model.Load(filepath.Join(golden.Dir(t, "archs"), name), o)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func text(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i*i*37%200 + i%7)
	}
	return ids
}

// nlls computes the negative log-likelihood of each token of a window but the first, every prefix from the start.
func nlls(t *testing.T, m *model.Model, ids []int32) []float64 {
	t.Helper()
	cache, err := m.NewCache(8)
	require.NoError(t, err)
	defer cache.Close()
	var all []float64
	for n := 1; n < len(ids); n++ {
		seq := cache.NewSeq()
		logits, err := m.Forward(&model.Batch{
			Tokens: ids[:n], Spans: []model.Span{{Seq: seq, N: n, Prompt: len(ids)}}, Logits: []int32{int32(n - 1)},
		})
		require.NoError(t, err)
		seq.Free()
		var z float64
		for _, x := range logits.Row(0) {
			z += math.Exp(float64(x))
		}
		all = append(all, math.Log(z)-float64(logits.Row(0)[ids[n]]))
	}
	return all
}

func TestPerplexity(t *testing.T) {
	for _, tc := range []struct {
		name            string
		arch            string
		tokens, context int
		windows         int // at most
		bos             int32
		want            int // windows
	}{
		{"one window", "llama3-rope", 24, 24, 0, -1, 1},
		{"a rest is left out", "llama3-rope", 61, 20, 0, -1, 3},
		{"begin of text in each window", "qwen3", 61, 20, 0, 1, 3},
		{"odd window", "qwen3", 40, 13, 2, -1, 2},
		{"more than a pass", "gemma3-text", 100, 90, 0, 2, 1},
	} {
		for _, o := range []model.Options{{F32: true}, {MaxBatch: 7}} {
			t.Run(tc.name, func(t *testing.T) {
				m, ids := openTiny(t, tc.arch, o), text(tc.tokens)
				calls := 0
				p, err := Measure(context.Background(), m, ids, Options{
					Context: tc.context, Windows: tc.windows, BOS: tc.bos, Progress: func(done, total int) {
						calls++
						require.Equal(t, []int{calls, tc.want}, []int{done, total})
					},
				})
				require.NoError(t, err)
				require.Equal(t, tc.want, calls)
				var all []float64
				for i := range tc.want {
					window := append([]int32{}, ids[i*tc.context:(i+1)*tc.context]...)
					if tc.bos >= 0 {
						window[0] = tc.bos
					}
					if o.MaxBatch == 0 {
						all = append(all, nlls(t, m, window)[tc.context/2:]...)
					} else {
						all = append(all, wholeNLLs(t, m, window)[tc.context/2:]...)
					}
				}
				checkEstimate(t, p, all)
				require.Equal(t, tc.want, p.Windows)
				require.Equal(t, tc.context, p.Context)
			})
		}
	}
}

// wholeNLLs is nlls token by token, for models that take no whole window.
func wholeNLLs(t *testing.T, m *model.Model, ids []int32) []float64 {
	t.Helper()
	cache, err := m.NewCache(8)
	require.NoError(t, err)
	defer cache.Close()
	seq := cache.NewSeq()
	var all []float64
	for i := range len(ids) - 1 {
		logits, err := m.Forward(&model.Batch{Tokens: ids[i : i+1], Spans: []model.Span{{Seq: seq, N: 1, Prompt: len(ids)}}, Logits: []int32{0}})
		require.NoError(t, err)
		seq.Commit(1)
		var z float64
		for _, x := range logits.Row(0) {
			z += math.Exp(float64(x))
		}
		all = append(all, math.Log(z)-float64(logits.Row(0)[ids[i+1]]))
	}
	return all
}

// checkEstimate compares with mean and standard error by their definitions.
func checkEstimate(t *testing.T, p *Perplexity, all []float64) {
	t.Helper()
	require.Equal(t, len(all), p.Tokens)
	var mean, spread float64
	for _, v := range all {
		mean += v / float64(len(all))
	}
	for _, v := range all {
		spread += (v - mean) * (v - mean) / float64(len(all))
	}
	require.InDelta(t, mean, p.NLL, 1e-9)
	require.InEpsilon(t, math.Exp(mean), p.Perplexity, 1e-9)
	require.InEpsilon(t, math.Exp(mean)*math.Sqrt(spread/float64(len(all)-1)), p.Error, 1e-6)
}

// TestReferenceLikelihood predicts one token after a sequence whose logits the reference implementation has computed.
func TestReferenceLikelihood(t *testing.T) {
	for _, arch := range []string{"llama3-rope", "mistral", "gemma3-text"} {
		m := openTiny(t, arch, model.Options{F32: true})
		var g struct {
			Sequences []struct {
				IDs    []int32   `json:"input_ids"`
				Logits []float64 `json:"last_logits"`
			} `json:"sequences"`
		}
		golden.ReadJSON(t, filepath.Join(golden.Dir(t, "archs"), arch, "goldens.json"), &g)
		s := g.Sequences[2]
		require.Len(t, s.IDs, 40)
		// Two texts that end in different tokens: everything but the last prediction is the same.
		var ends [2]float64
		for i, last := range []int32{17, 41} {
			p, err := Measure(context.Background(), m, append(append([]int32{}, s.IDs...), last), Options{Context: 41, BOS: -1})
			require.NoError(t, err)
			require.Equal(t, 20, p.Tokens)
			ends[i] = p.NLL * 20
		}
		require.InDelta(t, s.Logits[41]-s.Logits[17], ends[0]-ends[1], 2e-4)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	m := openTiny(t, "llama3-rope", model.Options{})
	trained := m.Config().ContextLen
	for _, tc := range []struct {
		o      Options
		tokens int
		want   string
	}{
		{Options{Context: 3}, 50, "context of 3 tokens: want 4 to"},
		{Options{Context: trained + 1}, trained + 1, "what the model was made for"},
		{Options{Context: 20}, 19, "a text of 19 tokens: want at least 20, one window"},
		{Options{Context: 20, Windows: -1}, 50, "-1 windows"},
		{Options{Context: 20, BOS: 1 << 20}, 50, "window 0 of 2: batch token 0 has id 1048576"},
	} {
		_, err := Measure(context.Background(), m, text(tc.tokens), tc.o)
		require.ErrorContains(t, err, tc.want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Measure(ctx, m, text(50), Options{Context: 20, BOS: -1})
	require.ErrorIs(t, err, context.Canceled)
}

// TestEightBitCacheCostsLittle reads the same text with keys and values in 8 bits.
func TestEightBitCacheCostsLittle(t *testing.T) {
	m := openTiny(t, "llama3-rope", model.Options{})
	measure := func(k8, v8 bool) float64 {
		p, err := Measure(context.Background(), m, text(400), Options{Context: 100, BOS: -1, K8: k8, V8: v8})
		require.NoError(t, err)
		return p.NLL
	}
	half := measure(false, false)
	for _, types := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		got := measure(types[0], types[1])
		require.NotEqual(t, half, got)
		require.InDelta(t, half, got, 0.02)
	}
	_, err := Measure(context.Background(), openTiny(t, "llama3-rope", model.Options{F32: true}), text(50), Options{Context: 20, BOS: -1, K8: true})
	require.ErrorContains(t, err, "must not be with F32")
}

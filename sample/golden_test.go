package sample

import (
	"math"
	"path/filepath"
	"testing"

	"quickdraft/internal/golden"

	"github.com/stretchr/testify/require"
)

type goldenCase struct {
	Op     string         `json:"op"`
	Params map[string]any `json:"params"`
	Probs  []float64      `json:"probs"`
}

type goldenFile struct {
	Samples []struct {
		Logits   []float64    `json:"logits"`
		InputIDs []int32      `json:"input_ids"`
		Softmax  []float64    `json:"softmax"`
		Cases    []goldenCase `json:"cases"`
	} `json:"samples"`
	Edges []struct {
		Name   string       `json:"name"`
		Logits []float64    `json:"logits"`
		Cases  []goldenCase `json:"cases"`
	} `json:"edges"`
}

func goldenParams(t *testing.T, c goldenCase) Params {
	p := Default()
	for key, value := range c.Params {
		if key == "order" {
			for _, name := range value.([]any) {
				p.Order = append(p.Order, name.(string))
			}
			continue
		}
		v := value.(float64)
		switch key {
		case "temperature":
			p.Temperature = v
		case "top_k":
			p.TopK = int(v)
		case "top_p":
			p.TopP = v
		case "min_p":
			p.MinP = v
		case "typical_p":
			p.TypicalP = v
		case "repetition_penalty":
			p.RepeatPenalty = v
		case "frequency_penalty":
			p.FrequencyPenalty = v
		case "presence_penalty":
			p.PresencePenalty = v
		default:
			t.Fatalf("case %s has the unknown parameter %q", c.Op, key)
		}
	}
	return p
}

// dense spreads a distribution over the vocabulary.
func dense(d *Dist, vocab int) []float64 {
	p := make([]float64, vocab)
	for i, id := range d.IDs {
		p[id] = d.P[i]
	}
	return p
}

// loadWide begins with a row that float32 cannot hold.
func (c *candidates) loadWide(row []float64) error {
	c.start(len(row), math.Inf(-1))
	copy(c.logit, row)
	c.findTop()
	return c.checkAny()
}

// distOf is Dist of a row that float32 cannot hold.
func distOf(s *Sampler, d *Dist, logits []float64, history []int32) error {
	c := &s.w.cand
	if err := c.loadWide(logits); err != nil {
		return err
	}
	if err := s.steps(history); err != nil {
		return err
	}
	if s.IsGreedy() {
		d.IDs, d.P = []int32{c.argmax()}, []float64{1}
		return nil
	}
	c.fill(d)
	return nil
}

func checkProbs(t *testing.T, p Params, logits []float64, history []int32, want []float64, tolerance float64, msg ...any) {
	t.Helper()
	s, err := New(p, len(logits))
	require.NoError(t, err, msg...)
	var d Dist
	require.NoError(t, distOf(s, &d, logits, history), msg...)
	compareProbs(t, want, dense(&d, len(logits)), tolerance, msg...)
}

func compareProbs(t require.TestingT, want, got []float64, tolerance float64, msg ...any) {
	for i := range want {
		require.InDelta(t, want[i], got[i], tolerance, msg...)
		require.Equal(t, want[i] == 0, got[i] == 0, msg...)
	}
}

func TestGolden(t *testing.T) {
	var file goldenFile
	golden.ReadJSON(t, filepath.Join(golden.Dir(t, "speculative"), "samplers.json.gz"), &file)
	n := 0
	for i, sample := range file.Samples {
		checkProbs(t, Default(), sample.Logits, nil, sample.Softmax, 1e-12, "softmax", i)
		narrow := make([]float32, len(sample.Logits))
		for j, l := range sample.Logits {
			narrow[j] = float32(l)
		}
		for _, c := range sample.Cases {
			p := goldenParams(t, c)
			checkProbs(t, p, sample.Logits, sample.InputIDs, c.Probs, 1e-12, i, c.Op, c.Params)
			n++
			s, err := New(p, len(narrow))
			require.NoError(t, err)
			var d Dist
			require.NoError(t, s.Dist(&d, narrow, sample.InputIDs))
			compareProbs(t, c.Probs, dense(&d, len(narrow)), 3e-6, "float32", i, c.Op, c.Params)
		}
	}
	for _, edge := range file.Edges {
		for _, c := range edge.Cases {
			checkProbs(t, goldenParams(t, c), edge.Logits, []int32{0}, c.Probs, 1e-15, edge.Name, c.Op, c.Params)
			n++
		}
	}
	golden.Count(t, "speculative/samplers", n)
}

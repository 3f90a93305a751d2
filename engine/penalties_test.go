package engine

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// rawLogits is an engine that gives the row of logits after any sequence.
type rawLogits struct {
	e   *Engine
	row []float32
}

func newRawLogits(t *testing.T) *rawLogits {
	p := &rawLogits{e: openWritten(t, Options{Context: 256}, nil)}
	p.e.forward = func(b *model.Batch) (tensor.F32, error) {
		logits, err := p.e.model.Forward(b)
		for i := range b.Logits {
			p.row = slices.Clone(logits.Row(i))
		}
		return logits, err
	}
	return p
}

// after returns what the penalties leave of the logits that follow a prompt and an answer, by their definition.
func (p *rawLogits) after(t *testing.T, prompt, answered []int32, s sample.Params) []float64 {
	answer(t, p.e, Request{Prompt: append(slices.Clone(prompt), answered...), MaxTokens: 1, IgnoreEOS: true, Sampling: sample.Greedy()})
	logits := make([]float64, len(p.row))
	for id, l := range p.row {
		logits[id] = float64(l)
	}
	all := append(slices.Clone(prompt), answered...)
	from := 0
	if s.RepeatLastN >= 0 {
		from = max(0, len(all)-s.RepeatLastN)
	}
	times := map[int32]float64{} // by token of the window: how often the answer has it
	for i, id := range all[from:] {
		if times[id] += 0; from+i >= len(prompt) {
			times[id]++
		}
	}
	for id, n := range times {
		if logits[id] < 0 {
			logits[id] *= s.RepeatPenalty
		} else {
			logits[id] /= s.RepeatPenalty
		}
		logits[id] -= n*s.FrequencyPenalty + min(n, 1)*s.PresencePenalty
	}
	return logits
}

func logprobOf(logits []float64, id int32) float64 {
	top, sum := slices.Max(logits), 0.0
	for _, l := range logits {
		sum += math.Exp(l - top)
	}
	return logits[id] - top - math.Log(sum)
}

// TestWhatPenaltiesCount has the repetition penalty count prompt and answer, and frequency and presence penalties the answer
// alone, in every way in which an engine computes it.
func TestWhatPenaltiesCount(t *testing.T) {
	raw := newRawLogits(t)
	for name, set := range map[string]func(p *sample.Params){
		"repetition": func(p *sample.Params) { p.RepeatPenalty = 1.4 },
		"frequency":  func(p *sample.Params) { p.FrequencyPenalty = 0.9 },
		"presence":   func(p *sample.Params) { p.PresencePenalty = 1.7 },
		"all in a window": func(p *sample.Params) {
			p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty, p.RepeatLastN = 1.2, 0.4, 0.5, 20
		},
		"presence, rewarded": func(p *sample.Params) { p.PresencePenalty = -2 },
	} {
		t.Run(name, func(t *testing.T) {
			r := request(4, 40, 24)
			r.Sampling = sample.Greedy()
			set(&r.Sampling)
			var want []int32
			for range r.MaxTokens {
				logits := raw.after(t, r.Prompt, want, r.Sampling)
				want = append(want, int32(slices.Index(logits, slices.Max(logits))))
			}
			checkPenalised(t, r, want)
			checkPenalisedBeams(t, raw, r, want)
		})
	}
}

// checkPenalised computes an answer from nothing, from a warm prefix, after preemptions, with right and wrong guesses, and as
// choices.
func checkPenalised(t *testing.T, r Request, want []int32) {
	e := openWritten(t, Options{Context: 256}, nil)
	for range 2 {
		ids, _ := answer(t, e, r)
		require.Equal(t, want, ids)
	}
	tickets, err := e.SubmitChoices(t.Context(), r, 3, nil)
	require.NoError(t, err)
	for _, ticket := range tickets {
		ids, _ := drain(t, ticket)
		require.Equal(t, want, ids)
	}
	often := openWritten(t, Options{Context: 256}, nil)
	starts := preemptEvery(often, 3)
	ids, _ := answer(t, often, r)
	require.Equal(t, want, ids)
	require.NoError(t, often.Close())
	require.Greater(t, len(starts), 6, "times that it started")

	d := &scripted{guess: oracle(fullAnswer(r, want))}
	guesses := openWritten(t, Options{Context: 256, Spec: SpecOptions{Fixed: 8, Drafter: d}}, nil)
	ticket := submit(t, guesses, r)
	ids, _ = drain(t, ticket)
	require.Equal(t, want, ids)
	require.Greater(t, ticket.Stats().Spec.Accepted, 10)
}

// checkPenalisedBeams compares the sums of log probabilities that beams end with.
func checkPenalisedBeams(t *testing.T, raw *rawLogits, r Request, greedy []int32) {
	e := openWritten(t, Options{Context: 256, KVTokens: 1024}, nil)
	one, _ := beamsOf(t, e, r, beams(1, 0))
	require.Equal(t, greedy, one[0].IDs)
	r.MaxTokens = 8
	all, _ := beamsOf(t, e, r, beams(3, 0))
	for _, b := range all {
		sum := 0.0
		for i, id := range b.IDs {
			sum += logprobOf(raw.after(t, r.Prompt, b.IDs[:i], r.Sampling), id)
		}
		require.InDelta(t, sum, b.Score, 1e-9)
	}
}

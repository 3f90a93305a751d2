package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/sample"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

// thirds allows two of three tokens, others at every place of the answer.
type thirds struct{ nTokens, at int }

func (m *thirds) Mask() []uint64 {
	mask := make([]uint64, (m.nTokens+63)/64)
	for id := range m.nTokens {
		if (id+m.at)%3 != 0 {
			mask[id/64] |= 1 << (id % 64)
		}
	}
	return mask
}

func (m *thirds) Accept(int32)          { m.at++ }
func (m *thirds) Fork() drafter.Matcher { c := *m; return &c }

// settings are requests of one prompt that each ask for something else; plain is its answer without any of it.
func settings(t *testing.T, x *text.Text, prompt, plain []int32) []engine.Request {
	var all []engine.Request
	for i := range 8 {
		r := engine.Request{Prompt: prompt, MaxTokens: 16, Sampling: sample.Greedy(), IgnoreEOS: true}
		switch i {
		case 1:
			r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.1, 0.1
		case 2:
			r.Sampling.LogitBias = map[int32]float64{plain[4]: -3}
			r.Sampling.LogitBias[plain[0]] = -100
		case 3:
			r.Matcher = &thirds{nTokens: x.Tokenizer.VocabSize()}
		case 4, 5:
			var err error
			letters := []rune(x.Tokenizer.Decode(plain, true))
			r.Stop, err = text.NewStopStream(x.Tokenizer, []string{string(letters[len(letters)/2:][:2])})
			require.NoError(t, err)
			if i == 5 {
				r.Sampling.PresencePenalty, r.Matcher = 0.5, &thirds{nTokens: x.Tokenizer.VocabSize()}
			}
		case 6:
			r.IgnoreEOS, r.EOG = false, []int32{plain[10]}
		case 7:
			r.Sampling.DRYMultiplier = 0.8
		}
		all = append(all, r)
	}
	return all
}

// answersOf answers the requests at once; how each ended is its last number.
func answersOf(t *testing.T, e *engine.Engine, requests []engine.Request, fixed int) (out [][]int32, ends []engine.Finish, drafted int) {
	var tickets []*engine.Ticket
	for _, r := range requests {
		r.NoSpec, r.SpecFixed = fixed == 0, fixed
		ticket, err := e.Submit(t.Context(), r)
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	return readAll(t, tickets)
}

// TestEverySettingOnARealModel has eight requests at once, with penalties, biases, masks, stops and ends, for which every drafter
// guesses in chains and trees.
func TestEverySettingOnARealModel(t *testing.T) {
	path, x := realModel(t)
	texts := fiftyTexts(t)
	for i, method := range []string{"draft", "ngram", "suffix", "adversarial", "random", "layerskip", "lookahead", "hierarchical", "crossvocab", "draft+suffix"} {
		t.Run(method, func(t *testing.T) {
			o := engine.Options{Context: 512, KVTokens: 4096, Threads: 1 + i%2, MaxRunning: 8}
			o.Spec = engine.SpecOptions{NMax: 16, Open: open(t, method, path, x)}
			if takes, _ := drafter.TakesOf(method); takes.Branch {
				o.Spec.Branch = 3
			}
			e, err := engine.Open(path, o)
			require.NoError(t, err)
			defer e.Close()
			for _, at := range []int{i, i + 25} {
				prompt := x.Tokenizer.Encode(texts[at], tokenizer.EncodeOptions{AddSpecial: true})
				plain := one(t, e, engine.Request{Prompt: prompt, MaxTokens: 16, Sampling: sample.Greedy(), IgnoreEOS: true}, true)
				want, ends, drafted := answersOf(t, e, settings(t, x, prompt, plain), 0)
				require.Zero(t, drafted)
				require.Equal(t, plain, want[0])
				require.Equal(t, []engine.Finish{engine.FinishLength, engine.FinishStop, engine.FinishStop}, []engine.Finish{ends[0], ends[4], ends[6]})
				for _, i := range []int{2, 3, 5} {
					require.NotEqual(t, plain, want[i], "setting %d has no effect", i)
				}
				got, endsGot, drafted := answersOf(t, e, settings(t, x, prompt, plain), 1+(3*i+at)%8)
				require.Equal(t, want, got)
				require.Equal(t, ends, endsGot)
				require.Positive(t, drafted)
			}
		})
	}
}

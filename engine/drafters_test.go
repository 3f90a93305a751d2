package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
)

// withDrafter describes a registered method with what the tiny models can give it: other tiny models as drafts.
func withDrafter(t testing.TB, name string, change func(*drafter.Config)) func(*model.Model) (drafter.Drafter, error) {
	return func(target *model.Model) (drafter.Drafter, error) {
		load := func(arch string) *model.Model {
			m, err := model.Load(filepath.Join(golden.Dir(t, "archs"), arch), model.Options{Pool: target.Pool()})
			require.NoError(t, err)
			t.Cleanup(func() { _ = m.Close() })
			return m
		}
		c := drafter.Config{Target: target, Draft: load("llama3-rope"), Bigger: load("llama3-rope"), Guesses: 16, KVTokens: 4096}
		c.Translation = letters(t)
		if change != nil {
			change(&c)
		}
		return drafter.New(name, c)
	}
}

// letters is a translation between two vocabularies of 512 tokens that share half of their texts, at other ids.
func letters(t testing.TB) *drafter.Translation {
	text := func(shift int32) drafter.Text {
		bytes := func(id int32) []byte {
			if id < 256 {
				return []byte{byte(id + shift)}
			}
			return []byte(fmt.Sprint("token ", id, " of ", shift))
		}
		return drafter.Text{File: fmt.Sprint("vocabulary ", shift), Size: 512, Bytes: bytes, Encode: func(s string) (ids []int32) {
			for _, b := range []byte(s) {
				ids = append(ids, int32(byte(int32(b)-shift)))
			}
			return ids
		}}
	}
	tr, err := drafter.NewTranslation(text(0), text(100))
	require.NoError(t, err)
	return tr
}

// TestEveryDrafterIsLossless runs greedy requests with penalties and bias, and reproducible sampled ones, with every
// method that is registered, at 1 to 16 guesses, alone and together.
func TestEveryDrafterIsLossless(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	var rs []Request
	var want [][]int32
	for n := range 8 {
		r := request(n, 3+9*n, 30)
		if n%4 != 3 {
			r.Sampling = sample.Greedy()
		}
		if n%2 == 0 {
			r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.1, 0.05
			r.Sampling.LogitBias = map[int32]float64{7: -100, 9: 1}
		}
		r.Reproducible = true
		ids, _ := answer(t, plain, r)
		rs, want = append(rs, r), append(want, ids)
	}
	names := append(drafter.Names(), "suffix+draft", "lookahead+ngram+random")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Options{
				{Spec: SpecOptions{NMax: 1}, Threads: 1}, {Spec: SpecOptions{NMax: 2}}, {Spec: SpecOptions{NMax: 3}},
				{Spec: SpecOptions{NMax: 5, PMin: 0.05}}, {Spec: SpecOptions{NMax: 8}, KVTokens: 224},
				{Spec: SpecOptions{NMax: 16, Fixed: 16}, Threads: 1},
			} {
				o.Context = 160
				if o.KVTokens == 0 {
					o.KVTokens = 2048
				}
				o.Spec.Open = withDrafter(t, name, nil)
				checkSpeculation(t, o, rs, want, false)
			}
		})
	}
}

// TestEveryDrafterSamples runs requests whose guesses are drawn, so that only their distribution is fixed: answers are
// complete, repeat with their seed, and are the same alone and in company.
func TestEveryDrafterSamples(t *testing.T) {
	for _, name := range append(drafter.Names(), "draft+suffix") {
		if name == "random" || name == "random+" {
			continue // its guesses differ from run to run
		}
		t.Run(name, func(t *testing.T) {
			var first [][]int32
			for range 2 {
				e := openTiny(t, Options{Context: 160, KVTokens: 2048, Spec: SpecOptions{NMax: 6, Fixed: 6, Open: withDrafter(t, name, nil)}})
				var tickets []*Ticket
				for n := range 3 {
					ticket, err := e.Submit(context.Background(), request(n, 10+n, 40))
					require.NoError(t, err)
					tickets = append(tickets, ticket)
				}
				for n, ticket := range tickets {
					ids, why := drain(t, ticket)
					require.Equal(t, FinishLength, why)
					require.Len(t, ids, 40)
					if len(first) < 3 {
						first = append(first, ids)
						continue
					}
					require.Equal(t, first[n], ids)
				}
				require.NoError(t, e.Close())
			}
		})
	}
}

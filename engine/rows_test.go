package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// watchful is a scripted drafter whose session notes what the target says after each node.
type watchful struct {
	scripted
	says [][]int32 // (rounds) after the last token, and after every node
}

type watchfulSession struct {
	scriptedSession
	w *watchful
}

func (w *watchful) NewSession() (drafter.Session, error) {
	return &watchfulSession{scriptedSession{d: &w.scripted}, w}, nil
}

func (w *watchful) Propose(rounds []drafter.Round) error {
	for i := range rounds {
		w.guess(&w.scripted, &rounds[i])
	}
	return nil
}

func (s *watchfulSession) Observed(t *drafter.Tree, argmax func(node int32) int32) {
	var says []int32
	for node := int32(-1); int(node) < t.Len(); node++ {
		says = append(says, argmax(node))
	}
	s.w.says = append(s.w.says, says)
}

// TestSessionsSeeWhatTheTargetSays proposes right chains: the target's best after each node is the next token of the answer.
func TestSessionsSeeWhatTheTargetSays(t *testing.T) {
	r := request(4, 6, 31)
	r.Sampling = sample.Greedy()
	full, _ := answer(t, openTiny(t, Options{Context: 128}), r)
	d := &watchful{}
	d.guess = func(_ *scripted, round *drafter.Round) {
		parent := int32(-1)
		for at := len(round.IDs) - len(r.Prompt); at < len(full) && round.Tree.Len() < round.Budget.Nodes; at++ {
			parent = round.Tree.Add(full[at], parent, nil)
		}
	}
	got, _ := answer(t, openTiny(t, Options{Context: 128, NoPrefix: true, Spec: SpecOptions{Fixed: 4, Drafter: d}}), r)
	require.Equal(t, full, got)
	require.Len(t, d.says, 6)
	for i, says := range d.says {
		require.Equal(t, full[1+5*i:6+5*i], says)
	}
}

// TestGuessesFitThePassAndTheVocabulary has a drafter that goes beyond everything.
func TestGuessesFitThePassAndTheVocabulary(t *testing.T) {
	const chunk = 6
	widest := 0
	for _, bad := range []int32{-1, 512, 513, 1 << 30} {
		d := &scripted{guess: func(_ *scripted, r *drafter.Round) {
			parent := int32(-1)
			for i := range 40 {
				id := int32(i)
				if i == 20 {
					id = bad
				}
				parent = r.Tree.Add(id, parent, nil)
			}
		}}
		first := &scripted{guess: func(_ *scripted, r *drafter.Round) { r.Tree.Add(bad, -1, nil) }}
		for _, d := range []*scripted{d, first} {
			e := openTiny(t, Options{Context: 128, KVTokens: 512, Chunk: chunk, Spec: SpecOptions{NMax: 32, Fixed: 32, Drafter: d}})
			require.Equal(t, 512, e.Model().Config().Vocab)
			inner := e.forward
			require.NoError(t, e.do(func() error {
				e.forward = func(b *model.Batch) (tensor.F32, error) {
					if widest = max(widest, len(b.Tokens)); len(b.Tokens) > chunk {
						panic("a pass of more tokens than the options allow")
					}
					for _, id := range b.Tokens {
						if id < 0 || id >= 512 {
							panic("a token outside the vocabulary")
						}
					}
					return inner(b)
				}
				return nil
			}))
			ticket, beside := submit(t, e, request(1, 5, 20)), submit(t, e, request(2, 9, 20))
			require.Len(t, whole(t, ticket), 21)
			require.Len(t, whole(t, beside), 21)
		}
	}
	require.Equal(t, chunk, widest)
}

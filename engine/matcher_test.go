package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// alternating allows even and odd ids in turns, and after every seventh token only those below 16.
type alternating struct {
	n    int
	mask [8]uint64
}

func (m *alternating) allows(id int32) bool {
	if m.n%7 == 6 && id >= 16 {
		return false
	}
	return int(id)%2 == m.n%2
}

func (m *alternating) Mask() []uint64 {
	m.mask = [8]uint64{}
	for id := range int32(512) {
		if m.allows(id) {
			m.mask[id/64] |= 1 << (id % 64)
		}
	}
	return m.mask[:]
}

func (m *alternating) Accept(id int32) {
	if !m.allows(id) {
		panic("a token came that the mask forbids")
	}
	m.n++
}

func (m *alternating) Fork() drafter.Matcher { return &alternating{n: m.n} }

func TestMasksHoldAlongTheTree(t *testing.T) {
	for _, sampled := range []bool{false, true} {
		ask := func(coupled bool) Request {
			r := request(3, 9, 50)
			if !sampled {
				r.Sampling = sample.Greedy()
			}
			r.Reproducible, r.Matcher = coupled, &alternating{}
			return r
		}
		want, _ := answer(t, openTiny(t, Options{Context: 128}), ask(true))
		for _, name := range []string{"layerskip", "random", "suffix", "draft", "hierarchical", "lookahead"} {
			e := openTiny(t, Options{Context: 128, KVTokens: 512, Spec: SpecOptions{Fixed: 6, Open: withDrafter(t, name, nil)}})
			ids, _ := answer(t, e, ask(true))
			require.Equal(t, want, ids, name)
			ids, _ = answer(t, e, ask(false)) // Accept panics on a wrong token
			require.Len(t, ids, 50, name)
			if name == "draft" {
				require.Greater(t, e.SpecTotals().Accepted, 60, "a draft that equals the target has to be right under the mask as well")
			}
		}
	}
}

func TestARequestMayAskForFewerGuesses(t *testing.T) {
	d := &scripted{guess: func(_ *scripted, r *drafter.Round) {
		parent := int32(-1)
		for r.Tree.Len() < 20 {
			parent = r.Tree.Add(1, parent, nil)
		}
	}}
	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Drafter: d, Fixed: 8}})
	r := request(1, 5, 20)
	r.SpecMax = 2
	s, _ := stats(t, e, r)
	require.Len(t, s.Offered, 2)
	r.SpecMax = maxGuesses + 1
	_, err := e.Submit(t.Context(), r)
	require.ErrorContains(t, err, "guesses")
	require.Equal(t, s.Rounds, e.SpecTotals().Rounds)
}

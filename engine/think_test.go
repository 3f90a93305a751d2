package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// thinking allows anything up to a token, as a grammar does that begins after </think>, and then what inner allows, never the
// token again.
type thinking struct {
	end   int32
	over  bool
	inner alternating
	mask  [8]uint64
	seen  []int32
}

func (m *thinking) Mask() []uint64 {
	if !m.over {
		return nil
	}
	copy(m.mask[:], m.inner.Mask())
	m.mask[m.end/64] &^= 1 << (m.end % 64)
	return m.mask[:]
}

func (m *thinking) Accept(id int32) {
	m.seen = append(m.seen, id)
	if m.over {
		if id == m.end {
			panic("the end of thinking came twice")
		}
		m.inner.Accept(id) // panics on what it forbids
	}
	m.over = m.over || id == m.end
}

func (m *thinking) Fork() drafter.Matcher {
	return &thinking{end: m.end, over: m.over, inner: alternating{n: m.inner.n}, seen: append([]int32(nil), m.seen...)}
}

// fresh is a matcher that was fed ids from the start.
func fresh(end int32, ids []int32) *thinking {
	m := &thinking{end: end}
	for _, id := range ids {
		m.Accept(id)
	}
	return m
}

// TestAGrammarThatBeginsInsideABlock ends thinking at each offset of a block of eight guesses, right ones and ones that the
// grammar forbids or the target would not choose.
func TestAGrammarThatBeginsInsideABlock(t *testing.T) {
	plain := openTiny(t, Options{Context: 160})
	base := request(4, 6, 40)
	free, _ := answer(t, plain, base)
	for offset := range 20 {
		end := free[offset]
		if slices.Index(free, end) != offset {
			continue // thinking is over before
		}
		for _, sampled := range []bool{true, false} {
			r := base
			if r.Reproducible = sampled; !sampled {
				r.Sampling = sample.Greedy()
			}
			r.Matcher = &thinking{end: end}
			want, _ := answer(t, plain, r)
			full := fullAnswer(r, want)[r.Prompt[0]]
			ignorant := fullAnswer(r, free)[r.Prompt[0]]
			rng := rand.New(rand.NewPCG(uint64(offset), 5))
			guesses := map[string]func(d *scripted, r *drafter.Round){
				"right": oracle(map[int32][]int32{r.Prompt[0]: full}),
				"ignorant of the grammar": func(_ *scripted, r *drafter.Round) {
					parent := int32(-1)
					for at := len(r.IDs); at < len(ignorant) && r.Tree.Len() < r.Budget.Nodes; at++ {
						parent = r.Tree.Add(ignorant[at], parent, nil)
					}
				},
				"wrong from somewhere on": func(_ *scripted, r *drafter.Round) {
					parent, right := int32(-1), rng.IntN(9)
					for at := len(r.IDs); at < len(full) && r.Tree.Len() < r.Budget.Nodes; at++ {
						id := full[at]
						if r.Tree.Len() >= right {
							id = end
						}
						parent = r.Tree.Add(id, parent, nil)
					}
				},
			}
			for name, guess := range guesses {
				e := openTiny(t, Options{Context: 160, Spec: SpecOptions{NMax: 16, Fixed: 8, Drafter: &scripted{guess: guess}}})
				r.Matcher = &thinking{end: end}
				ticket := submit(t, e, r)
				got, _ := drain(t, ticket)
				require.Equal(t, want, got, "%s, thinking ends at %d, sampled %v", name, offset, sampled)
				after := r.Matcher.(*thinking)
				again := fresh(end, got)
				require.Equal(t, again.seen, after.seen)
				require.Equal(t, []any{again.over, again.inner.n}, []any{after.over, after.inner.n}, "the matcher is where its text is")
				require.Positive(t, ticket.Stats().Spec.Drafted)
				require.NoError(t, e.Close())
			}
		}
		for _, name := range []string{"draft", "suffix", "random", "layerskip"} { // drawn guesses; Accept panics on a wrong token
			e := openTiny(t, Options{Context: 160, KVTokens: 512, Spec: SpecOptions{Fixed: 8, Open: withDrafter(t, name, nil)}})
			r := base
			r.Matcher = &thinking{end: end}
			got, _ := answer(t, e, r)
			require.Equal(t, fresh(end, got).seen, r.Matcher.(*thinking).seen)
			require.NoError(t, e.Close())
		}
	}
}

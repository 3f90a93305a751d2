package sample

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTopKAtEveryBorder has as many candidates wanted as there are blocks, one less and one more, and others around which
// the search changes.
func TestTopKAtEveryBorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 127, 128, 129, 1000, 5000, 40000} {
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(rng.NormFloat64())
		}
		sorted := slices.Clone(logits)
		slices.Sort(sorted)
		blocks := nBlocks(n)
		for _, k := range []int{1, 2, blocks - 1, blocks, blocks + 1, blocks + 2, n / 32, n / 31, n / 2, n - 1, n} {
			if k < 1 || k > n {
				continue
			}
			p := Default()
			p.TopK = k
			s, err := New(p, n)
			require.NoError(t, err)
			var d Dist
			require.NoError(t, s.Dist(&d, logits, nil))
			kept := 0
			for i, id := range d.IDs {
				if d.P[i] > 0 {
					kept++
					require.GreaterOrEqual(t, logits[id], sorted[n-k], "%d of %d", k, n)
				}
			}
			require.Equal(t, k, kept, "%d of %d", k, n)
		}
	}
}

// TestDRYTakesTheLongest repeats an end twice before: the penalty of the token that followed both is that of the longer
// repetition, whichever comes first.
func TestDRYTakesTheLongest(t *testing.T) {
	long, short := []int32{1, 2, 3, 4, 9}, []int32{7, 3, 4, 9} // 9 follows 1 2 3 4 and, after another token, 3 4
	end := []int32{8, 1, 2, 3, 4}
	for _, first := range [][]int32{long, short} {
		second := short
		if &first[0] == &short[0] {
			second = long
		}
		history := slices.Concat([]int32{6}, first, []int32{5}, second, end)
		for _, allowed := range []int{2, 3} {
			p := Default()
			p.DRYMultiplier, p.DRYBase, p.DRYAllowedLength, p.LogprobsAfter = 1, 2, allowed, true
			s, err := New(p, 16)
			require.NoError(t, err)
			logprob := func(id int32) float64 {
				all, err := s.Logprobs(nil, make([]float32, 16), history, id, 0)
				require.NoError(t, err)
				return all[0].Logprob
			}
			require.InDelta(t, float64(int(1)<<(4-allowed)), logprob(10)-logprob(9), 1e-9, "%d allowed, %v first", allowed, first)
		}
	}
}

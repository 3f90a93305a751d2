package drafter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/sample"
)

// TestHypothesesShareWhatIsRead drafts for hypotheses that have gone their own ways since the draft was last asked: together they read
// what a round may feed, and in the end guess what they would if all were read at once.
func TestHypothesesShareWhatIsRead(t *testing.T) {
	const n, feed, depth = 5, 32, 2
	d, err := NewModel(ModelOptions{Model: tiny(t, "llama3-rope", 256), Vocab: 512, KVTokens: 2048})
	require.NoError(t, err)
	defer d.Close()
	shared := sequence(20, 1)
	propose := func(s BeamSession, feed int) (trees [n]Tree, behind, nFed int) {
		r := BeamRound{Beams: n, Width: n + 2, Budget: Budget{Nodes: depth * (n + 2), Depth: depth, Feed: feed}, Sampler: sampler(t, sample.Greedy(), 512)}
		for i := range n {
			ids := append(append([]int32{}, shared...), sequence(50, 10+i)...)
			r.Stems = append(r.Stems, Stem{IDs: ids, Score: float64(-i), Tree: &trees[i]})
		}
		before := d.Counts().Fed
		require.NoError(t, s.Propose(&r))
		return trees, r.Behind, int(d.Counts().Fed - before)
	}
	open := func() BeamSession {
		s, err := NewBeamSession(d)
		require.NoError(t, err)
		s.Committed(shared)
		return s
	}
	atOnce, inPieces := open(), open()
	want, behind, _ := propose(atOnce, 0)
	require.Zero(t, behind)
	for last := 1 << 30; ; {
		got, behind, nFed := propose(inPieces, feed)
		if behind == 0 {
			require.Equal(t, want, got)
			break
		}
		require.LessOrEqual(t, nFed, feed+n*(depth+1))
		require.Less(t, behind, last)
		last = behind
	}
	atOnce.Close()
	inPieces.Close()
}

package drafter

// Acceptance of a guess depends on how deep it lies and on what is being written: a copied passage is guessed for a while,
// and then not. The context of a round is therefore how the round before went.
const (
	afterNone = iota // no guess was accepted
	afterSome        // some were
	afterAll         // all were, or there was no round yet
	nContexts
)

// trackedDepth is the deepest level with counts of its own; deeper ones share the last.
const trackedDepth = 16

const (
	recentDecay = 0.9   // a request's memory of a context, a round
	globalDecay = 0.995 // the memory over all requests
	priorAccept = 0.6   // believed of a drafter that was never seen
	priorWeight = 1.5   // observations that the prior is worth
	levelWeight = 4     // observations that a wider estimate is worth against a narrower one
)

// tally counts, per context and level, how often a guess whose predecessors were accepted was judged and accepted.
type tally struct {
	judged, accepted       [nContexts][trackedDepth]float64
	allJudged, allAccepted [nContexts]float64
}

// add counts one round that had guesses on levels levels, accepted of which were accepted.
func (t *tally) add(context, levels, accepted int, decay float64) {
	t.allJudged[context] *= decay
	t.allAccepted[context] *= decay
	for d := range trackedDepth {
		t.judged[context][d] *= decay
		t.accepted[context][d] *= decay
	}
	for level := range min(accepted+1, levels) {
		d := min(level, trackedDepth-1)
		t.judged[context][d]++
		t.allJudged[context]++
		if level < accepted {
			t.accepted[context][d]++
			t.allAccepted[context]++
		}
	}
}

// shrink is the mean of n observations with k successes and of weight observations of a wider estimate.
func shrink(k, n, wider, weight float64) float64 {
	return (k + float64(weight*wider)) / (n + weight)
}

// estimate is the probability that a guess at a level (from 0) is accepted, provided those before it are: what the request
// showed lately in this context, shrunk towards what all requests showed.
func estimate(recent, global *tally, context, level int) float64 {
	var judged, accepted float64
	for c := range nContexts {
		judged, accepted = judged+global.allJudged[c], accepted+global.allAccepted[c]
	}
	d := min(level, trackedDepth-1)
	p := shrink(accepted, judged, priorAccept, priorWeight)
	p = shrink(global.allAccepted[context], global.allJudged[context], p, levelWeight)
	p = shrink(global.accepted[context][d], global.judged[context][d], p, levelWeight)
	p = shrink(recent.allAccepted[context], recent.allJudged[context], p, levelWeight)
	return shrink(recent.accepted[context][d], recent.judged[context][d], p, levelWeight)
}

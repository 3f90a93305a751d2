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
	recentDecay = 0.97  // a request's memory of a context, a round
	idleDecay   = 0.97  // the same where it had no guesses
	globalDecay = 0.995 // the memory over all requests
	priorAccept = 0.6   // believed of a drafter that was never seen
	priorWeight = 4     // observations that the prior is worth
	levelWeight = 8     // observations that a wider estimate is worth against a narrower one
	offerWeight = 16    // observations that a drafter's own belief is worth against how a request's guesses fare
)

// tally counts, per context and level, how often a guess whose predecessors were accepted was judged and accepted.
type tally struct {
	judged, accepted       [nContexts][trackedDepth]float64
	allJudged, allAccepted [nContexts]float64
}

// add counts one round that had guesses on levels levels, accepted of which were accepted, where allowed were allowed.
func (t *tally) add(context, levels, accepted, allowed int, decay float64) {
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
	if accepted == levels && levels < min(allowed, trackedDepth) {
		t.judged[context][levels]++
	}
}

// fade lets a request's memory pale in a round in which it had no guesses: what it showed long ago says little.
func (t *tally) fade() {
	for c := range nContexts {
		t.allJudged[c] *= idleDecay
		t.allAccepted[c] *= idleDecay
		for d := range trackedDepth {
			t.judged[c][d] *= idleDecay
			t.accepted[c][d] *= idleDecay
		}
	}
}

// shrink is the mean of n observations with k successes and of weight observations of a wider estimate.
func shrink(k, n, wider, weight float64) float64 {
	return (k + float64(weight*wider)) / (n + weight)
}

// mean is the share of all judged guesses that were accepted.
func (t *tally) mean() float64 {
	var judged, accepted float64
	for c := range nContexts {
		judged, accepted = judged+t.allJudged[c], accepted+t.allAccepted[c]
	}
	return shrink(accepted, judged, priorAccept, priorWeight)
}

// estimate is the probability that a guess at a level (from 0) is accepted, provided those before it are: what the request
// showed lately in this context, shrunk towards what all requests showed.
func estimate(recent, global *tally, context, level int) float64 {
	d := min(level, trackedDepth-1)
	p := shrink(global.accepted[context][d], global.judged[context][d], global.mean(), levelWeight)
	p = shrink(recent.allAccepted[context], recent.allJudged[context], p, levelWeight)
	return shrink(recent.accepted[context][d], recent.judged[context][d], p, levelWeight)
}

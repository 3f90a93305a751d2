package drafter

import (
	"errors"
	"fmt"

	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/tensor"
)

// Counts say why drafting with a model stopped early, none of which is an error, and how much it computed.
type Counts struct {
	ContextFull int64 // the sequence no longer fits the draft's context
	NoBlocks    int64 // the draft's KV cache was full
	Unknown     int64 // the sequence holds a token that the draft does not know
	NaN         int64 // the draft's logits were not numbers
	Fed         int64 // tokens that the model computed, guesses included
}

func (c *Counts) add(n Counts) {
	c.ContextFull, c.NoBlocks, c.Unknown, c.NaN, c.Fed = c.ContextFull+n.ContextFull, c.NoBlocks+n.NoBlocks, c.Unknown+n.Unknown, c.NaN+n.NaN, c.Fed+n.Fed
}

// Counter is implemented by drafters that run a model.
type Counter interface {
	Counts() Counts
}

// runner feeds several requests to one model in common passes.
type runner struct {
	m       *model.Model
	vocab   int32 // tokens the model takes
	context int   // positions a request may have
	layers  []bool
	short   *model.Shortlist
	counts  Counts

	batch model.Batch
	in    []*lane // of the batch
	late  []*lane // of the round, which are read for and make no guesses
}

// lane is one request's place in a model.
type lane struct {
	seq     *kvcache.Seq
	fed     []int32 // tokens whose keys and values are in seq
	feed    []int32 // tokens to come
	parents []int32 // of feed, where it is a tree that the caller commits itself; nil: a chain
	lent    bool    // seq is another's, who gets it back as it was
	nLogits int     // rows of logits wanted: of the last tokens of feed
	row     int     // first of them after a step
	stopped bool    // no more steps in this round
}

func newRunner(m *model.Model, context int) (runner, error) {
	c := m.Config()
	if context == 0 {
		context = c.ContextLen
	}
	if context < 1 || c.ContextLen > 0 && context > c.ContextLen {
		return runner{}, fmt.Errorf("%s: draft context of %d tokens, want 1 to the model's %d", c.File, context, c.ContextLen)
	}
	return runner{m: m, vocab: int32(c.Vocab), context: context}, nil
}

// newPool makes a cache for a draft model that holds nTokens in all.
func newPool(m *model.Model, nTokens int) (*kvcache.Cache, error) {
	return m.NewCache((nTokens + kvcache.BlockTokens - 1) / kvcache.BlockTokens)
}

// sync makes the lane hold the beginning of want and queues the rest; the last token is always queued, for its logits.
func (l *lane) sync(want []int32) {
	l.adopt(want)
	keep := max(0, min(common(l.fed, want), len(want)-1))
	if keep < len(l.fed) {
		l.seq.Truncate(keep)
		keep = l.seq.Len() // less where a layer's window has moved on
		l.fed = l.fed[:keep]
	}
	l.feed = append(l.feed[:0], want[keep:]...)
	l.nLogits, l.parents, l.stopped = 1, nil, len(want) == 0
}

// behind reports whether a lane has more to read than its round may feed. Such a lane is left with what it may, for readLate. It
// notes what is read in this round, and what is left.
func (r *runner) behind(l *lane, b *Budget, read, behind *int) bool {
	if r.check(l); l.stopped { // room is made for all of it, lest two lanes take it from each other and wait for ever
		return false
	}
	left := len(l.feed) - b.Feed
	if b.Feed < 1 || left <= 0 {
		*read += len(l.feed)
		return false
	}
	*read, *behind = *read+b.Feed, max(*behind, left)
	l.feed, l.nLogits = l.feed[:b.Feed], 0
	r.late = append(r.late, l)
	return true
}

// readLate feeds the lanes that are behind.
func (r *runner) readLate() error {
	late := r.late
	r.late = r.late[:0] // also when the model panics
	_, err := r.step(late)
	return err
}

// step feeds every lane's queue and returns logits; each lane's rows start at lane.row. Lanes that cannot go on are
// stopped. Queues that do not fit a pass take several: see Budget.Feed.
func (r *runner) step(lanes []*lane) (tensor.F32, error) {
	for _, l := range lanes {
		r.check(l)
	}
	for {
		more := r.pack(lanes)
		if len(r.in) == 0 {
			return tensor.F32{}, nil
		}
		logits, err := r.m.Forward(&r.batch)
		r.counts.Fed += int64(len(r.batch.Tokens))
		if err != nil {
			if !r.stopNaN(err) {
				return tensor.F32{}, err
			}
			continue // without them
		}
		for i, l := range r.in {
			n := r.batch.Spans[i].N
			if l.parents != nil {
				continue
			}
			if l.lent {
				l.seq.Extend(n)
			} else {
				l.seq.Commit(n)
			}
			l.fed = append(l.fed, l.feed[:n]...)
			l.feed = append(l.feed[:0], l.feed[n:]...)
		}
		if !more {
			return logits, nil
		}
	}
}

// check stops a lane whose queue the model cannot take.
func (r *runner) check(l *lane) {
	switch {
	case l.stopped:
		return
	case l.seq.Len()+len(l.feed) > r.context:
		r.counts.ContextFull++
		l.stopped = true
	case l.seq.Reserve(len(l.feed)) != nil:
		r.counts.NoBlocks++
		l.stopped = true
	}
	for _, id := range l.feed {
		if id < 0 || id >= r.vocab {
			r.counts.Unknown++
			l.stopped = true
			return
		}
	}
}

// pack fills the batch. While the queues do not fit one pass it takes what can go without logits and reports that more
// passes are due; lanes whose last tokens still do not fit are stopped.
func (r *runner) pack(lanes []*lane) (more bool) {
	b := &r.batch
	b.Tokens, b.Spans, b.Logits, b.Layers, b.Shortlist, r.in = b.Tokens[:0], b.Spans[:0], b.Logits[:0], r.layers, r.short, r.in[:0]
	room, last, total := r.m.MaxBatch(), 0, 0
	for _, l := range lanes {
		if l.stopped {
			continue
		}
		if last += l.whole(); last > room {
			l.stopped = true
			last -= l.whole()
			continue
		}
		total += len(l.feed)
	}
	more = total > room
	for _, l := range lanes {
		n := len(l.feed)
		if more {
			n = min(n-l.whole(), room-len(b.Tokens))
		}
		if l.stopped || n <= 0 {
			continue
		}
		b.Tokens = append(b.Tokens, l.feed[:n]...)
		b.Spans = append(b.Spans, model.Span{Seq: l.seq, N: n, Parents: l.parents})
		r.in = append(r.in, l)
		if !more {
			l.row = len(b.Logits)
			for i := len(b.Tokens) - l.nLogits; i < len(b.Tokens); i++ {
				b.Logits = append(b.Logits, int32(i))
			}
		}
	}
	return more
}

// whole is how many of the last tokens of the queue go in one pass.
func (l *lane) whole() int {
	if l.parents != nil {
		return len(l.feed)
	}
	return l.nLogits
}

// keep commits some rows of the last pass, in this order: those of tokens ids of a tree.
func (l *lane) keep(rows []int32, ids func(i int) int32) {
	for k, row := range rows {
		l.seq.Move(int(row), k)
		l.fed = append(l.fed, ids(k))
	}
	l.seq.Commit(len(rows))
}

// stopNaN stops the lanes whose logits were not numbers and reports whether that was the error.
func (r *runner) stopNaN(err error) bool {
	var nan *model.NaNError
	if !errors.As(err, &nan) {
		return false
	}
	for _, row := range nan.Rows {
		at := int32(0)
		for i, l := range r.in {
			n := int32(r.batch.Spans[i].N)
			if row >= at && row < at+n && !l.stopped {
				r.counts.NaN++
				l.stopped = true
			}
			at += n
		}
	}
	return true
}

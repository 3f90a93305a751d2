package drafter

import (
	"fmt"
	"strconv"
	"strings"

	"quickdraft/model"
)

// LayerSkip drafts with the target itself, leaving some decoder layers out. It reads the target's keys and values of the
// committed tokens and keeps those of its guesses in the places behind them, which the target's pass writes over. After a
// round the sequence is as it was, so that every cache will do, one that holds a single sequence too.
type LayerSkip struct {
	runner
	nKept int
	lent  []*skipSession // of this round
	live  []*skipSession
	lanes []*lane
}

func init() {
	register("layerskip", Takes{MinP: true}, func(c *Config) (Drafter, error) {
		return NewLayerSkip(c.Target, c.Skip)
	})
}

// NewLayerSkip makes the drafter. skip lists the layers to leave out, counted from 0: "20-29" is early exit from a model
// of 30 layers. Empty means every second layer of the middle, or the last of two: of a 30-layer model of 135M
// parameters, leaving out 9,11,..21 kept 1.0 of 4 greedy guesses right, 10-19 0.7, 25-29 0.6, 20-29 0.3 and all odd layers
// 0.1 (5 prompts, 64 tokens each).
func NewLayerSkip(target *model.Model, skip string) (*LayerSkip, error) {
	layers, err := keptLayers(target.Config().Layers, skip)
	if err != nil {
		return nil, err
	}
	r, err := newRunner(target, 0)
	if err != nil {
		return nil, err
	}
	d := &LayerSkip{runner: r}
	d.layers = layers
	for _, kept := range layers {
		if kept {
			d.nKept++
		}
	}
	return d, nil
}

// keptLayers turns a list of layers to leave out into a choice.
func keptLayers(n int, skip string) ([]bool, error) {
	kept := make([]bool, n)
	for i := range kept {
		kept[i] = true
	}
	if skip == "" {
		if n < 2 {
			return nil, fmt.Errorf("layerskip: the model has %d layer, want 2 or more", n)
		}
		for i := max(n*3/10, 1); i <= max(n*7/10, 1); i += 2 {
			kept[i] = false
		}
		return kept, nil
	}
	left := n
	for _, part := range strings.Split(skip, ",") {
		a, b, isRange := strings.Cut(part, "-")
		first, err1 := strconv.Atoi(strings.TrimSpace(a))
		last, err2 := first, error(nil)
		if isRange {
			last, err2 = strconv.Atoi(strings.TrimSpace(b))
		}
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= n {
			return nil, fmt.Errorf("layerskip: layers %q, want numbers or ranges like 3,8-11 between 0 and %d", part, n-1)
		}
		for i := first; i <= last; i++ {
			if kept[i] {
				left--
			}
			kept[i] = false
		}
	}
	if left == 0 {
		return nil, fmt.Errorf("layerskip: %q leaves none of %d layers", skip, n)
	}
	return kept, nil
}

// Name is "layerskip".
func (d *LayerSkip) Name() string { return "layerskip" }

// Close does nothing: the model is the target.
func (d *LayerSkip) Close() error { return nil }

// Bytes takes the weights as spread evenly over the layers.
func (d *LayerSkip) Bytes() int64 { return d.m.WeightBytes() * int64(d.nKept) / int64(len(d.layers)) }

// Counts say how often drafting stopped early.
func (d *LayerSkip) Counts() Counts { return d.counts }

// NewSession makes a session whose sequences live for one call of Propose.
func (d *LayerSkip) NewSession() (Session, error) { return &skipSession{}, nil }

type skipSession struct {
	lane
	chain
	committed int // tokens of the lent sequence
}

// Committed keeps nothing: rounds carry the sequence.
func (s *skipSession) Committed([]int32) {}

// Close has nothing to free.
func (s *skipSession) Close() {}

// Propose grows all trees side by side, each in its target's sequence, which it shortens again whatever happens.
func (d *LayerSkip) Propose(rounds []Round) error {
	d.live, d.lent = d.live[:0], d.lent[:0]
	defer d.giveBack()
	for i := range rounds {
		r := &rounds[i]
		s := r.Session.(*skipSession)
		s.begin(r)
		if s.full() || r.Seq == nil || r.Seq.Len() != len(r.IDs)-1 {
			continue
		}
		s.seq, s.lent, s.committed = r.Seq, true, r.Seq.Len()
		s.fed, s.nLogits, s.stopped = s.fed[:0], 1, false
		s.feed = append(s.feed[:0], r.IDs[len(r.IDs)-1])
		d.lent = append(d.lent, s)
	}
	d.live = append(d.live, d.lent...)
	for len(d.live) > 0 {
		d.lanes = d.lanes[:0]
		for _, s := range d.live {
			s.round.Steps++
			d.lanes = append(d.lanes, &s.lane)
		}
		logits, err := d.step(d.lanes)
		if err != nil {
			return fmt.Errorf("layerskip: %w", err)
		}
		on := d.live[:0]
		for _, s := range d.live {
			if s.stopped {
				continue
			}
			id, ok, err := s.guess(logits.Row(s.row))
			if err == nil && ok && !s.full() {
				s.feed = append(s.feed[:0], id)
				on = append(on, s)
			}
		}
		d.live = on
	}
	return nil
}

// giveBack drops what the guesses appended to the lent sequences, and the blocks that it took.
func (d *LayerSkip) giveBack() {
	for _, s := range d.lent {
		s.seq.Truncate(s.committed)
		s.seq = nil
	}
}

package engine

import (
	"fmt"
	"slices"
	"sync/atomic"

	"quickdraft/drafter"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// pick is one request's part of what follows a pass: the rows of logits that its next tokens are chosen from.
type pick struct {
	r    *run
	row  int    // -1: none is to be chosen
	tree bool   // the rows after row are those of the nodes of r's tree
	why  Finish // why the answer is over with the tokens in run.picked; "": it is not
	err  error
}

// chooser chooses the tokens of a pass, on as many workers as there are requests to choose for: a row is a trip over the whole
// vocabulary. Each worker has its own buffers, and a request is one worker's in a pass. What is chosen follows from the request
// alone, so it does not matter by whom and when.
type chooser struct {
	e      *Engine
	picks  []pick
	logits tensor.F32
	next   atomic.Int64        // pick that no worker has taken
	spaces []*sample.Workspace // of worker i; made when that many are needed
}

// choose fills in run.picked, why and err of all picks.
func (c *chooser) choose(logits tensor.F32) {
	c.logits = logits
	c.next.Store(0)
	n := min(len(c.picks), c.e.pool.N())
	for len(c.spaces) < n {
		c.spaces = append(c.spaces, sample.NewWorkspace(c.e.model.Config().Vocab))
	}
	if n > 1 {
		c.e.pool.RunAny(c)
	} else {
		c.Do(0, 1)
	}
}

// Do is a worker's part.
func (c *chooser) Do(worker, _ int) {
	if worker >= len(c.spaces) {
		return
	}
	for i := c.next.Add(1) - 1; int(i) < len(c.picks); i = c.next.Add(1) - 1 {
		if p := &c.picks[i]; p.row >= 0 {
			p.r.sampler.SetWorkspace(c.spaces[worker])
			c.e.walk(p, c.logits)
		}
	}
}

// walk chooses the next token of a request, or goes along its tree as far as it has the tokens that the target chooses. It runs
// in any worker and touches nothing but the request.
func (e *Engine) walk(p *pick, logits tensor.F32) {
	r, t := p.r, &p.r.spec.tree
	r.picked, r.spec.path, r.spec.accepted = r.picked[:0], r.spec.path[:0], r.spec.accepted[:0]
	for node := int32(-1); ; {
		row := logits.Row(p.row + int(node) + 1)
		r.learned = r.sampler.State()
		var id int32
		child := int32(-1)
		if p.tree {
			id, child, p.err = e.choose(r, t, node, row)
		} else {
			id, p.err = r.plain(row)
		}
		if p.err == nil {
			p.why, p.err = r.take(id, row)
		}
		if p.err != nil {
			p.why = FinishError
			return
		}
		if child < 0 {
			return
		}
		if r.spec.accepted = append(r.spec.accepted, child); p.why != "" {
			return
		}
		r.spec.path = append(r.spec.path, child)
		node = child
	}
}

// plain chooses a token without guesses.
func (r *run) plain(row []float32) (int32, error) {
	if err := r.mask(r.sampler); err != nil {
		return 0, err
	}
	return r.sampler.Sample(row, r.ids)
}

// take makes id, chosen from a row of logits, part of r's answer and says why the answer is over, "" when it is not.
func (r *run) take(id int32, logits []float32) (Finish, error) {
	t := Token{ID: id, HasID: true}
	if err := r.rate(&t, logits); err != nil {
		return FinishError, err
	}
	if r.Matcher != nil {
		if err := acceptBy(r.Matcher, id); err != nil {
			return FinishError, err
		}
	}
	r.ids = append(r.ids, id)
	r.picked = append(r.picked, t)
	if !r.IgnoreEOS && slices.Contains(r.EOG, id) {
		return FinishStop, nil
	}
	if r.Stop != nil {
		if stop, err := stopBy(r.Stop, id); err != nil {
			return FinishError, err
		} else if stop {
			return FinishStop, nil
		}
	}
	if len(r.ids) >= r.limit {
		return FinishLength, nil
	}
	return "", nil
}

// rate fills in the probabilities that the request asks for. What the choice has taught the sampler does not count yet.
func (r *run) rate(t *Token, logits []float32) error {
	if !r.Logprobs {
		return nil
	}
	learned := r.sampler.State()
	r.sampler.SetState(r.learned)
	defer r.sampler.SetState(learned)
	all, err := r.sampler.Logprobs(make([]sample.Logprob, 0, 1+r.TopLogprobs), logits, r.ids, t.ID, r.TopLogprobs)
	if err != nil {
		return err
	}
	t.Logprob, t.Top = all[0].Logprob, all[1:]
	return nil
}

// The calls into a request's own code. A panic there is an error of that request; one of the engine's own goes on.

func maskBy(m drafter.Matcher) (mask []uint64, err error) {
	defer caught("Matcher.Mask", &err)
	return m.Mask(), nil
}

func acceptBy(m drafter.Matcher, id int32) (err error) {
	defer caught("Matcher.Accept", &err)
	m.Accept(id)
	return nil
}

func forkBy(m drafter.Matcher) (fork drafter.Matcher, err error) {
	defer caught("Matcher.Fork", &err)
	return m.Fork(), nil
}

func stopBy(s Stopper, id int32) (stop bool, err error) {
	defer caught("Stopper.Accept", &err)
	return s.Accept(id), nil
}

// caught makes an error of a panic in the function that defers it.
func caught(call string, err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("the request's %s panicked: %v", call, x)
	}
}

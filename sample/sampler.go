package sample

import "fmt"

// Workspace holds the buffers that sampling needs, about 70 bytes a token of the vocabulary. Several samplers may use one, but only
// one at a time.
type Workspace struct {
	cand candidates
	sel  selector
	keys []float64 // (vocab)

	place             []slot // (vocab) index in the list
	counts            []slot // (vocab) occurrences in the history
	epoch, countEpoch uint32

	distinct []int32
	runs     []int32 // (history)
}

// NewWorkspace returns buffers for a vocabulary.
func NewWorkspace(vocab int) *Workspace {
	return &Workspace{
		cand: newCandidates(vocab), sel: selector{entries: make([]ranked, 0, vocab)}, keys: make([]float64, vocab),
		place: make([]slot, vocab), counts: make([]slot, vocab),
	}
}

// Sampler chooses the tokens of one request. It is not safe for concurrent use. Its only state is that of Mirostat.
type Sampler struct {
	p        Params
	vocab    int
	order    []step
	biases   []bias
	mask     idSet
	breakers idSet
	nPrompt  int
	mu       float64
	w        *Workspace
}

// New returns a sampler over ids 0 to vocab-1 with a workspace of its own. The error is a *ParamError.
func New(p Params, vocab int) (*Sampler, error) {
	if vocab < 1 {
		return nil, &ParamError{"vocab", vocab, "1 or more tokens"}
	}
	if err := p.Validate(vocab); err != nil {
		return nil, err
	}
	return NewWorkspace(vocab).New(p)
}

// New returns a sampler that uses this workspace. The error is a *ParamError.
func (w *Workspace) New(p Params) (*Sampler, error) {
	vocab := len(w.place)
	if err := p.Validate(vocab); err != nil {
		return nil, err
	}
	s := &Sampler{p: p, vocab: vocab, mu: 2 * p.MirostatTau, w: w}
	s.order, _ = parseOrder(p.Order)
	for _, id := range sortedKeys(p.LogitBias) {
		s.biases = append(s.biases, bias{id, p.LogitBias[id]})
	}
	s.breakers = newIDSet(p.DRYBreakers, vocab)
	return s, nil
}

// Workspace returns the buffers that the sampler uses.
func (s *Sampler) Workspace() *Workspace { return s.w }

// SetWorkspace has the sampler use other buffers, of the same vocabulary, so that it can move between goroutines with a workspace
// each. Nothing that it knows lies in them.
func (s *Sampler) SetWorkspace(w *Workspace) {
	if len(w.place) != s.vocab {
		panic(fmt.Sprintf("sample: a workspace for %d tokens given to a sampler for %d", len(w.place), s.vocab))
	}
	s.w = w
}

// Params returns the settings.
func (s *Sampler) Params() Params { return s.p }

// SetPrompt says that the first n tokens of every history are the prompt: frequency and presence penalties count only what follows.
// Without it they count all.
func (s *Sampler) SetPrompt(n int) { s.nPrompt = n }

// SetMask restricts the next choices to the ids whose bit is set (bit id%64 of word id/64); nil allows all. The mask is read, not
// copied, and must have a word for every 64 ids of the vocabulary.
func (s *Sampler) SetMask(mask []uint64) error {
	if mask != nil && len(mask) < (s.vocab+63)/64 {
		return fmt.Errorf("mask has %d words: a vocabulary of %d tokens needs %d", len(mask), s.vocab, (s.vocab+63)/64)
	}
	s.mask = mask
	return nil
}

// State returns what the choices so far have taught the sampler (Mirostat's mu), for going back with SetState.
func (s *Sampler) State() float64 { return s.mu }

// SetState goes back to a state that State returned.
func (s *Sampler) SetState(state float64) { s.mu = state }

// IsGreedy reports whether the highest logit is always chosen, so that no distribution is needed.
func (s *Sampler) IsGreedy() bool { return s.p.Temperature == 0 }

// Sample chooses the token that follows history. logits is the model's row for it, at least as long as the vocabulary: more entries
// are padding and never chosen. It is a function of logits, history, settings and, with Mirostat, the choices before; the random
// number is that of position len(history). A NaN or +Inf among the logits, an id outside the vocabulary or a mask that allows
// nothing is an error.
func (s *Sampler) Sample(logits []float32, history []int32) (int32, error) {
	if s.IsGreedy() && s.Plain() {
		return s.highest(logits)
	}
	if err := s.transform(logits, history); err != nil {
		return 0, err
	}
	c := &s.w.cand
	if s.IsGreedy() {
		return c.argmax(), nil
	}
	i := c.draw(Uniform(s.p.Seed, len(history), PurposeSample))
	s.learn(c.w[i] / c.sum)
	return c.idAt(i), nil
}

// Plain reports whether nothing changes the order of the logits.
func (s *Sampler) Plain() bool {
	p := &s.p
	return len(s.biases) == 0 && s.mask == nil && p.RepeatPenalty == 1 && p.FrequencyPenalty == 0 && p.PresencePenalty == 0 && p.DRYMultiplier == 0
}

// highest returns the id of the highest logit.
func (s *Sampler) highest(logits []float32) (int32, error) {
	if err := s.checkRow(len(logits)); err != nil {
		return 0, err
	}
	if err := s.w.cand.load(logits[:s.vocab]); err != nil {
		return 0, err
	}
	return s.w.cand.argmax(), nil
}

func (s *Sampler) checkRow(n int) error {
	if n < s.vocab {
		return fmt.Errorf("%d logits: the vocabulary has %d tokens", n, s.vocab)
	}
	return nil
}

// transform fills the workspace with the candidates and what their weights follow from.
func (s *Sampler) transform(logits []float32, history []int32) error {
	if err := s.checkRow(len(logits)); err != nil {
		return err
	}
	if err := checkHistory(history, s.vocab); err != nil {
		return err
	}
	if err := s.w.cand.load(logits[:s.vocab]); err != nil {
		return err
	}
	return s.steps(history)
}

// steps runs the steps on the candidates.
func (s *Sampler) steps(history []int32) error {
	if err := s.w.applyBias(s.biases, s.mask); err != nil {
		return err
	}
	for _, st := range s.order {
		s.apply(st, history)
	}
	if s.p.Mirostat == 2 && !s.IsGreedy() {
		s.w.mirostat(s.mu)
	}
	return nil
}

// apply runs one step. At temperature 0 only those that change logits count, and with Mirostat none that truncates.
func (s *Sampler) apply(st step, history []int32) {
	w, p := s.w, &s.p
	switch st {
	case stepPenalties:
		w.penalties(p, history, s.nPrompt)
		return
	case stepDRY:
		w.dry(p, s.breakers, history)
		return
	case stepTemperature:
		if !s.IsGreedy() && p.Temperature != 1 {
			w.cand.temp = float64(w.cand.temp * p.Temperature)
			w.cand.weighed = false
		}
		return
	}
	if s.IsGreedy() || p.Mirostat != 0 {
		return
	}
	switch st {
	case stepTopNSigma:
		w.topNSigma(p.TopNSigma)
	case stepTopK:
		w.topK(p.TopK)
	case stepTypicalP:
		w.typicalP(p.TypicalP)
	case stepTopP:
		w.topP(p.TopP)
	case stepMinP:
		w.minP(p.MinP)
	case stepXTC:
		w.xtc(p, len(history))
	}
}

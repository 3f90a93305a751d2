package drafter

import (
	"math/rand/v2"
	"slices"

	"quickdraft/sample"
)

func init() {
	register("random", Takes{}, func(c *Config) (Drafter, error) {
		_, tokens := c.vocab()
		return NewRandom(tokens, c.Seed), nil
	})
	register("adversarial", Takes{}, func(c *Config) (Drafter, error) {
		_, tokens := c.vocab()
		return NewAdversarial(tokens), nil
	})
}

// Random proposes random trees, for tests: tokens without chance, tokens drawn from a distribution that it reports
// truthfully, guests, repeated siblings.
type Random struct {
	vocab int
	rng   *rand.Rand
	dists []*sample.Dist
}

// NewRandom makes the drafter for ids below vocab.
func NewRandom(vocab int, seed uint64) *Random {
	return &Random{vocab: vocab, rng: rand.New(rand.NewPCG(seed, 11))}
}

// Name is "random".
func (d *Random) Name() string { return "random" }

// NewSession makes a session that remembers nothing.
func (d *Random) NewSession() (Session, error) { return noSession{}, nil }

// Bytes is 0: nothing is read.
func (d *Random) Bytes() int64 { return 0 }

// Close has nothing to free.
func (d *Random) Close() error { return nil }

// Propose fills some of every budget.
func (d *Random) Propose(rounds []Round) error {
	used := 0
	for _, r := range rounds {
		for i := range d.rng.IntN(r.Budget.Nodes + 1) {
			parent := int32(d.rng.IntN(i+1) - 1)
			if r.Tree.Depth(parent) >= r.Budget.Depth {
				parent = -1
			}
			switch d.rng.IntN(4) {
			case 0:
				r.Tree.AddGuest(int32(d.rng.IntN(d.vocab)), parent)
			case 1:
				if used == len(d.dists) {
					d.dists = append(d.dists, &sample.Dist{})
				}
				q := d.fill(d.dists[used])
				used++
				r.Tree.Add(q.Draw(d.rng.Float64()), parent, q)
			default:
				r.Tree.Add(int32(d.rng.IntN(d.vocab)), parent, nil)
			}
		}
	}
	return nil
}

// fill makes a distribution over a few random tokens.
func (d *Random) fill(q *sample.Dist) *sample.Dist {
	q.IDs, q.P = q.IDs[:0], q.P[:0]
	sum := 0.0
	for id := d.rng.IntN(d.vocab); id < d.vocab && len(q.IDs) < 8; id += 1 + d.rng.IntN(1+d.vocab/8) {
		p := 0.01 + d.rng.Float64()
		q.IDs, q.P = append(q.IDs, int32(id)), append(q.P, p)
		sum += p
	}
	for i := range q.P {
		q.P[i] /= sum
	}
	return q
}

// Adversarial always fills its budget with one chain of tokens that the sequence has not used lately, so that nearly
// nothing is accepted and all of it is paid for: what the controller must survive.
type Adversarial struct{ vocab int32 }

// NewAdversarial makes the drafter for ids below vocab.
func NewAdversarial(vocab int) *Adversarial { return &Adversarial{vocab: int32(vocab)} }

// Name is "adversarial".
func (d *Adversarial) Name() string { return "adversarial" }

// NewSession makes a session that remembers nothing.
func (d *Adversarial) NewSession() (Session, error) { return noSession{}, nil }

// Bytes is 0: nothing is read.
func (d *Adversarial) Bytes() int64 { return 0 }

// Close has nothing to free.
func (d *Adversarial) Close() error { return nil }

// Propose steps through the vocabulary, skipping recent tokens.
func (d *Adversarial) Propose(rounds []Round) error {
	for _, r := range rounds {
		recent := r.IDs[max(0, len(r.IDs)-64):]
		parent, id := int32(-1), r.IDs[len(r.IDs)-1]
		for range min(r.Budget.Nodes, r.Budget.Depth) {
			for tries := 0; tries <= len(recent); tries++ {
				if id = (id + 1 + d.vocab/3) % d.vocab; !slices.Contains(recent, id) {
					break
				}
			}
			parent = r.Tree.Add(id, parent, nil)
		}
	}
	return nil
}

// noSession remembers nothing.
type noSession struct{}

// Committed keeps nothing.
func (noSession) Committed([]int32) {}

// Close has nothing to free.
func (noSession) Close() {}

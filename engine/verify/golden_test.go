package verify

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/sample"
)

const tolerance = 1e-12

// pair is a target p and a draft q with everything that follows from them.
type pair struct {
	Kind       string    `json:"kind"`
	P          []float64 `json:"p"`
	Q          []float64 `json:"q"`
	AcceptProb float64   `json:"accept_prob"`
	Residual   []float64 `json:"residual"`
	Accepted   []float64 `json:"accepted_token_prob"`
	Output     []float64 `json:"output"`
	IID        []struct {
		K      int `json:"k"`
		Rounds []struct {
			Reach    float64   `json:"reach_prob"`
			Accept   float64   `json:"accept_prob_given_reached"`
			Accepted []float64 `json:"accepted_token_prob"`
			Target   []float64 `json:"target"`
		} `json:"rounds"`
		AllRejected float64   `json:"all_rejected_prob"`
		Output      []float64 `json:"output"`
	} `json:"iid"`
	Without []struct {
		K           int         `json:"k"`
		Accepted    [][]float64 `json:"accepted_token_prob_by_round"`
		AllRejected float64     `json:"all_rejected_prob"`
		Output      []float64   `json:"output"`
	} `json:"without_replacement"`
	TopK []struct {
		Proposals   []int32   `json:"proposals"`
		Accept      []float64 `json:"accept_prob_by_round"`
		AllRejected float64   `json:"all_rejected_prob"`
		Output      []float64 `json:"output"`
	} `json:"topk_delta"`
	Lenience []struct {
		L       float64   `json:"l"`
		Accept  float64   `json:"accept_prob"`
		ResLQ   []float64 `json:"residual_p_minus_lq"`
		ResQ    []float64 `json:"residual_p_minus_q"`
		OutputQ []float64 `json:"output_residual_p_minus_q"`
	} `json:"lenience"`
}

func dist(p []float64) *sample.Dist {
	d := &sample.Dist{}
	for i, x := range p {
		if x > 0 {
			d.IDs, d.P = append(d.IDs, int32(i)), append(d.P, x)
		}
	}
	return d
}

func clone(d *sample.Dist) *sample.Dist {
	return &sample.Dist{IDs: append([]int32(nil), d.IDs...), P: append([]float64(nil), d.P...)}
}

func dense(d *sample.Dist, n int) []float64 {
	out := make([]float64, n)
	for i, id := range d.IDs {
		out[id] = d.P[i]
	}
	return out
}

func add(dst []float64, w float64, x []float64) {
	for i, v := range x {
		dst[i] += w * v
	}
}

func same(t *testing.T, want, got []float64, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		require.InDelta(t, want[i], got[i], tolerance, append([]any{what}, args...)...)
	}
}

// outcome sums over every guess of a round: how likely each token is accepted, and how likely none is.
func outcome(p, q *sample.Dist, lenience float64, n int) (accepted []float64, rejected float64) {
	accepted = make([]float64, n)
	for i, x := range q.IDs {
		a := Judge(p, q, x, lenience)
		accepted[x] += q.P[i] * a
		rejected += q.P[i] * (1 - a)
	}
	return accepted, rejected
}

// without explores all orders of drawing without replacement.
func without(p, q *sample.Dist, round, k int, w float64, accepted [][]float64, out []float64) (rejected float64) {
	if round == k || q == nil {
		add(out, w, dense(p, len(out)))
		return w
	}
	for i, x := range q.IDs {
		a := Judge(p, q, x, 1)
		accepted[round][x] += w * q.P[i] * a
		out[x] += w * q.P[i] * a
		if r := w * q.P[i] * (1 - a); r > 0 {
			p2, q2 := clone(p), clone(q)
			Reject(p2, q, x)
			if !Remove(q2, x) {
				q2 = nil
			} else {
				q2 = dist(dense(q2, len(out)))
			}
			rejected += without(p2, q2, round+1, k, r, accepted, out)
		}
	}
	return rejected
}

func TestGoldenPairs(t *testing.T) {
	var file struct {
		Pairs []pair `json:"pairs"`
	}
	golden.ReadJSON(t, filepath.Join(golden.Dir(t, "speculative"), "pairs.json.gz"), &file)
	for i, c := range file.Pairs {
		checkSingle(t, i, c)
		checkIID(t, i, c)
		checkWithout(t, i, c)
		checkTopK(t, i, c)
		checkLenience(t, i, c)
	}
	golden.Count(t, "speculative", len(file.Pairs))
}

func checkSingle(t *testing.T, i int, c pair) {
	n := len(c.P)
	p, q := dist(c.P), dist(c.Q)
	accepted, rejected := outcome(p, q, 1, n)
	same(t, c.Accepted, accepted, "pair %d", i)
	require.InDelta(t, c.AcceptProb, 1-rejected, tolerance, "pair %d", i)
	left := Residual(p, q)
	if c.Residual == nil {
		require.False(t, left, "pair %d: nothing is left of p", i)
		same(t, c.P, dense(p, n), "pair %d: p stays", i)
	} else {
		require.True(t, left)
		same(t, c.Residual, dense(p, n), "pair %d: residual", i)
	}
	add(accepted, rejected, dense(p, n))
	same(t, c.Output, accepted, "pair %d: output", i)
	same(t, c.P, accepted, "pair %d: output is p", i)
}

func checkIID(t *testing.T, i int, c pair) {
	n := len(c.P)
	for _, g := range c.IID {
		p, q := dist(c.P), dist(c.Q)
		reach, out := 1.0, make([]float64, n)
		for k, round := range g.Rounds {
			require.InDelta(t, round.Reach, reach, tolerance, "pair %d round %d", i, k)
			same(t, round.Target, dense(p, n), "pair %d round %d target", i, k)
			accepted, rejected := outcome(p, q, 1, n)
			require.InDelta(t, round.Accept, 1-rejected, tolerance, "pair %d round %d", i, k)
			weighted := make([]float64, n)
			add(weighted, reach, accepted)
			same(t, round.Accepted, weighted, "pair %d round %d accepted", i, k)
			add(out, 1, weighted)
			reach *= rejected
			Residual(p, q)
		}
		require.InDelta(t, g.AllRejected, reach, tolerance, "pair %d k=%d", i, g.K)
		add(out, reach, dense(p, n))
		same(t, g.Output, out, "pair %d k=%d output", i, g.K)
	}
}

func checkWithout(t *testing.T, i int, c pair) {
	n := len(c.P)
	for _, g := range c.Without {
		accepted, out := make([][]float64, g.K), make([]float64, n)
		for k := range accepted {
			accepted[k] = make([]float64, n)
		}
		rejected := without(dist(c.P), dist(c.Q), 0, g.K, 1, accepted, out)
		for k := range accepted {
			same(t, g.Accepted[k], accepted[k], "pair %d without replacement, round %d", i, k)
		}
		require.InDelta(t, g.AllRejected, rejected, tolerance)
		same(t, g.Output, out, "pair %d without replacement, output", i)
	}
}

func checkTopK(t *testing.T, i int, c pair) {
	n := len(c.P)
	for _, g := range c.TopK {
		p, w, out := dist(c.P), 1.0, make([]float64, n)
		for k, x := range g.Proposals {
			a := Judge(p, nil, x, 1)
			require.InDelta(t, g.Accept[k], w*a, tolerance, "pair %d, point mass %d", i, k)
			out[x] += w * a
			if w *= 1 - a; w > 0 {
				Reject(p, nil, x)
			}
		}
		require.InDelta(t, g.AllRejected, w, tolerance, "pair %d", i)
		add(out, w, dense(p, n))
		same(t, g.Output, out, "pair %d, point masses, output", i)
	}
}

func checkLenience(t *testing.T, i int, c pair) {
	n := len(c.P)
	for _, g := range c.Lenience {
		p, q := dist(c.P), dist(c.Q)
		accepted, rejected := outcome(p, q, g.L, n)
		require.InDelta(t, g.Accept, 1-rejected, tolerance, "pair %d l=%v", i, g.L)
		scaled := clone(q)
		for j := range scaled.P {
			scaled.P[j] *= g.L
		}
		if p2 := clone(p); g.ResLQ != nil && Residual(p2, scaled) {
			same(t, g.ResLQ, dense(p2, n), "pair %d l=%v residual against lq", i, g.L)
		}
		Residual(p, q)
		if g.ResQ != nil {
			same(t, g.ResQ, dense(p, n), "pair %d l=%v residual", i, g.L)
		}
		add(accepted, rejected, dense(p, n))
		same(t, g.OutputQ, accepted, "pair %d l=%v output", i, g.L)
		for x, o := range accepted {
			require.LessOrEqual(t, o, c.P[x]/g.L+tolerance, "pair %d: token %d exceeds p/l", i, x)
		}
	}
}

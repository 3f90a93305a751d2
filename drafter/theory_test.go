package drafter

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

func TestTheoryAgainstTheConformanceSet(t *testing.T) {
	var file struct {
		Costs []float64 `json:"costs"`
		Grid  []struct {
			Alpha    float64   `json:"alpha"`
			Gamma    int       `json:"gamma"`
			Expected float64   `json:"expected_tokens"`
			Speedup  []float64 `json:"speedup_by_c"`
			Ops      []float64 `json:"op_factor_by_c"`
		} `json:"grid"`
		Optimal []struct {
			C        float64 `json:"c"`
			Alpha    float64 `json:"alpha"`
			Gamma    int     `json:"optimal_gamma"`
			Speedup  float64 `json:"speedup"`
			Gap      float64 `json:"runner_up_gap"`
			Possible bool    `json:"improvement_possible"`
		} `json:"optimal"`
		Steps []struct {
			P        [][]float64 `json:"p"`
			Q        [][]float64 `json:"q"`
			Alphas   []float64   `json:"alpha_by_position"`
			Emitted  []float64   `json:"prob_emitted_tokens_1_to_gamma_plus_1"`
			Expected float64     `json:"expected_emitted"`
		} `json:"steps"`
	}
	golden.ReadJSON(t, filepath.Join(golden.Dir(t, "speculative"), "expectations.json.gz"), &file)
	for _, c := range file.Grid {
		near(t, c.Expected, ExpectedTokens(c.Alpha, c.Gamma))
		for i, cost := range file.Costs {
			near(t, c.Speedup[i], Speedup(c.Alpha, c.Gamma, cost))
			near(t, c.Ops[i], OpsFactor(c.Alpha, c.Gamma, cost))
		}
	}
	for _, c := range file.Optimal {
		gamma := OptimalGamma(c.Alpha, c.C, 64)
		near(t, c.Speedup, Speedup(c.Alpha, gamma, c.C))
		if c.Gap > 1e-9 {
			require.Equal(t, c.Gamma, gamma, "%+v", c)
		}
		require.Equal(t, c.Possible, gamma > 0, "%+v", c)
	}
	for _, c := range file.Steps {
		p := stepDistribution(c.Alphas)
		require.Len(t, p, len(c.Emitted))
		for i := range p {
			near(t, c.Emitted[i], p[i])
		}
		near(t, c.Expected, ExpectedSteps(c.Alphas))
	}
	golden.Count(t, "speculative/expectations", len(file.Grid)+len(file.Optimal)+len(file.Steps))
}

func near(t *testing.T, want, got float64) {
	t.Helper()
	require.LessOrEqual(t, math.Abs(want-got), 1e-12*max(1, math.Abs(want)), "want %v, got %v", want, got)
}

// The figures printed in Leviathan et al., tables 1 and 4, rounded as there.
func TestTheoryGivesThePublishedTables(t *testing.T) {
	for _, c := range []struct {
		alpha      float64
		gamma      int
		ops, speed float64
	}{{0.6, 2, 1.53, 1.96}, {0.7, 3, 1.58, 2.53}, {0.8, 2, 1.23, 2.44}, {0.8, 5, 1.63, 3.69}, {0.9, 2, 1.11, 2.71}, {0.9, 10, 1.60, 6.86}} {
		require.InDelta(t, c.ops, OpsFactor(c.alpha, c.gamma, 0), 0.0051, "%+v", c)
		require.InDelta(t, c.speed, Speedup(c.alpha, c.gamma, 0), 0.0051, "%+v", c)
	}
	for _, c := range []struct {
		gamma    int
		alpha, c float64
		expected float64
	}{
		{7, 0.75, 0.02, 3.2}, {7, 0.8, 0.04, 3.3}, {7, 0.82, 0.11, 2.5}, {7, 0.62, 0.02, 2.3}, {5, 0.68, 0.04, 2.4}, {3, 0.71, 0.11, 2.0},
		{5, 0.65, 0.02, 2.4}, {5, 0.73, 0.04, 2.6}, {3, 0.74, 0.11, 2.0}, {5, 0.53, 0.02, 1.9}, {3, 0.55, 0.04, 1.8}, {3, 0.56, 0.11, 1.6},
	} {
		require.InDelta(t, c.expected, Speedup(c.alpha, c.gamma, c.c), 0.1, "%+v", c)
	}
}

// stepDistribution returns the probabilities of a round giving 1, 2, ... len(alphas)+1 tokens when the guess at position i
// is accepted with probability alphas[i], provided that those before it were.
func stepDistribution(alphas []float64) []float64 {
	p := make([]float64, 0, len(alphas)+1)
	reach := 1.0
	for _, a := range alphas {
		p = append(p, float64(reach*(1-a)))
		reach *= a
	}
	return append(p, reach)
}

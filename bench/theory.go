package bench

import (
	"fmt"
	"strings"

	"quickdraft/drafter"
)

// TheoryRow is one line of the published tables, recomputed.
type TheoryRow struct {
	Task     string  `json:"task"`
	Draft    string  `json:"draft,omitempty"`
	Temp     float64 `json:"temperature"`
	Alpha    float64 `json:"alpha"`
	C        float64 `json:"c"`
	Gamma    int     `json:"gamma"`
	Expected float64 `json:"expected_tokens"`
	Ops      float64 `json:"operations_factor"`
	Speed    float64 `json:"walltime_improvement"`
	Best     int     `json:"optimal_gamma"`
	BestTime float64 `json:"optimal_improvement"`
}

// Theory is what the formulas of Leviathan et al. give for the settings of its tables 1 to 4, by the functions that the
// controller plans with.
type Theory struct {
	Operations []TheoryRow `json:"table_1"` // c = 0
	Measured   []TheoryRow `json:"table_2"` // the settings of table 2 with the costs of table 4
	Alphas     []TheoryRow `json:"table_3"` // every alpha, at the costs of the negligible and the small drafts
}

// maxGamma bounds the search for the optimal number of guesses.
const maxGamma = 64

// NewTheory computes the tables.
func NewTheory() *Theory {
	t := &Theory{}
	for _, s := range []struct {
		alpha float64
		gamma int
	}{{0.6, 2}, {0.7, 3}, {0.8, 2}, {0.8, 5}, {0.9, 2}, {0.9, 10}} {
		t.Operations = append(t.Operations, theoryRow("c = 0", "", 0, s.alpha, 0, s.gamma))
	}
	costs := map[string]float64{"T5-small": 0.02, "T5-base": 0.04, "T5-large": 0.11}
	for _, s := range []struct {
		task, draft string
		temp        float64
		gamma       int
		alpha       float64
	}{
		{"EnDe", "T5-small", 0, 7, 0.75}, {"EnDe", "T5-base", 0, 7, 0.8}, {"EnDe", "T5-large", 0, 7, 0.82},
		{"EnDe", "T5-small", 1, 7, 0.62}, {"EnDe", "T5-base", 1, 5, 0.68}, {"EnDe", "T5-large", 1, 3, 0.71},
		{"CNNDM", "T5-small", 0, 5, 0.65}, {"CNNDM", "T5-base", 0, 5, 0.73}, {"CNNDM", "T5-large", 0, 3, 0.74},
		{"CNNDM", "T5-small", 1, 5, 0.53}, {"CNNDM", "T5-base", 1, 3, 0.55}, {"CNNDM", "T5-large", 1, 3, 0.56},
	} {
		t.Measured = append(t.Measured, theoryRow(s.task, s.draft, s.temp, s.alpha, costs[s.draft], s.gamma))
	}
	for _, alpha := range []float64{0.03, 0.05, 0.07, 0.08, 0.13, 0.16, 0.19, 0.20, 0.23, 0.53, 0.55, 0.56, 0.57, 0.61, 0.62, 0.65, 0.68, 0.71, 0.73, 0.74, 0.75, 0.80, 0.82, 0.88, 0.89} {
		for _, c := range []float64{0, 0.02, 0.05, 0.1} {
			gamma := drafter.OptimalGamma(alpha, c, maxGamma)
			t.Alphas = append(t.Alphas, theoryRow("any", "", 0, alpha, c, gamma))
		}
	}
	return t
}

func theoryRow(task, draft string, temp, alpha, c float64, gamma int) TheoryRow {
	best := drafter.OptimalGamma(alpha, c, maxGamma)
	return TheoryRow{
		Task: task, Draft: draft, Temp: temp, Alpha: alpha, C: c, Gamma: gamma,
		Expected: drafter.ExpectedTokens(alpha, gamma), Ops: drafter.OpsFactor(alpha, gamma, c), Speed: drafter.Speedup(alpha, gamma, c),
		Best: best, BestTime: drafter.Speedup(alpha, best, c),
	}
}

// String prints the tables.
func (t *Theory) String() string {
	var b strings.Builder
	for _, table := range []struct {
		title string
		rows  []TheoryRow
	}{
		{"operations and speed where drafting is free (table 1)", t.Operations},
		{"walltime improvement at the measured settings (tables 2 and 4); operations as if a draft step had c of the target's", t.Measured},
		{"the best number of guesses for each alpha of table 3, at four costs of a draft step", t.Alphas},
	} {
		fmt.Fprintf(&b, "%s\n%-8s %-9s %4s %6s %5s %6s %9s %11s %7s %6s %7s\n", table.title,
			"task", "draft", "temp", "alpha", "c", "gamma", "tokens", "operations", "speed", "best", "speed")
		for _, r := range table.rows {
			fmt.Fprintf(&b, "%-8s %-9s %4v %6.2f %5.2f %6d %9.2f %10.2fx %6.2fx %6d %6.2fx\n",
				r.Task, r.Draft, r.Temp, r.Alpha, r.C, r.Gamma, r.Expected, r.Ops, r.Speed, r.Best, r.BestTime)
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}

package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/sample"
)

// checkCounts adds the counts of one request, or of all, up.
func checkCounts(t *testing.T, what string, s SpecStats) {
	t.Helper()
	require.GreaterOrEqual(t, s.Drafted, s.Accepted, what)
	require.GreaterOrEqual(t, s.Drafted, s.Rounds, what)
	require.GreaterOrEqual(t, len(s.Offered), len(s.PerDepth), what)
	accepted, offered, rounds := 0, 0, 0
	for d, n := range s.PerDepth {
		accepted += n
		require.LessOrEqual(t, n, s.Offered[d], "%s: position %d", what, d)
	}
	for d, n := range s.Offered {
		offered += n
		require.LessOrEqual(t, n, s.Rounds, "%s: position %d", what, d)
	}
	for _, n := range s.Widths {
		rounds += n
	}
	require.Equal(t, s.Accepted, accepted, "%s: positions add up", what)
	require.LessOrEqual(t, offered, s.Drafted, what)
	require.Equal(t, s.Rounds, rounds, what)
	drafted, taken, drafters := 0, 0, 0
	for _, p := range s.Parts {
		require.GreaterOrEqual(t, p.Drafted, p.Accepted, "%s: %s", what, p.Name)
		if !strings.Contains(p.Name, "/") {
			drafted, taken, drafters = drafted+p.Drafted, taken+p.Accepted, drafters+1
		}
	}
	require.GreaterOrEqual(t, drafted, s.Drafted, "%s: every guess has a drafter, or several", what)
	require.GreaterOrEqual(t, taken, s.Accepted, what)
	if drafters == 1 {
		require.Equal(t, []int{s.Drafted, s.Accepted}, []int{drafted, taken}, what)
	}
}

// TestCountsAddUp counts three requests with every method and some unions: requests, totals and metrics agree.
func TestCountsAddUp(t *testing.T) {
	for name, parts := range map[string][]string{
		"draft": {"draft"}, "suffix": {"suffix"}, "ngram": {"ngram"}, "lookahead": {"lookahead"}, "layerskip": {"layerskip"}, "crossvocab": {"crossvocab"},
		"hierarchical": {"hierarchical", "hierarchical/draft"}, "suffix+draft": {"suffix", "draft"},
		"ngram+hierarchical+layerskip": {"ngram", "hierarchical", "layerskip", "hierarchical/draft"},
	} {
		t.Run(name, func(t *testing.T) {
			e := openArch(t, "gemma3-text", Options{Context: 160, KVTokens: 1024, Spec: SpecOptions{Fixed: 6, Open: withDrafter(t, name, func(c *drafter.Config) {
				c.Draft, c.Bigger = load(t, c.Target, "gemma3-text"), load(t, c.Target, "gemma3-text")
				c.Translation = letters(t, 512, 0, 512)
			})}})
			var sum SpecStats
			for n := range 3 {
				r := request(1, 12+n, 80)
				r.Sampling = sample.Greedy()
				s, _ := stats(t, e, r)
				require.Positive(t, s.Drafted, "request %d", n)
				require.Positive(t, s.Accepted, "request %d", n)
				require.Len(t, s.Parts, len(parts))
				for i, p := range s.Parts {
					require.Equal(t, parts[i], p.Name)
				}
				checkCounts(t, fmt.Sprint("request ", n), s)
				sum.Drafted, sum.Accepted, sum.Rounds = sum.Drafted+s.Drafted, sum.Accepted+s.Accepted, sum.Rounds+s.Rounds
			}
			all := e.SpecTotals()
			checkCounts(t, "all requests", all)
			require.Equal(t, []int{sum.Drafted, sum.Accepted, sum.Rounds}, []int{all.Drafted, all.Accepted, all.Rounds})
			for _, p := range all.Parts {
				require.Positive(t, p.Drafted, p.Name)
				require.Positive(t, p.Accepted, p.Name)
			}
			if i := len(all.Parts) - 1; strings.Contains(all.Parts[i].Name, "/") {
				require.Equal(t, all.Parts[i].Drafted, all.Parts[i].Accepted, "a copy of the bigger model is always right")
			}
		})
	}
}

// TestMetricsHaveTheNamesThatUsersKnow prints a snapshot.
func TestMetricsHaveTheNamesThatUsersKnow(t *testing.T) {
	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Fixed: 3, Open: withDrafter(t, "suffix+draft", func(c *drafter.Config) { c.Context = 40 })}})
	values := func() map[string]float64 {
		all := map[string]float64{}
		for _, m := range e.Metrics() {
			line := m.String()
			require.Equal(t, fmt.Sprint(m.Value), line[strings.LastIndex(line, " ")+1:])
			require.NotEmpty(t, m.Help)
			_, twice := all[strings.Fields(line)[0]]
			require.False(t, twice, line)
			all[strings.Fields(line)[0]] = m.Value
		}
		return all
	}
	require.Zero(t, values()["quickdraft:spec_decode_num_drafts_total"])
	r := request(1, 20, 60)
	r.Sampling = sample.Greedy()
	answer(t, e, r)
	s, got := e.SpecTotals(), values()
	want := map[string]float64{
		"num_drafts_total": float64(s.Rounds), "num_draft_tokens_total": float64(s.Drafted), "num_accepted_tokens_total": float64(s.Accepted),
		`num_draft_tokens_per_drafter_total{drafter="draft"}`:    float64(s.Parts[1].Drafted),
		`num_accepted_tokens_per_drafter_total{drafter="draft"}`: float64(s.Parts[1].Accepted),
	}
	require.Len(t, s.Offered, 3)
	for i := range 3 {
		want[fmt.Sprintf("num_accepted_tokens_per_pos_total{position=%q}", fmt.Sprint(i))] = float64(s.PerDepth[i])
		want[fmt.Sprintf("num_drafts_per_pos_total{position=%q}", fmt.Sprint(i))] = float64(s.Offered[i])
	}
	for name, n := range want {
		require.Equal(t, n, got["quickdraft:spec_decode_"+name], name)
		require.Positive(t, n, name)
	}
	require.Positive(t, got[`quickdraft:spec_decode_num_drafts_stopped_total{reason="context_full"}`], "the draft has 40 positions")
	require.NoError(t, e.Close())
	require.Equal(t, got, values(), "after the engine was closed")
	for _, m := range openTiny(t, Options{Context: 64}).Metrics() {
		require.Zero(t, m.Value, "without a drafter: %s", m)
	}
}

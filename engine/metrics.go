package engine

import (
	"fmt"
	"strconv"
)

// Metric is one figure of a running engine, under the name by which servers publish it.
type Metric struct {
	Name  string // those that end in _total only grow
	Label string // name of the label that tells it from others of its name; "": there is one
	Of    string // the label's value
	Help  string
	Value float64
}

// String is the metric as a line of the Prometheus text format.
func (m Metric) String() string {
	value := strconv.FormatFloat(m.Value, 'g', -1, 64)
	if m.Label == "" {
		return m.Name + " " + value
	}
	return fmt.Sprintf("%s{%s=%q} %s", m.Name, m.Label, m.Of, value)
}

const specPrefix = "quickdraft:spec_decode_"

// Metrics is a snapshot of what speculation did over all requests since the engine was opened; metrics of one name follow
// one another. Positions count from 0, as other engines count them.
func (e *Engine) Metrics() (all []Metric) {
	e.mu.Lock()
	s, counts := e.specTotals.clone(), e.stoppedDrafts()
	e.mu.Unlock()
	add := func(name, label, of, help string, n int) {
		all = append(all, Metric{Name: specPrefix + name + "_total", Label: label, Of: of, Help: help, Value: float64(n)})
	}
	add("num_drafts", "", "", "Rounds in which guesses were verified.", s.Rounds)
	add("num_draft_tokens", "", "", "Guesses that were verified.", s.Drafted)
	add("num_accepted_tokens", "", "", "Guesses that were accepted.", s.Accepted)
	for i := range s.Offered {
		add("num_drafts_per_pos", "position", strconv.Itoa(i), "Rounds with a guess at a position.", s.Offered[i])
	}
	for i := range s.Offered {
		n := 0
		if i < len(s.PerDepth) {
			n = s.PerDepth[i]
		}
		add("num_accepted_tokens_per_pos", "position", strconv.Itoa(i), "Guesses accepted at a position.", n)
	}
	for _, p := range s.Parts {
		add("num_draft_tokens_per_drafter", "drafter", p.Name, "Guesses of a drafter that were verified.", p.Drafted)
	}
	for _, p := range s.Parts {
		add("num_accepted_tokens_per_drafter", "drafter", p.Name, "Guesses of a drafter that were accepted.", p.Accepted)
	}
	add("num_failed_drafts", "", "", "Rounds without a guess because the drafter reported an error or panicked.", s.Failed)
	for _, c := range []struct {
		reason string
		n      int64
	}{{"context_full", counts.ContextFull}, {"no_kv_blocks", counts.NoBlocks}, {"unknown_token", counts.Unknown}, {"nan", counts.NaN}} {
		add("num_drafts_stopped", "reason", c.reason, "Times that a draft model could not follow a request.", int(c.n))
	}
	return all
}

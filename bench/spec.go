package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"quickdraft/bench/prompts"
	"quickdraft/engine"
	"quickdraft/sample"
)

// SpecOptions say what a comparison with and without guesses runs.
type SpecOptions struct {
	Kinds    []string      // of prompts.Kinds
	PerKind  int           // prompts of each kind
	Tokens   int           // answer length at most
	Streams  int           // requests at once, at most PerKind
	Rounds   int           // how often each group of prompts is answered, 0 is once
	Sampling sample.Params // its seed is that of the first of the requests at once, the others count on from there
	Fixed    []int         // fixed numbers of guesses to run beside the controller
	Encode   func(prompt string) ([]int32, error)
	EOG      []int32
	Note     func(line string) // progress; may be nil
}

// SpecResult is the whole comparison.
type SpecResult struct {
	Head
	Rows     []SpecRow `json:"kinds"`
	All      SpecRow   `json:"all"`
	Pass     []float64 `json:"pass_seconds"`  // T(M), M from 1
	Draft    []float64 `json:"draft_seconds"` // D of 1, 2, ... levels
	Lossy    bool      `json:"lossy"`
	Streams  int       `json:"streams"`
	Temp     float64   `json:"temperature"`
	Sampling string    `json:"sampling"`
}

// Speculation decodes every prompt with and without guesses in turns, on the same engine and in the same minutes.
func Speculation(ctx context.Context, e *engine.Engine, o SpecOptions) (*SpecResult, error) {
	res := &SpecResult{Head: NewHead(e.Threads()), Streams: o.Streams, Temp: o.Sampling.Temperature, Sampling: describe(&o.Sampling)}
	groups := 0
	for _, kind := range o.Kinds {
		set := prompts.Set(kind)
		if set == nil {
			return nil, fmt.Errorf("prompts %q: want one of %s", kind, strings.Join(prompts.Kinds, ", "))
		}
		row := SpecRow{Kind: kind}
		set = set[:min(o.PerKind, len(set))]
		for _, group := range o.groups(set) {
			for range max(1, o.Rounds) {
				if err := o.both(ctx, e, &row, group, groups); err != nil {
					return nil, err
				}
				groups++
			}
		}
		report, _ := e.SpecReport()
		res.Pass, res.Draft = report.Pass, report.Draft
		row.finish()
		res.Rows = append(res.Rows, row)
		res.All.add(&row)
		if o.Note != nil {
			o.Note(row.line())
		}
	}
	res.All.Kind = "all"
	res.All.finish()
	res.Lossy = e.Spec().Lenience < 1
	return res, nil
}

// groups are the prompts that are answered at once: all are full, so the last one may share prompts with the one before.
func (o *SpecOptions) groups(set []string) (groups [][]string) {
	for first := 0; first < len(set); first += o.Streams {
		from := max(0, min(first, len(set)-o.Streams))
		groups = append(groups, set[from:min(from+o.Streams, len(set))])
	}
	return groups
}

// mode is how requests run: without guesses, as the controller decides, or with a fixed number.
type mode struct {
	plain bool
	fixed int
}

// both runs some prompts with and without guesses, the order changing from group to group.
func (o *SpecOptions) both(ctx context.Context, e *engine.Engine, row *SpecRow, group []string, n int) error {
	var ids [][]int32
	for _, p := range group {
		prompt, err := o.Encode(p)
		if err != nil {
			return err
		}
		ids = append(ids, prompt)
	}
	// All find the prompt in the caches, a draft model too: two tokens have one of them drafted for.
	if _, _, err := o.run(ctx, e, ids, mode{fixed: 1}, 3); err != nil {
		return err
	}
	modes := []mode{{plain: true}, {}}
	for _, n := range o.Fixed {
		modes = append(modes, mode{fixed: n})
	}
	answers := make([][][]int32, len(modes))
	for i := range modes {
		at := (n + i) % len(modes)
		before, _ := e.SpecReport()
		out, stats, err := o.run(ctx, e, ids, modes[at], o.Tokens)
		if err != nil {
			return err
		}
		row.count(stats, modes[at])
		if after, _ := e.SpecReport(); at == 1 && o.Streams == 1 {
			row.foresee(stats, after.Foreseen-before.Foreseen)
		}
		answers[at] = out
	}
	for i := range ids {
		row.Answers++
		same := true
		for _, other := range answers[1:] {
			same = same && slices.Equal(answers[0][i], other[i])
		}
		if same {
			row.Identical++
		}
	}
	return nil
}

// run answers the prompts at once.
func (o *SpecOptions) run(ctx context.Context, e *engine.Engine, ids [][]int32, m mode, tokens int) (out [][]int32, stats []engine.Stats, err error) {
	p := o.Sampling
	var tickets []*engine.Ticket
	for i, prompt := range ids {
		p.Seed = o.Sampling.Seed + uint64(i)
		t, err := e.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: tokens, Sampling: p, EOG: o.EOG, NoSpec: m.plain, SpecFixed: m.fixed})
		if err != nil {
			return nil, nil, err
		}
		tickets = append(tickets, t)
	}
	out = make([][]int32, len(tickets))
	done := make(chan error, len(tickets))
	for i, t := range tickets {
		go func() {
			var err error
			for tok := range t.Tokens() {
				if tok.HasID {
					out[i] = append(out[i], tok.ID)
				}
				if tok.Err != nil {
					err = tok.Err
				}
			}
			done <- err
		}()
	}
	for range tickets {
		if failed := <-done; failed != nil {
			err = failed
		}
	}
	for _, t := range tickets {
		stats = append(stats, t.Stats())
	}
	return out, stats, err
}

// describe names the settings that most answers are drawn with; the command line has others.
func describe(p *sample.Params) string {
	s := fmt.Sprintf("temperature %v", p.Temperature)
	if p.Temperature > 0 {
		s += fmt.Sprintf(", top-k %d, top-p %v, min-p %v", p.TopK, p.TopP, p.MinP)
	}
	return s
}

// String prints the comparison as a table.
func (s *SpecResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s; %d at once; tokens/s without and with guesses, in turns\n", s.Head, s.Sampling, s.Streams)
	if s.Lossy {
		b.WriteString("LOSSY: lenience changes the answers\n")
	}
	fmt.Fprintln(&b, SpecHeader)
	for i := range s.Rows {
		fmt.Fprintln(&b, s.Rows[i].line())
	}
	fmt.Fprintln(&b, s.All.line())
	b.WriteString("T(M) ms ")
	for _, t := range s.Pass {
		fmt.Fprintf(&b, " %.1f", 1e3*t)
	}
	b.WriteString("\nD(g) ms ")
	for _, d := range s.Draft {
		fmt.Fprintf(&b, " %.2f", 1e3*d)
	}
	return b.String()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quickdraft/bench"
	"quickdraft/bench/prompts"
	"quickdraft/drafter"
	"quickdraft/text"
)

func benchSpec() *cobra.Command {
	var f modelFlags
	var o bench.SpecOptions
	var kinds string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "spec", Short: "Decode a set of prompts with and without guesses, in turns", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			most := max(f.spec.nMax, f.spec.fixed)
			for i, n := range o.Fixed {
				if n > most {
					return &usageError{fmt.Errorf("--against-fixed %d: want 1 to --spec-draft-n-max, %d", n, most)}
				}
				if f.spec.method == "ngram" && f.spec.ngramGuesses() == 0 && n > drafter.NGramGuesses {
					return &usageError{fmt.Errorf("--against-fixed %d: ngram guesses %d tokens unless --spec-draft-n-max says more", n, drafter.NGramGuesses)}
				}
				if slices.Contains(o.Fixed[:i], n) {
					return &usageError{fmt.Errorf("--against-fixed %d: given twice", n)}
				}
			}
			p := f.params()
			if err := p.Validate(1 << 30); err != nil {
				return &usageError{err}
			}
			if o.Streams > o.PerKind {
				return &usageError{fmt.Errorf("--streams %d: want at most --per-kind, %d", o.Streams, o.PerKind)}
			}
			o.Kinds, f.kvFactor = strings.Split(kinds, ","), o.Streams // no request waits for another's room
			return runBenchSpec(cmd.Context(), &f, o, asJSON)
		},
	}
	f.add(cmd)
	f.spec.add(cmd, specAuto)
	fl := cmd.Flags()
	f.addSampling(cmd, 0, 1)
	intVar(fl, &o.Tokens, "predict", "n", 512, 2, noLimit, "tokens of an answer at most")
	fl.Var(&wholes{p: &o.Fixed, least: 1, most: maxGuesses}, "against-fixed", "also run these fixed numbers of guesses, like 1,2,4,8, and compare with the best")
	intVar(fl, &o.Streams, "streams", "", 1, 1, 10, "requests at once, at most --per-kind")
	intVar(fl, &o.PerKind, "per-kind", "", 10, 1, 10, "prompts of each kind")
	intVar(fl, &o.Rounds, "rounds", "r", 1, 1, maxRepeats, "how often each group of prompts is answered with and without, the order changing")
	wordsVar(fl, &kinds, "kinds", "", strings.Join(prompts.Kinds, ","), checkKinds, "kinds of prompts, separated by commas")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func checkKinds(s string) error {
	var seen []string
	for kind := range strings.SplitSeq(s, ",") {
		if slices.Contains(seen, kind) {
			return fmt.Errorf("%q is given twice", kind)
		}
		seen = append(seen, kind)
		if !slices.Contains(prompts.Kinds, kind) {
			return fmt.Errorf("%q is none, want some of %s, separated by commas", kind, strings.Join(prompts.Kinds, ", "))
		}
	}
	return nil
}

func runBenchSpec(ctx context.Context, f *modelFlags, o bench.SpecOptions, asJSON bool) error {
	encode := func(p *prompter, prompt string) ([]int32, error) {
		return p.encode(ctx, []text.Message{{Role: "user", Content: prompt}}, false)
	}
	m, err := f.open(ctx, func(p *prompter) error {
		for _, kind := range o.Kinds {
			set := prompts.Set(kind)
			for i, prompt := range set[:min(o.PerKind, len(set))] {
				ids, err := encode(p, prompt)
				if err == nil {
					err = p.checkRoom(len(ids), o.Tokens)
				}
				if err != nil {
					return fmt.Errorf("prompt %d of %s: %w", i+1, kind, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer m.Close()
	if m.Spec().Drafter == nil {
		return &usageError{errors.New("bench spec: speculation is off, there is nothing to compare")}
	}
	if err := checkBiases(f.LogitBias, m.config.Vocab); err != nil {
		return err
	}
	o.Sampling = f.paramsFor(m.text.Tokenizer)
	o.EOG = m.eog()
	o.Encode = func(prompt string) ([]int32, error) { return encode(&m.prompter, prompt) }
	fmt.Fprintln(os.Stderr, m.banner())
	fmt.Fprintln(os.Stderr, bench.SpecHeader)
	o.Note = func(line string) { fmt.Fprintln(os.Stderr, line) }
	res, err := bench.Speculation(ctx, m.Engine, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(res)
	} else {
		fmt.Fprintln(stdout, res)
	}
	if err != nil {
		return err
	}
	return checkIdentical(res)
}

// checkIdentical finds greedy answers that guesses changed.
func checkIdentical(res *bench.SpecResult) error {
	if all := &res.All; res.Temp == 0 && !res.Lossy && all.Identical < all.Answers {
		return fmt.Errorf("bench spec: %d of %d greedy answers differ with guesses, want none", all.Answers-all.Identical, all.Answers)
	}
	return nil
}

func benchTheory() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "theory", Short: "Print what the formulas of speculative decoding give for the published settings", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			t := bench.NewTheory()
			if asJSON {
				return printJSON(t)
			}
			fmt.Fprintln(stdout, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/machine"
	"quickdraft/model"
)

// specFlags are the options of speculation; several have older names beside theirs.
type specFlags struct {
	method   string // "": no speculation in this command
	draft    string
	bigger   string
	corpus   string
	skip     string
	on       bool
	nMax     int
	nMin     int
	fixed    int
	vocab    int
	branch   int
	pMin     float64
	lenience float64

	flags  *pflag.FlagSet
	models []*model.Model // that the drafter uses and does not close
}

const (
	specAuto = "auto"
	specNone = "none"
)

// maxGuesses and maxBranch are the engine's bounds.
const (
	maxGuesses = engine.MaxGuesses
	maxBranch  = engine.MaxBranch
)

// defaultDraftVocab is the shortlist of a draft model.
const defaultDraftVocab = 32768

// aliases are the names that other engines give to the same options.
var specAliases = map[string]string{
	"draft": "spec-draft-n-max", "draft-max": "spec-draft-n-max", "draft-n": "spec-draft-n-max", "spec-length": "spec-draft-n-max",
	"draft-min": "spec-draft-n-min", "draft-n-min": "spec-draft-n-min", "draft-p-min": "spec-draft-p-min", "draft-model": "model-draft", "drafter": "spec-type",
}

// add registers the options; method is what happens when none is given. As many have several names, two values for one of them
// are easily given: that is refused.
func (s *specFlags) add(cmd *cobra.Command, method string) {
	s.flags = cmd.Flags()
	fl := pflag.NewFlagSet("speculation", pflag.ContinueOnError)
	wordsVar(fl, &s.draft, "model-draft", "", "", some("the name or the file of a model"), "draft model that guesses ahead (also -md, --draft-model), named as for -m")
	s.method = method
	fl.Var(&methods{words{&s.method, checkMethod}}, "spec-type", "how to guess ahead (also --drafter): "+specAuto+" (the draft model if one is given, else suffix), "+specNone+", "+strings.Join(drafter.Names(), ", ")+", or several joined by + or commas")
	intVar(fl, &s.nMax, "spec-draft-n-max", "", 16, 0, maxGuesses, "guesses a round at most (also --draft, --draft-max, --draft-n, --spec-length)")
	intVar(fl, &s.nMin, "spec-draft-n-min", "", 0, 0, maxGuesses, "do not verify fewer guesses than this (also --draft-min, --draft-n-min)")
	realVar(fl, &s.pMin, "spec-draft-p-min", 0, 0, 1, "stop drafting where the drafter believes less than this in its best guess (also --draft-p-min)")
	intVar(fl, &s.fixed, "spec-fixed", "", 0, 0, maxGuesses, "always this many guesses a round, whether it pays or not (0: decide by measured speed)")
	intVar(fl, &s.vocab, "spec-draft-vocab", "", defaultDraftVocab, 0, noLimit, "tokens that draft considers besides those of the conversation, the first ones of its vocabulary (0: all)")
	intVar(fl, &s.branch, "spec-draft-branch", "", 0, 0, maxBranch, "guesses for one position at most; 1: chains (0: what measured speed says)")
	s.lenience = 1
	fl.Var(&real{&s.lenience, 0, 1, true}, "lenience", "below 1: accept guesses up to 1/lenience times too often. Changes the answers; 1 is lossless")
	fl.BoolVar(&s.on, "speculative-decoding", false, "guess ahead with --draft-model")
	wordsVar(fl, &s.corpus, "spec-corpus", "", "", some("a text file"), "text file that suffix takes guesses from beside the conversation itself")
	wordsVar(fl, &s.skip, "spec-skip", "", "", checkSkip, `layers that layerskip leaves out, like "8-15,20"`)
	wordsVar(fl, &s.bigger, "model-draft-bigger", "", "", some("the name or the file of a model"), "model between draft and target for hierarchical")
	fl.VisitAll(func(f *pflag.Flag) {
		f.Value = &once{Value: f.Value}
		s.flags.AddFlag(f)
	})
	normal := s.flags.GetNormalizeFunc()
	s.flags.SetNormalizeFunc(func(f *pflag.FlagSet, name string) pflag.NormalizedName {
		if to, ok := specAliases[name]; ok {
			name = to
		}
		return normal(f, name)
	})
}

// longShorthand turns -md, which is one option here and two in the flag parser's eyes, into its long form.
func longShorthand(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if a == "--" {
			break
		}
		if a == "-md" || strings.HasPrefix(a, "-md=") {
			out[i] = "--model-draft" + a[len("-md"):]
		}
	}
	return out
}

// methods is the option --spec-type, whose methods are joined by + however they were given.
type methods struct{ words }

// Set checks the value and keeps it.
func (v *methods) Set(s string) error { return v.words.Set(strings.ReplaceAll(s, ",", "+")) }

// checkMethod judges --spec-type.
func checkMethod(s string) error {
	if s == specAuto || s == specNone {
		return nil
	}
	parts := strings.Split(s, "+")
	for i, part := range parts {
		if !slices.Contains(drafter.Names(), part) {
			return fmt.Errorf("want %s, %s, %s, or several of the latter joined by + or commas", specAuto, specNone, strings.Join(drafter.Names(), ", "))
		}
		if slices.Contains(parts[:i], part) {
			return fmt.Errorf("%s is there twice, want each method once", part)
		}
	}
	return nil
}

// skipForm is the form of --spec-skip; which layers there are is the model's matter.
var skipForm = regexp.MustCompile(`^\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*$`)

func checkSkip(s string) error {
	if !skipForm.MatchString(s) {
		return errors.New(`want layers like "8-15,20"`)
	}
	return nil
}

// uses reports whether one of the methods is asked for.
func (s *specFlags) uses(methods ...string) bool {
	for _, part := range strings.Split(s.method, "+") {
		if slices.Contains(methods, part) {
			return true
		}
	}
	return false
}

// describe is the start-up line's part about speculation.
func (s *specFlags) describe(o engine.SpecOptions) string {
	if o.Drafter == nil {
		return "off"
	}
	what := o.Drafter.Name()
	if s.draft != "" {
		what += " " + s.draft
	}
	if s.bigger != "" {
		what += " verified by " + s.bigger
	}
	if n := o.Drafter.Bytes(); n > 0 {
		what += ", " + sizeAgainstCache(n)
	}
	if o.Fixed > 0 {
		what += fmt.Sprintf(", always %d guesses", o.Fixed)
	} else {
		most := o.NMax
		if s.method == "ngram" && s.ngramGuesses() == 0 {
			most = min(most, drafter.NGramGuesses)
		}
		what += fmt.Sprintf(", up to %d guesses where they pay", most)
	}
	if o.Lenience < 1 {
		what += fmt.Sprintf(", LOSSY with lenience %v", o.Lenience)
	}
	return what
}

// sizeAgainstCache says whether what a step of drafting reads stays in the last-level cache.
func sizeAgainstCache(n int64) string {
	l3 := int64(machine.CacheBytes(3))
	switch {
	case l3 == 0:
		return fmt.Sprintf("%.1f MB a step", float64(n)/1e6)
	case n <= l3:
		return fmt.Sprintf("%.1f MB a step, fits the L3 cache of %.0f MiB", float64(n)/1e6, float64(l3)/(1<<20))
	}
	return fmt.Sprintf("%.1f MB a step, more than the L3 cache of %.0f MiB", float64(n)/1e6, float64(l3)/(1<<20))
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"quickdraft/drafter"
)

// settle decides what auto means and finds contradictions: every option that is given has to take effect. To call it again
// changes nothing.
func (s *specFlags) settle() error {
	if s.flags == nil {
		return nil
	}
	typed := s.flags.Changed("spec-type")
	switch {
	case s.nMax == 0 && typed && s.method != specNone:
		return misuse("--spec-draft-n-max 0: no guesses, but --spec-type %s is given", s.method)
	case s.nMax == 0:
		s.method = specNone
	case s.on && s.draft == "":
		return misuse("--speculative-decoding: want a draft model, --draft-model NAME")
	case !s.on && s.flags.Changed("speculative-decoding") && s.draft != "":
		return misuse("--speculative-decoding=false: no guesses, but --model-draft %s is given", s.draft)
	case !s.on && s.flags.Changed("speculative-decoding") && typed && s.method != specAuto && s.method != specNone:
		return misuse("--speculative-decoding=false: no guesses, but --spec-type %s is given", s.method)
	case !s.on && s.flags.Changed("speculative-decoding"):
		s.method = specNone
	case (!typed || s.method == specAuto) && s.bigger != "":
		s.method = "hierarchical"
	case (!typed || s.method == specAuto) && s.draft != "":
		s.method = "draft"
	case s.method == specAuto:
		s.method = "suffix"
	}
	if s.method == specNone {
		switch option := s.given(); {
		case option == "":
			return nil
		case s.nMax == 0:
			return misuse("%s: no guesses with --spec-draft-n-max 0", option)
		default:
			return misuse("%s: nothing guesses ahead, want --spec-type METHOD or --model-draft NAME", option)
		}
	}
	for _, check := range []func() error{s.checkModels, s.checkTakes, s.checkBeams, s.checkGuesses} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func misuse(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// given is the first option beside --spec-type that asks for something, as it was given; "" when none does.
func (s *specFlags) given() string {
	for _, f := range []struct {
		name string
		asks bool
	}{
		{"model-draft", s.draft != ""}, {"model-draft-bigger", s.bigger != ""}, {"speculative-decoding", s.on}, {"spec-draft-n-max", s.nMax > 0},
		{"spec-draft-n-min", s.nMin > 0}, {"spec-draft-p-min", s.pMin > 0}, {"spec-fixed", s.fixed > 0}, {"spec-draft-vocab", true},
		{"spec-draft-branch", s.branch > 0}, {"lenience", s.lenience < 1}, {"spec-corpus", s.corpus != ""}, {"spec-skip", s.skip != ""},
	} {
		if flag := s.flags.Lookup(f.name); flag.Changed && f.asks {
			return "--" + f.name + " " + flag.Value.String()
		}
	}
	return ""
}

// checkModels compares the models that are given with those that the method uses.
func (s *specFlags) checkModels() error {
	switch {
	case s.draft != "" && !s.uses("draft", "crossvocab", "hierarchical"):
		return misuse("--spec-type %s uses no draft model, but --model-draft %s is given", s.method, s.draft)
	case s.draft == "" && s.uses("draft", "crossvocab"):
		return misuse("--spec-type %s: want a draft model, --model-draft NAME", s.method)
	case s.bigger == "" && s.uses("hierarchical"):
		return misuse("--spec-type %s: want the model between draft and target, --model-draft-bigger NAME", s.method)
	case s.bigger != "" && !s.uses("hierarchical"):
		return misuse("--model-draft-bigger %s: only hierarchical has a model between draft and target, this is --spec-type %s", s.bigger, s.method)
	}
	return nil
}

// checkTakes finds options that the method does not take.
func (s *specFlags) checkTakes() error {
	takes, _ := drafter.TakesOf(s.method)
	who := func(has func(drafter.Takes) bool) string {
		names := slices.DeleteFunc(drafter.Names(), func(name string) bool { t, _ := drafter.TakesOf(name); return !has(t) })
		return strings.Join(names, ", ")
	}
	switch {
	case s.pMin > 0 && !takes.MinP:
		return misuse("--spec-draft-p-min %v: %s does not know how probable its guesses are, want --spec-type %s", s.pMin, s.method,
			who(func(t drafter.Takes) bool { return t.MinP }))
	case s.branch > 1 && !takes.Branch:
		return misuse("--spec-draft-branch %d: %s does not choose how many guesses it makes for one position, want --spec-type %s", s.branch, s.method,
			who(func(t drafter.Takes) bool { return t.Branch }))
	case s.flags.Changed("spec-draft-vocab") && !takes.Shortlist:
		return misuse("--spec-draft-vocab %d: %s drafts with no model of the target's vocabulary, want --spec-type %s", s.vocab, s.method,
			who(func(t drafter.Takes) bool { return t.Shortlist }))
	case s.flags.Changed("spec-draft-vocab") && s.draft == "":
		return misuse("--spec-draft-vocab %d: want a draft model, --model-draft NAME", s.vocab)
	case s.corpus != "" && !s.uses("suffix"):
		return misuse("--spec-corpus %s: only suffix reads a corpus, this is --spec-type %s", s.corpus, s.method)
	case s.skip != "" && !s.uses("layerskip"):
		return misuse("--spec-skip %s: only layerskip leaves layers out, this is --spec-type %s", s.skip, s.method)
	}
	return nil
}

// checkBeams finds options that a beam search does not take.
func (s *specFlags) checkBeams() error {
	if beams := s.flags.Lookup("num-beams"); beams == nil || beams.Value.String() == "1" {
		return nil
	}
	switch {
	case s.nMin > 0:
		return misuse("--spec-draft-n-min %d: not with --num-beams, whose hypotheses are guessed for together", s.nMin)
	case s.branch > 0:
		return misuse("--spec-draft-branch %d: not with --num-beams, whose trees are as wide as the search", s.branch)
	case s.lenience < 1:
		return misuse("--lenience %v: not with --num-beams, a search is exact", s.lenience)
	}
	return nil
}

// checkGuesses compares the numbers of guesses with each other.
func (s *specFlags) checkGuesses() error {
	if s.fixed > s.nMax && !s.flags.Changed("spec-draft-n-max") {
		s.nMax = s.fixed
	}
	switch {
	case s.fixed > s.nMax:
		return misuse("--spec-fixed %d: want at most --spec-draft-n-max, %d", s.fixed, s.nMax)
	case s.nMin > s.nMax:
		return misuse("--spec-draft-n-min %d: want at most --spec-draft-n-max, %d", s.nMin, s.nMax)
	case s.fixed > 0 && s.nMin > s.fixed:
		return misuse("--spec-draft-n-min %d: want at most --spec-fixed, %d", s.nMin, s.fixed)
	case s.method == "ngram" && s.nMin > max(s.ngramGuesses(), drafter.NGramGuesses):
		return misuse("--spec-draft-n-min %d: ngram guesses %d tokens unless --spec-draft-n-max says more", s.nMin, drafter.NGramGuesses)
	}
	return nil
}

// ngramGuesses is how many guesses ngram makes a round, 0 for its own number: what is asked for takes effect.
func (s *specFlags) ngramGuesses() int {
	if s.fixed > 0 || s.flags.Changed("spec-draft-n-max") {
		return max(s.fixed, s.nMax)
	}
	return 0
}

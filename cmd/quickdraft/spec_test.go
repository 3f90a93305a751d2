package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/model"
)

// parse gives the options that a command line leads to.
func parse(t *testing.T, args ...string) (*specFlags, error) {
	t.Helper()
	var s specFlags
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	s.add(cmd, specAuto)
	var beams beamFlags
	beams.add(cmd)
	cmd.SetArgs(longShorthand(args))
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err != nil {
		return &s, err
	}
	return &s, s.settle()
}

func TestOneOptionHasManyNames(t *testing.T) {
	for _, name := range []string{"--spec-draft-n-max", "--draft", "--draft-max", "--spec-length"} {
		s, err := parse(t, name, "7")
		require.NoError(t, err, name)
		require.Equal(t, 7, s.nMax, name)
	}
	for _, name := range []string{"--spec-draft-n-min", "--draft-min"} {
		s, err := parse(t, name, "2")
		require.NoError(t, err, name)
		require.Equal(t, 2, s.nMin, name)
	}
	for _, args := range [][]string{{"-md", "d.gguf"}, {"-md=d.gguf"}, {"--model-draft", "d.gguf"}, {"--speculative-decoding", "--draft-model", "d.gguf"}} {
		s, err := parse(t, args...)
		require.NoError(t, err, args)
		require.Equal(t, "d.gguf", s.draft, args)
		require.Equal(t, "draft", s.method, args)
	}
	s, err := parse(t, "--spec-draft-p-min", "0.5", "--spec-fixed", "3", "--lenience", "0.9", "--spec-type", "ngram+layerskip")
	require.NoError(t, err)
	require.Equal(t, []any{0.5, 3, 0.9, "ngram+layerskip"}, []any{s.pMin, s.fixed, s.lenience, s.method})
}

// TestOneOptionHasOneValue gives options twice, by each of their names: the same value is fine, another one is the caller's error.
func TestOneOptionHasOneValue(t *testing.T) {
	names := map[string][]string{
		"--model-draft": {"-md", "--model-draft", "--draft-model"}, "--spec-draft-n-max": {"--draft", "--draft-max", "--draft-n", "--spec-length", "--spec-draft-n-max"},
		"--spec-draft-n-min": {"--draft-min", "--draft-n-min", "--spec-draft-n-min"}, "--spec-draft-p-min": {"--draft-p-min", "--spec-draft-p-min"},
		"--spec-type": {"--drafter", "--spec-type"}, "--spec-fixed": {"--spec-fixed"}, "--lenience": {"--lenience"}, "--spec-corpus": {"--spec-corpus"},
		"--spec-draft-vocab": {"--spec-draft-vocab"}, "--spec-draft-branch": {"--spec-draft-branch"}, "--spec-skip": {"--spec-skip"},
		"--model-draft-bigger": {"--model-draft-bigger"}, "--speculative-decoding": {"--speculative-decoding"},
	}
	values := map[string][2]string{
		"--model-draft": {"a.gguf", "b.gguf"}, "--spec-type": {"ngram", "suffix"}, "--spec-corpus": {"a", "b"}, "--model-draft-bigger": {"a", "b"},
		"--spec-draft-p-min": {"0.5", "0.25"}, "--lenience": {"0.5", "1"}, "--speculative-decoding": {"true", "false"},
	}
	for option, all := range names {
		first, second := "3", "2"
		if v, ok := values[option]; ok {
			first, second = v[0], v[1]
		}
		for _, a := range all {
			for _, b := range all {
				_, err := parse(t, a+"="+first, b+"="+second, "--nonsense")
				require.Equal(t, 2, exitCode(err), "%s %s", a, b)
				require.EqualError(t, err, fmt.Sprintf("%s %q: given before as %q, want one value", option, second, first), "%s %s", a, b)
				_, err = parse(t, a+"="+first, b+"="+first, "--nonsense")
				require.ErrorContains(t, err, "unknown flag: --nonsense", "%s %s", a, b)
			}
		}
	}
	s, err := parse(t, "--draft", "04", "--spec-length", "4", "-md", "d", "-md=d", "--speculative-decoding", "--speculative-decoding=1",
		"--spec-type", "draft,suffix", "--drafter", "draft+suffix")
	require.NoError(t, err)
	require.Equal(t, []any{4, "d", true, "draft+suffix"}, []any{s.nMax, s.draft, s.on, s.method})
	_, err = parse(t, "--draft", "16", "--draft", "4")
	require.ErrorContains(t, err, `--spec-draft-n-max "4": given before as "16"`, "the default counts when it is given")
	err = execute("run", "-m", "MODEL", "-p", "a", "-md", "one.gguf", "--draft-model", "two.gguf")
	require.Equal(t, 2, exitCode(err))
	require.EqualError(t, err, `--model-draft "two.gguf": given before as "one.gguf", want one value`)
}

func TestWithoutOptionsTheConversationItselfIsGuessedFrom(t *testing.T) {
	s, err := parse(t)
	require.NoError(t, err)
	require.Equal(t, "suffix", s.method)
	s, err = parse(t, "--draft", "0")
	require.NoError(t, err)
	require.Equal(t, specNone, s.method)
}

// TestAskedForAndImpossibleIsAnError has every option of speculation where it cannot take effect: one line that names it.
func TestAskedForAndImpossibleIsAnError(t *testing.T) {
	for line, want := range map[string]string{
		"--speculative-decoding":                                "--speculative-decoding: want a draft model",
		"--speculative-decoding=false -md d":                    "--speculative-decoding=false: no guesses, but --model-draft d",
		"--speculative-decoding=false --drafter suffix":         "--speculative-decoding=false: no guesses, but --spec-type suffix",
		"--speculative-decoding --draft-model d --drafter none": "--model-draft d: nothing guesses ahead",
		"--speculative-decoding -md d --spec-type suffix":       "--spec-type suffix uses no draft model",
		"--speculative-decoding -md d --spec-length 0":          "--model-draft d: no guesses with --spec-draft-n-max 0",
		"--spec-type draft":                                     "--spec-type draft: want a draft model",
		"--spec-type crossvocab":                                "--spec-type crossvocab: want a draft model",
		"--spec-type hierarchical":                              "--spec-type hierarchical: want the model between",
		"--spec-type hierarchical -md d":                        "--spec-type hierarchical: want the model between",
		"--spec-type draft -md d --model-draft-bigger b":        "--model-draft-bigger b: only hierarchical",
		"--spec-type suffix --model-draft-bigger b":             "--model-draft-bigger b: only hierarchical",
		"--spec-type ngram -md d":                               "--spec-type ngram uses no draft model",
		"--spec-type nonsense":                                  "nonsense",
		"--spec-type ngram+nonsense":                            "ngram+nonsense",
		"--spec-type suffix,ngram,suffix":                       "suffix is there twice",
		"--spec-type suffix --draft 0":                          "--spec-draft-n-max 0: no guesses, but --spec-type suffix",
		"-md d --draft 0":                                       "--model-draft d: no guesses with --spec-draft-n-max 0",
		"--spec-fixed 3 --draft-max 0":                          "--spec-fixed 3: no guesses with",
		"--draft-min 17":                                        "--spec-draft-n-min 17: want at most --spec-draft-n-max, 16",
		"--draft-min 5 --draft-max 4":                           "--spec-draft-n-min 5: want at most --spec-draft-n-max, 4",
		"--spec-fixed 17 --draft 16":                            "--spec-fixed 17: want at most --spec-draft-n-max, 16",
		"--spec-fixed 2 --draft-min 3":                          "--spec-draft-n-min 3: want at most --spec-fixed, 2",
		"--spec-type ngram --draft-min 5":                       "--spec-draft-n-min 5: ngram guesses 4 tokens",
		"--lenience 0":                                          "lenience",
		"--lenience 1.5":                                        "lenience",
		"--spec-type none --spec-fixed 4":                       "--spec-fixed 4: nothing guesses ahead",
		"--spec-type none --draft 4":                            "--spec-draft-n-max 4: nothing guesses ahead",
		"--spec-type none --draft-min 1":                        "--spec-draft-n-min 1: nothing guesses ahead",
		"--spec-type none --draft-p-min 0.5":                    "--spec-draft-p-min 0.5: nothing guesses ahead",
		"--spec-type none --spec-draft-vocab 0":                 "--spec-draft-vocab 0: nothing guesses ahead",
		"--spec-type none --spec-draft-branch 2":                "--spec-draft-branch 2: nothing guesses ahead",
		"--spec-type none --lenience 0.5":                       "--lenience 0.5: nothing guesses ahead",
		"--spec-type none --spec-corpus f":                      "--spec-corpus f: nothing guesses ahead",
		"--spec-type none --spec-skip 3":                        "--spec-skip 3: nothing guesses ahead",
		"--spec-type none --model-draft-bigger b":               "--model-draft-bigger b: nothing guesses ahead",
		"--draft-p-min 0.5":                                     "--spec-draft-p-min 0.5: suffix does not know how probable its guesses are, want --spec-type crossvocab, draft, hierarchical, layerskip",
		"--spec-type lookahead+ngram --draft-p-min 0.5":         "--spec-draft-p-min 0.5: lookahead+ngram does not",
		"--spec-type ngram --spec-draft-branch 2":               "--spec-draft-branch 2: ngram does not choose how many guesses it makes for one position, want --spec-type draft, suffix",
		"--spec-type layerskip --spec-draft-branch 3":           "--spec-draft-branch 3: layerskip does not",
		"--spec-type crossvocab -md d --spec-draft-branch 3":    "--spec-draft-branch 3: crossvocab does not",
		"--spec-draft-vocab 100":                                "--spec-draft-vocab 100: suffix drafts with no model",
		"--spec-type crossvocab -md d --spec-draft-vocab 100":   "--spec-draft-vocab 100: crossvocab drafts with no model of the target's vocabulary, want --spec-type draft, hierarchical",
		"--model-draft-bigger b --spec-draft-vocab 100":         "--spec-draft-vocab 100: want a draft model",
		"--spec-type ngram --spec-corpus f":                     "--spec-corpus f: only suffix",
		"-md d --spec-corpus f":                                 "--spec-corpus f: only suffix",
		"--spec-skip 3-4":                                       "--spec-skip 3-4: only layerskip",
		"--num-beams 2 --draft-min 1":                           "--spec-draft-n-min 1: not with --num-beams",
		"--num-beams 2 -md d --spec-draft-branch 2":             "--spec-draft-branch 2: not with --num-beams",
		"--num-beams 2 --lenience 0.5":                          "--lenience 0.5: not with --num-beams",
	} {
		_, err := parse(t, strings.Fields(line)...)
		var usage *usageError
		require.ErrorAs(t, err, &usage, line)
		require.ErrorContains(t, err, want, line)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestOptionsThatTakeEffect(t *testing.T) {
	for line, method := range map[string]string{
		"": "suffix", "--spec-type none": specNone, "--draft 0": specNone, "--spec-type none --draft 0": specNone, "--spec-type none --spec-fixed 0 --lenience 1": specNone,
		"--draft-p-min 0 --spec-draft-branch 1": "suffix", "-md d --draft-p-min 0.5 --spec-draft-branch 3 --spec-draft-vocab 0": "draft",
		"--spec-type suffix+draft -md d --draft-p-min 0.5 --spec-draft-branch 2": "suffix+draft", "--model-draft-bigger b": "hierarchical",
		"-md d --model-draft-bigger b --spec-draft-vocab 100": "hierarchical", "--spec-type auto -md d": "draft", "--num-beams 4 --spec-fixed 2": "suffix",
		"--speculative-decoding=false": "none", "--spec-type ngram --draft 8 --draft-min 5": "ngram", "--spec-type layerskip --spec-skip 3": "layerskip",
	} {
		s, err := parse(t, strings.Fields(line)...)
		require.NoError(t, err, line)
		require.Equal(t, method, s.method, line)
		require.NoError(t, s.settle(), "again: %s", line)
		require.Equal(t, method, s.method, line)
	}
	s, err := parse(t, "--spec-fixed", "20")
	require.NoError(t, err)
	require.Equal(t, 20, s.nMax)
	s, err = parse(t, "-md", "/nowhere/draft.gguf")
	require.NoError(t, err)
	_, err = s.options(context.Background(), "target.gguf", nil, model.Options{})
	var usage *usageError
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "/nowhere/draft.gguf")
}

// TestTheStartUpLineNamesTheDrafters has the method, its models and how many guesses.
func TestTheStartUpLineNamesTheDrafters(t *testing.T) {
	for line, want := range map[string]string{
		"--spec-type random":                `^random, up to 16 guesses where they pay$`,
		"--spec-type random --draft 4":      `^random, up to 4 guesses where they pay$`,
		"--spec-type random --lenience .5":  `^random, up to 16 guesses where they pay, LOSSY with lenience 0.5$`,
		"--spec-fixed 3 --spec-type random": `^random, always 3 guesses$`,
		"-md a/d --model-draft-bigger b":    `^random a/d verified by b, up to 16`,
	} {
		s, err := parse(t, strings.Fields(line)...)
		require.NoError(t, err, line)
		require.Regexp(t, want, s.describe(engine.SpecOptions{Drafter: drafter.NewRandom(8, 1), NMax: s.nMax, Fixed: s.fixed, Lenience: s.lenience}), line)
	}
}

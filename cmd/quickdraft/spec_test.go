package main

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"quickdraft/model"
)

// parse gives the options that a command line leads to.
func parse(t *testing.T, args ...string) (*specFlags, error) {
	t.Helper()
	var s specFlags
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	s.add(cmd, specAuto)
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
	s, err := parse(t, "--spec-draft-p-min", "0.5", "--spec-fixed", "3", "--lenience", "0.9", "--spec-type", "ngram+suffix")
	require.NoError(t, err)
	require.Equal(t, []any{0.5, 3, 0.9, "ngram+suffix"}, []any{s.pMin, s.fixed, s.lenience, s.method})
}

func TestWithoutOptionsTheConversationItselfIsGuessedFrom(t *testing.T) {
	s, err := parse(t)
	require.NoError(t, err)
	require.Equal(t, "suffix", s.method)
	s, err = parse(t, "--draft", "0")
	require.NoError(t, err)
	require.Equal(t, specNone, s.method)
}

func TestAskedForAndImpossibleIsAnError(t *testing.T) {
	for _, args := range [][]string{
		{"--speculative-decoding"}, {"--spec-type", "draft"}, {"--spec-type", "crossvocab"}, {"--spec-type", "hierarchical"},
		{"--spec-type", "ngram", "-md", "d.gguf"}, {"--spec-type", "nonsense"}, {"--spec-type", "ngram+nonsense"},
		{"--draft-min", "17"}, {"--spec-fixed", "17", "--draft", "16"}, {"--lenience", "0"}, {"--lenience", "1.5"}, {"--spec-type", "ngram", "--spec-corpus", "f"},
	} {
		_, err := parse(t, args...)
		var usage *usageError
		require.ErrorAs(t, err, &usage, "%v", args)
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

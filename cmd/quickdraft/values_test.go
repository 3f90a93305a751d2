package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// eachCommand visits all commands with the words that call them.
func eachCommand(cmd *cobra.Command, words []string, visit func(cmd *cobra.Command, words []string)) {
	visit(cmd, words)
	for _, c := range cmd.Commands() {
		eachCommand(c, append(slices.Clone(words), c.Name()), visit)
	}
}

// Options whose value is a text of its own kind: everything stands for something, or everything but nothing does.
var (
	freeTexts = []string{"system", "bos", "eos"}
	someTexts = []string{"model", "model-draft", "model-draft-bigger", "spec-corpus", "file", "output", "write", "imatrix", "messages", "template", "prompt"}
)

// wrongValues are values that an option must refuse. An option of another kind than these is a failure: it checks nothing.
func wrongValues(t *testing.T, f *pflag.Flag) []string {
	texts := []string{"", "x", "NaN", "Inf", "1;2", "0x10", "1_000", "--"}
	huge := []string{"99999999999999999999", "-99999999999999999999", "-9223372036854775808", "1.5", "1e3"}
	value := f.Value
	if v, ok := value.(*once); ok {
		value = v.Value
	}
	switch v := value.(type) {
	case *whole[int]:
		return append(append(texts, huge...), fmt.Sprint(v.least-1), fmt.Sprint(v.most+1), "9223372036854775807")
	case *whole[int64]:
		return append(append(texts, huge...), fmt.Sprint(v.least-1))
	case *threadsValue:
		return append(append(texts, huge...), "-1", fmt.Sprint(v.most+1), "1000000")
	case *real:
		return append(wrongReals(v), texts...)
	case *temperature:
		return append(append(wrongReals(&v.real), texts...), "1e-300")
	case *wholes:
		return append(append(texts, huge...), "1,,2", ",", "1,x", fmt.Sprint(v.least-1), "1,"+fmt.Sprint(v.most+1))
	case *biases:
		return append(texts, "7=", "7=101", "7=NaN", "-1=2", "7=1,x")
	case *pieces:
		return []string{""}
	case *span:
		return append(append(texts, huge...), "-1ms", "9999h", "5", "NaNs")
	case *words:
		switch {
		case slices.Contains(freeTexts, f.Name):
			return nil
		case slices.Contains(someTexts, f.Name):
			return []string{""}
		}
		return []string{"", "nonsense", "-1", "NaN", "q4_0,nonsense", ";"}
	case *methods:
		return []string{"", "nonsense", "suffix,", "suffix+nonsense", "suffix,suffix", "auto+suffix", ";"}
	}
	require.Equal(t, "bool", f.Value.Type(), "--%s is a %T, which checks nothing", f.Name, f.Value)
	return []string{"", "maybe", "2"}
}

func wrongReals(v *real) []string {
	wrong := []string{"-Inf", "1e999", fmt.Sprint(v.least - 1), fmt.Sprint(2*v.most + 1), fmt.Sprint(math.Nextafter(v.most, math.Inf(1)))}
	if v.above {
		wrong = append(wrong, fmt.Sprint(v.least))
	}
	return wrong
}

// TestWrongValues gives every option of every command values that it cannot have. The error is the caller's (exit code 2), one
// line, and names the option, the value and what is right.
func TestWrongValues(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("QUICKDRAFT_SOURCES", "none") // whatever asks for a model fails
	tried := 0
	eachCommand(root(), nil, func(cmd *cobra.Command, words []string) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, value := range wrongValues(t, f) {
				err := execute(append(slices.Clone(words), "--"+f.Name+"="+value)...)
				what := fmt.Sprintf("%v --%s %q: %v", words, f.Name, value, err)
				require.Error(t, err, what)
				require.Equal(t, 2, exitCode(err), what)
				require.ErrorContains(t, err, fmt.Sprintf("--%s %q: ", f.Name, value), what)
				require.Regexp(t, "want |this process may use", err.Error(), what)
				require.NotContains(t, err.Error(), "\n", what)
				tried++
			}
		})
	})
	require.Greater(t, tried, 1000)
}

// execute runs a command line.
func execute(args ...string) error {
	cmd := root()
	cmd.SetArgs(longShorthand(args))
	return cmd.Execute()
}

// TestRightValues sets every option to its default and to its bounds.
func TestRightValues(t *testing.T) {
	eachCommand(root(), nil, func(cmd *cobra.Command, words []string) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			right := []string{}
			if v, ok := f.Value.(*once); ok {
				f.Value = v.Value // one after the other
			}
			switch v := f.Value.(type) {
			case *whole[int]:
				right = append(right, fmt.Sprint(v.least), fmt.Sprint(v.most))
			case *whole[int64]:
				right = append(right, fmt.Sprint(v.least), fmt.Sprint(v.most))
			case *threadsValue:
				right = append(right, "0", fmt.Sprint(v.most))
			case *real:
				right = append(right, fmt.Sprint(v.most))
				if !v.above {
					right = append(right, fmt.Sprint(v.least))
				}
			case *temperature:
				right = append(right, "0", "1e-9", "1e9", ".5")
			case *wholes:
				right = append(right, fmt.Sprint(v.least), fmt.Sprintf("%d, %d", v.most, v.least))
			case *span:
				right = append(right, "0", "1h", "1.5s")
			}
			if f.DefValue != "" {
				right = append(right, f.DefValue)
			}
			for _, value := range right {
				require.NoError(t, cmd.Flags().Set(f.Name, value), "%v --%s %q", words, f.Name, value)
			}
		})
	})
}

func TestListsAdd(t *testing.T) {
	list := []int{1, 2}
	v := wholes{p: &list, least: 1, most: 9}
	require.Equal(t, "1,2", v.String())
	for _, s := range []string{"3", "4,5"} {
		require.NoError(t, v.Set(s))
	}
	require.Equal(t, []int{3, 4, 5}, list)
	require.Error(t, v.Set("6,0"))
	require.Equal(t, "3,4,5", v.String())
}

// TestArguments gives every command arguments that are too many or empty.
func TestArguments(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("QUICKDRAFT_SOURCES", "none")
	path := small(t)
	many := strings.Split("a b c d e", " ")
	eachCommand(root(), nil, func(cmd *cobra.Command, words []string) {
		err := execute(append(slices.Clone(words), many...)...)
		require.Equal(t, 2, exitCode(err), "%v: %v", words, err)
	})
	for _, args := range [][]string{
		{"pull", ""}, {"show", ""}, {"rm", ""}, {"pull"}, {"show"}, {"quantize", "", "out.gguf", "q8_0"}, {"quantize", path, "", "q8_0"}, {"quantize", path, "out.gguf", ""},
		{"quantize", path, "out.gguf"}, {"run", "", "prompt"}, {"run", "-m", path, ""}, {"run", path, ""}, {"run", "-m", path, "-p", "a", "b"}, {"imatrix", "-m", path, "-f", path},
		{"imatrix", "-m", path, "-o", "out"}, {"perplexity", "-m", path}, {"debug", "logits", "-m", path}, {"debug", "generate", "-m", path}, {"nonsense"}, {"bench", "nonsense"},
		{"run", "-t"}, {"run", "--nonsense"}, {"run", "-Z"},
	} {
		err := execute(args...)
		require.Equal(t, 2, exitCode(err), "%q: %v", args, err)
		require.NotContains(t, err.Error(), "\n", "%q", args)
		require.NotContains(t, err.Error(), "QUICKDRAFT_SOURCES", "%q", args)
	}
}

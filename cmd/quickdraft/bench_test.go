package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/bench"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/repacked"
)

func TestBenchFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"decode", "-m", "x", "--shape", "llama-3.2-1b"}, "want one of them"},
		{[]string{"verify", "--write", "f.gguf"}, "want --shape with it"},
		{[]string{"prefill", "--shape", "gpt"}, "want one of llama-3.2-1b"},
		{[]string{"decode", "--shape", "llama-3.2-1b", "--format", "q9"}, `--format "q9"`},
		{[]string{"decode", "--format", "q4_0", "-m", "x"}, "--format q4_0: want --shape with it"},
		{[]string{"roofline", "--format", "q8_0"}, "--format q8_0: want --shape with it"},
		{[]string{"decode", "-n", "0"}, `-n, --predict "0": want a whole number, 1 or more`},
		{[]string{"verify", "--max", "513"}, `--max "513": want a whole number from 1 to 512`},
		{[]string{"verify", "--depth", "0"}, `--depth "0"`},
		{[]string{"prefill", "-p", "0"}, `--prompt-tokens "0"`},
		{[]string{"roofline", "-r", "0"}, `--rounds "0"`},
		{[]string{"decode", "-t", "-1", "--shape", "llama-3.2-1b"}, `-t, --threads "-1"`},
		{[]string{"spec", "-m", "x", "--streams", "8", "--per-kind", "4"}, "--streams 8: want at most --per-kind, 4"},
		{[]string{"spec", "-m", "x", "--streams", "11"}, `--streams "11": want a whole number from 1 to 10`},
		{[]string{"spec", "-m", "x", "--spec-type", "ngram", "--against-fixed", "4,7"}, "--against-fixed 7: ngram guesses 4 tokens unless"},
		{[]string{"batch", "--stall", "-1"}, `--stall "-1"`},
		{[]string{"batch", "--stall-target", "-1s"}, `--stall-target "-1s": want a length of time from 0`},
	} {
		cmd := root()
		cmd.SetArgs(append([]string{"bench"}, c.args...))
		err := cmd.Execute()
		require.ErrorContains(t, err, c.want, "%v", c.args)
		var usage *usageError
		require.True(t, errors.As(err, &usage), "%v", c.args)
	}
}

// small is a model file that every command takes.
func small(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.gguf")
	s := bench.Shape{
		Name: "small", Arch: "llama", Layers: 1, Dim: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FF: 256, Vocab: 600, Context: 1024,
		RopeBase: 10000, Eps: 1e-5, Tied: true,
	}
	require.NoError(t, s.Write(t.Context(), path, gguf.TypeQ8_0))
	return path
}

// output runs a command line and returns what it prints.
func output(t *testing.T, args ...string) []byte {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	saved := os.Stdout
	os.Stdout = w
	text := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(r)
		text <- data
	}()
	cmd := root()
	cmd.SetArgs(args)
	err = cmd.Execute()
	os.Stdout = saved
	require.NoError(t, w.Close())
	data := <-text
	require.NoError(t, err)
	return data
}

func TestBenchPrintsItsKeysAndKeepsTiles(t *testing.T) {
	home := t.TempDir()
	t.Setenv("QUICKDRAFT_HOME", home)
	model := small(t)
	for _, c := range []struct {
		args []string
		keys []string
	}{
		{[]string{"decode", "-n", "8", "-r", "1", "--no-repack-cache"}, []string{"tokens_per_second", "weight_gbps", "dram_gbps", "bandwidth_share"}},
		{[]string{"verify", "-r", "1", "--max", "2"}, []string{"rows"}},
		{[]string{"prefill", "-p", "32", "-r", "1"}, []string{"tokens_per_second", "gmacs", "peak_share"}},
		{[]string{"batch", "--stall", "100", "-n", "16", "-p", "4", "--streams", "2", "--cache-type-k", "q8_0"}, []string{"rows", "prompt_tokens", "target_ms"}},
	} {
		var got map[string]any
		require.NoError(t, json.Unmarshal(output(t, append(append([]string{"bench"}, c.args...), "-m", model, "--json")...), &got))
		for _, key := range append(c.keys, "machine", "command", "threads", "isa") {
			require.Contains(t, got, key, "%v", c.args)
		}
		name, err := repacked.FileName(model)
		require.NoError(t, err)
		if c.args[len(c.args)-1] == "--no-repack-cache" {
			require.NoDirExists(t, filepath.Join(home, "repacked"))
		} else {
			require.FileExists(t, filepath.Join(home, "repacked", name))
		}
	}
}

// TestBenchSaysHowItWasMeasured looks for the machine, the command and a spread of the figure itself in what every subcommand
// that measures prints.
func TestBenchSaysHowItWasMeasured(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("GOGC", "120")
	model := small(t)
	saved := os.Args
	defer func() { os.Args = saved }()
	for _, c := range []struct {
		args    []string
		figures []string
	}{
		{[]string{"-p", "16", "-n", "4", "-r", "2"}, []string{`(?m)^decode .*tokens/s \(spread \d+ %\)`, `(?m)^prefill .*tokens/s \(spread \d+ %\)`}},
		{[]string{"decode", "-n", "8", "-r", "2"}, []string{`(?m)^decode .*tokens/s \(spread \d+ %\)`}},
		{[]string{"verify", "--max", "2", "-r", "2"}, []string{`(?m)^ +2 .* \d+ %$`}},
		{[]string{"prefill", "-p", "16", "-r", "2"}, []string{`(?m)^prefill .*tokens/s \(spread \d+ %\)`}},
		{[]string{"batch", "-n", "16", "-p", "4", "--streams", "2", "-r", "2"}, []string{`(?m)^ +2 +[0-9.]+ +\d+ % `}},
		{[]string{"batch", "-n", "16", "-p", "4", "--streams", "2", "--stall", "64", "-r", "2"}, []string{`memory .*\(spread \d+ %\)`}},
		{[]string{"roofline", "-t", "1", "-r", "2"}, []string{`(?m)^ +\d+ +int8 .* \d+ %  [A-Za-z]+`, `(?m)^ +\d+ +128 .* \d+ %$`, `(?m)^chain .*\(spread \d+ %\)`}},
		{[]string{"spec", "--spec-type", "ngram", "--kinds", "chat", "-n", "40", "--per-kind", "2"}, []string{`(?m)^chat +[0-9.]+ +\d+ % +[0-9.]+ +[0-9.]+x +\d+ % `}},
	} {
		args := append(append([]string{"bench"}, c.args...), "-m", model)
		os.Args = append([]string{"/bin/quickdraft"}, args...)
		text := string(output(t, args...))
		require.Regexp(t, `(?m)^machine  .+CPUs used`, text, "%v", args)
		require.Contains(t, text, "\ncommand  GOGC=120 quickdraft "+strings.Join(args, " ")+"\n")
		for _, figure := range c.figures {
			require.Regexp(t, figure, text, "%v", args)
		}
	}
}

func TestQuantizeCommand(t *testing.T) {
	in, out := small(t), filepath.Join(t.TempDir(), "out.gguf")
	require.Contains(t, string(output(t, "quantize", in, out, "q4_k")), "11 tensors, 8 converted")
	f, err := gguf.Open(out)
	require.NoError(t, err)
	tensor, ok := f.Tensor("token_embd.weight")
	require.True(t, ok)
	require.Equal(t, gguf.TypeQ4_K, tensor.Type)
	require.NoError(t, f.Close())
	cmd := root()
	cmd.SetArgs([]string{"quantize", in, out, "q77"})
	require.ErrorContains(t, cmd.Execute(), "q77")
	cmd.SetArgs([]string{"quantize", t.TempDir(), out, "q8_0"})
	require.ErrorContains(t, cmd.Execute(), "config.json")
}

// TestBenchSpecFailsWhereGuessesChangeAnswers has results as a broken engine would give them.
func TestBenchSpecFailsWhereGuessesChangeAnswers(t *testing.T) {
	res := &bench.SpecResult{All: bench.SpecRow{Answers: 10, Identical: 10}}
	require.NoError(t, checkIdentical(res))
	res.All.Identical = 9
	require.ErrorContains(t, checkIdentical(res), "1 of 10 greedy answers differ")
	res.Lossy = true
	require.NoError(t, checkIdentical(res))
	res.Lossy, res.Temp = false, 0.7
	require.NoError(t, checkIdentical(res), "drawn answers may differ")
}

func TestBenchSpecRepeatsAsAsked(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	var got struct {
		All struct {
			Answers   int `json:"answers"`
			Identical int `json:"identical_answers"`
		} `json:"all"`
	}
	line := []string{"bench", "spec", "-m", small(t), "--kinds", "chat", "--per-kind", "3", "--streams", "2", "-n", "6", "--rounds", "3", "--json"}
	require.NoError(t, json.Unmarshal(output(t, line...), &got))
	require.Equal(t, 2*2*3, got.All.Answers, "two groups of two, three times")
	require.Equal(t, got.All.Answers, got.All.Identical)
}

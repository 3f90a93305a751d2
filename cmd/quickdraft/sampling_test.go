package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"quickdraft/sample"
	"quickdraft/text/tokenizer"
)

// sampling gives the settings that a command line leads to.
func sampling(t *testing.T, args ...string) (*runFlags, error) {
	t.Helper()
	var f runFlags
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	f.addSampling(cmd, 0.7, -1)
	f.beams.add(cmd)
	cmd.SetArgs(args)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return &f, cmd.Execute()
}

// TestEverySamplingStepHasAnOption sets each, by its own name and by those of other engines.
func TestEverySamplingStepHasAnOption(t *testing.T) {
	none, err := sampling(t)
	require.NoError(t, err)
	require.Equal(t, 1, none.beams.Beams)
	plain := none.params()
	plain.Seed = 0
	want := defaultSampling()
	require.Equal(t, want, plain, "options that are not given change nothing")
	for _, c := range []struct {
		args []string
		set  func(p *sample.Params)
	}{
		{[]string{"--repeat-last-n", "64", "--repetition-penalty", "1.1"}, func(p *sample.Params) { p.RepeatLastN, p.RepeatPenalty = 64, 1.1 }},
		{[]string{"--typical-p", "0.9"}, func(p *sample.Params) { p.TypicalP = 0.9 }},
		{[]string{"--typical", "0.9", "--top-nsigma", "1.5"}, func(p *sample.Params) { p.TypicalP, p.TopNSigma = 0.9, 1.5 }},
		{[]string{"--xtc-probability", "0.5", "--xtc-threshold", "0.2"}, func(p *sample.Params) { p.XTCProbability, p.XTCThreshold = 0.5, 0.2 }},
		{[]string{"--dry-multiplier", "0.8", "--dry-base", "2", "--dry-allowed-length", "3", "--dry-penalty-last-n", "100"}, func(p *sample.Params) {
			p.DRYMultiplier, p.DRYBase, p.DRYAllowedLength, p.DRYLastN = 0.8, 2, 3, 100
		}},
		{[]string{"--mirostat", "2", "--mirostat-ent", "4", "--mirostat-lr", "0.2"}, func(p *sample.Params) { p.Mirostat, p.MirostatTau, p.MirostatEta = 2, 4, 0.2 }},
		{[]string{"--logit-bias", "7=-100,9=1.5", "--logit-bias", "15+2", "--logit-bias", "16-3"}, func(p *sample.Params) {
			p.LogitBias = map[int32]float64{7: -100, 9: 1.5, 15: 2, 16: -3}
		}},
	} {
		f, err := sampling(t, c.args...)
		require.NoError(t, err, c.args)
		got, want := f.params(), defaultSampling()
		c.set(&want)
		got.Seed = 0
		require.Equal(t, want, got, c.args)
		require.NoError(t, got.Validate(100))
	}
	f, err := sampling(t, "--dry-breaker", "x", "--dry-sequence-breaker", "yz")
	require.NoError(t, err)
	require.Equal(t, []string{"x", "yz"}, f.breakers)
	require.Equal(t, []string{"\n", ":", "\"", "*"}, none.breakers)
	for _, args := range [][]string{
		{"--typical-p", "0"}, {"--mirostat", "3"}, {"--logit-bias", "7"}, {"--logit-bias", "=1"}, {"--logit-bias", "7=101"}, {"--logit-bias", "-7=1"},
		{"--logit-bias", "7=NaN"}, {"--dry-allowed-length", "0"}, {"--num-beams", "0"}, {"--num-beams", "33"}, {"--length-penalty", "9"},
	} {
		_, err := sampling(t, args...)
		var usage *usageError
		require.ErrorAs(t, err, &usage, "%v", args)
	}
}

// TestBreakersAreTokensWithTheText finds the tokens of a vocabulary that contain one of the texts.
func TestBreakersAreTokensWithTheText(t *testing.T) {
	tok, err := tokenizer.FromJSON([]byte(`{"model": {"type": "BPE", "vocab": {"a": 0, ":": 1, "a:": 2, "Ċ": 3, "b": 4}, "merges": [["a", ":"]]}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}`), nil)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3}, breakerIDs(tok, []string{"\n", ":"}))
	require.Empty(t, breakerIDs(tok, []string{"", "x"}))
}

// TestRunSearches answers with beams, and refuses what a search cannot have.
func TestRunSearches(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	var got struct {
		Text  string
		Beams []beam
		figures
	}
	line := []string{"run", "-m", model, "-p", "abc", "--raw", "-n", "4", "--ignore-eos", "--num-beams", "3", "--json"}
	require.NoError(t, json.Unmarshal(output(t, line...), &got))
	require.Len(t, got.Beams, 3)
	require.Equal(t, got.Text, got.Beams[0].Text)
	require.Equal(t, 4, got.DecodeTokens, "of the answer, not of all hypotheses")
	for i, b := range got.Beams {
		require.Equal(t, "length", b.Finish)
		require.True(t, i == 0 || b.Score <= got.Beams[i-1].Score)
	}
	err := execute(append(line, "--kv-layout", "contiguous")...)
	require.ErrorContains(t, err, "--num-beams with --kv-layout contiguous")
	require.Equal(t, 2, exitCode(err))
}

// TestPerplexityAgainstFloat32 compares in one command.
func TestPerplexityAgainstFloat32(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model, text := small(t), filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte(manyLetters(400)), 0o600))
	var got struct {
		Perplexity float64
		F32        struct{ Perplexity float64 }
		Percent    float64 `json:"percent_of_f32"`
	}
	line := []string{"perplexity", "-m", model, "-f", text, "-c", "64", "--against-f32"}
	require.NoError(t, json.Unmarshal(output(t, append(line, "--json")...), &got))
	require.Positive(t, got.F32.Perplexity)
	require.NotEqual(t, got.F32.Perplexity, got.Perplexity)
	require.InDelta(t, 100*(got.Perplexity/got.F32.Perplexity-1), got.Percent, 1e-9)
	require.Less(t, math.Abs(got.Percent), 5.0)
	require.Contains(t, string(output(t, line...)), "with float32 throughout")
	err := execute(append(line, "--weights", "f32")...)
	require.ErrorContains(t, err, "--against-f32 with --weights f32")
	require.Equal(t, 2, exitCode(err))
}

// TestOptionsHaveTheSamplersBounds goes to the ends of what each option takes and beyond: the sampler takes the same, so that its
// error, which knows no options, is never what a command line leads to.
func TestOptionsHaveTheSamplersBounds(t *testing.T) {
	var f runFlags
	cmd := &cobra.Command{Use: "x"}
	f.addSampling(cmd, 0.7, -1)
	valid := func() error {
		p := f.params()
		return p.Validate(1 << 30)
	}
	tried := 0
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		v, ok := fl.Value.(*real)
		if at, is := fl.Value.(*temperature); is {
			v, ok = &at.real, true
		}
		if !ok {
			return
		}
		before := *v.p
		least := v.least
		if v.above {
			least = math.Nextafter(least, 1)
		}
		for _, x := range []float64{least, v.most} {
			require.NoError(t, fl.Value.Set(strconv.FormatFloat(x, 'g', -1, 64)), fl.Name)
			require.Equal(t, x, *v.p)
			require.NoError(t, valid(), fl.Name)
		}
		for _, x := range []float64{math.Nextafter(least, math.Inf(-1)), math.Nextafter(v.most, math.Inf(1)), math.NaN()} {
			require.Error(t, fl.Value.Set(strconv.FormatFloat(x, 'g', -1, 64)), fl.Name)
			*v.p = x
			require.Error(t, valid(), "%s %v", fl.Name, x)
		}
		*v.p = before
		tried++
	})
	require.Equal(t, 14, tried)
}

// TestOneSeedGivesOneAnswer asks again with other threads, caches, guesses and chunks of the machine's own choice.
func TestOneSeedGivesOneAnswer(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	line := []string{"run", "-m", small(t), "-p", "abc abc abc", "--raw", "-n", "40", "--ignore-eos", "--temp", "1.5", "--top-k", "0", "--dry-multiplier", "0.5", "--seed"}
	ask := func(seed string, args ...string) string {
		return string(output(t, append(append(append([]string{}, line...), seed), args...)...))
	}
	want := ask("7")
	for _, args := range [][]string{
		{}, {"-t", "1"}, {"-t", "2"}, {"--kv-layout", "paged"}, {"--spec-type", "none"}, {"--spec-type", "random", "--spec-fixed", "4"}, {"-c", "128"}, {"--no-repack-cache"},
	} {
		require.Equal(t, want, ask("7", args...), "%v", args)
	}
	require.NotEqual(t, want, ask("8"))
	require.NotEqual(t, ask("-1"), ask("-1"), "without a seed each run has another one")
}

// TestSamplersAreNamedOnce says what is wrong with an order.
func TestSamplersAreNamedOnce(t *testing.T) {
	require.NoError(t, checkSamplers("top_k;temp"))
	for order, text := range map[string]string{"top_k;top_k": `"top_k" twice: want`, "top_k;topk": `"topk" twice: want`, "top_k;x": `"x": want`, ";": "want"} {
		err := checkSamplers(order)
		require.ErrorContains(t, err, text+" some of penalties;", order)
		require.ErrorContains(t, err, "each once", order)
	}
}

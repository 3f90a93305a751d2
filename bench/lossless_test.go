package bench

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

//go:embed testdata/fifty.txt
var fifty string

// fiftyTexts are code, prose, CJK and emoji.
func fiftyTexts(t *testing.T) []string {
	all := strings.Split(strings.TrimSuffix(fifty, "\n"), "\n---\n")
	require.Len(t, all, 50)
	return all
}

// silent is a drafter that never proposes anything.
type silent struct{}

func (silent) Name() string                         { return "silent" }
func (silent) Bytes() int64                         { return 0 }
func (silent) Close() error                         { return nil }
func (silent) Propose([]drafter.Round) error        { return nil }
func (silent) NewSession() (drafter.Session, error) { return deaf{}, nil }

type deaf struct{}

func (deaf) Committed([]int32) {}
func (deaf) Close()            {}

// open is the engine option for a method; the models of drafts are the target's file once more, whose text crossvocab translates.
func open(t *testing.T, method, path string, x *text.Text) func(*model.Model) (drafter.Drafter, error) {
	return func(target *model.Model) (drafter.Drafter, error) {
		load := func() *model.Model {
			m, err := model.Load(path, model.Options{Pool: target.Pool()})
			require.NoError(t, err)
			t.Cleanup(func() { _ = m.Close() })
			return m
		}
		c := drafter.Config{Target: target, Guesses: 16, KVTokens: 4096}
		switch method {
		case "silent":
			return silent{}, nil
		case "draft", "draft+suffix":
			c.Draft = load()
		case "hierarchical":
			c.Bigger = load()
		case "crossvocab":
			spelled := drafter.Text{File: path, Size: x.Tokenizer.VocabSize(), Bytes: x.Tokenizer.Bytes, Special: x.Tokenizer.IsSpecial, Encode: func(s string) []int32 {
				return x.Tokenizer.Encode(s, tokenizer.EncodeOptions{})
			}}
			tr, err := drafter.NewTranslation(spelled, spelled)
			require.NoError(t, err)
			c.Draft, c.Translation = load(), tr
		}
		return drafter.New(method, c)
	}
}

// greedyAnswers answers all prompts, so many at once.
func greedyAnswers(t *testing.T, e *engine.Engine, prompts [][]int32, n int, plain bool) (out [][]int32, drafted int) {
	var tickets []*engine.Ticket
	for _, ids := range prompts {
		ticket, err := e.Submit(context.Background(), engine.Request{Prompt: ids, MaxTokens: n, Sampling: sample.Greedy(), IgnoreEOS: true, NoSpec: plain})
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	out, _, drafted = readAll(t, tickets)
	return out, drafted
}

// readAll reads answers and how each ended, and counts their guesses.
func readAll(t *testing.T, tickets []*engine.Ticket) (out [][]int32, ends []engine.Finish, drafted int) {
	for _, ticket := range tickets {
		var ids []int32
		var end engine.Finish
		for tok := range ticket.Tokens() {
			require.NoError(t, tok.Err)
			if tok.HasID {
				ids = append(ids, tok.ID)
			}
			if tok.Finish != "" {
				end = tok.Finish
			}
		}
		out, ends, drafted = append(out, ids), append(ends, end), drafted+ticket.Stats().Spec.Drafted
	}
	return out, ends, drafted
}

// TestFiftyTextsOnRandomWeights continues fifty texts, byte by byte, with 1 to 16 guesses of every kind of drafter.
func TestFiftyTextsOnRandomWeights(t *testing.T) {
	path := filepath.Join(golden.Dir(t, "archs"), "llama3-rope")
	var prompts [][]int32
	for _, s := range fiftyTexts(t) {
		var ids []int32
		for _, b := range []byte(s)[:min(len(s), 60)] {
			ids = append(ids, int32(b))
		}
		prompts = append(prompts, ids)
	}
	var want [][]int32
	for _, method := range []string{"silent", "draft", "ngram", "suffix", "adversarial", "layerskip", "lookahead"} {
		for n := 1; n <= 16; n++ {
			o := engine.Options{Context: 128, KVTokens: 4096, Threads: 1 + n%2, MaxRunning: []int{1, 8}[n/2%2]}
			o.Spec = engine.SpecOptions{NMax: n, Fixed: n, Open: open(t, method, path, nil)}
			e, err := engine.Open(path, o)
			require.NoError(t, err)
			if want == nil {
				want, _ = greedyAnswers(t, e, prompts, 20, true)
			}
			got, drafted := greedyAnswers(t, e, prompts, 20, false)
			require.Equal(t, want, got, "%s with %d guesses", method, n)
			require.Equal(t, method == "silent", drafted == 0, method)
			require.NoError(t, e.Close())
		}
	}
}

// realModel is the smallest real model.
func realModel(t *testing.T) (string, *text.Text) {
	path := golden.Model(t, "smollm2")
	x, err := text.Open(path)
	require.NoError(t, err)
	return path, x
}

// TestFiftyTextsOnARealModel is the same with a model that means what it says: each text has one of the drafters and one of
// the numbers of guesses, and on the way every drafter and number comes about.
func TestFiftyTextsOnARealModel(t *testing.T) {
	path, x := realModel(t)
	texts := fiftyTexts(t)
	n := len(texts)
	if testing.Short() {
		n = 10
	}
	methods := []string{"silent", "draft", "ngram", "suffix", "adversarial", "layerskip", "lookahead", "suffix+ngram"}
	for i, method := range methods {
		nMax := 1 + (3*i+i/4)%16
		e, err := engine.Open(path, engine.Options{
			Context: 512, KVTokens: 2048, Threads: 1 + i%2, MaxRunning: 8, Spec: engine.SpecOptions{NMax: 16, Open: open(t, method, path, nil)},
		})
		require.NoError(t, err)
		for at := i; at < n; at += len(methods) {
			ids := x.Tokenizer.Encode(texts[at], tokenizer.EncodeOptions{AddSpecial: true})
			r := engine.Request{Prompt: ids, MaxTokens: 16, Sampling: sample.Greedy(), IgnoreEOS: true, SpecFixed: 1 + (nMax+5*at)%16}
			if at%3 == 0 {
				r.Sampling.RepeatPenalty, r.Sampling.FrequencyPenalty = 1.1, 0.1
			}
			want := one(t, e, r, true)
			require.Equal(t, want, one(t, e, r, false), "%s, %d guesses, text %d: %s", method, r.SpecFixed, at, texts[at])
		}
		require.NoError(t, e.Close())
	}
}

func one(t *testing.T, e *engine.Engine, r engine.Request, plain bool) []int32 {
	if r.NoSpec = plain; plain {
		r.SpecFixed = 0
	}
	ticket, err := e.Submit(context.Background(), r)
	require.NoError(t, err)
	out, _, _ := readAll(t, []*engine.Ticket{ticket})
	return out[0]
}

// TestThreeRequestsOfAProcessHaveGuesses has the controller decide on texts that repeat themselves, as whoever starts the
// program without options: the first request is guessed for as the third is. It decides by measured times, which a busy machine
// may spoil for one process, but not for five.
func TestThreeRequestsOfAProcessHaveGuesses(t *testing.T) {
	path, x := realModel(t)
	var least int
	for try := 0; try < 5 && least == 0; try++ {
		least = leastDrafted(t, path, x)
	}
	require.Positive(t, least, "one of three requests had no guesses, in five processes")
}

// leastDrafted answers three requests with a fresh engine and returns the fewest guesses that one of them had.
func leastDrafted(t *testing.T, path string, x *text.Text) int {
	e, err := engine.Open(path, engine.Options{Context: 512, Spec: engine.SpecOptions{Open: open(t, "suffix", path, nil)}})
	require.NoError(t, err)
	defer e.Close()
	var drafted []int
	for i := range 3 {
		line := fmt.Sprintf("%d. The cat sat on the mat and looked at the moon over the house.\n", i)
		ids := x.Tokenizer.Encode(strings.Repeat(line, 4), tokenizer.EncodeOptions{AddSpecial: true})
		ticket, err := e.Submit(context.Background(), engine.Request{Prompt: ids, MaxTokens: 40, Sampling: sample.Greedy(), IgnoreEOS: true})
		require.NoError(t, err)
		for range ticket.Tokens() {
		}
		s := ticket.Stats().Spec
		t.Logf("request %d: %d of %d guesses accepted in %d rounds", i, s.Accepted, s.Drafted, s.Rounds)
		drafted = append(drafted, s.Drafted)
	}
	return slices.Min(drafted)
}

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"quickdraft/engine"
	"quickdraft/hub"
	"quickdraft/sample"
	"quickdraft/text"
)

// runFlags are the options of quickdraft run.
type runFlags struct {
	modelFlags
	prompt, system string
	nPredict       int
	raw, asJSON    bool
	ignoreEOS      bool
	beams          beamFlags
	stops          []string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [MODEL] [PROMPT]",
		Short: "Answer a prompt, or chat when there is none and standard input is a terminal",
		Long: "Answers the prompt given as argument, with -p, or on standard input. Without a prompt in a terminal it opens a chat.\n" +
			"A single argument is a model if it names one (catalog name, hf:, pypi:, URL, path) and a prompt otherwise.",
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.arguments(args); err != nil {
				return err
			}
			if f.beams.Beams > 1 {
				if f.layout == "contiguous" && cmd.Flags().Changed("kv-layout") {
					return &usageError{errors.New("--num-beams with --kv-layout contiguous: a search holds many sequences, that cache one")}
				}
				f.layout, f.kvFactor = "paged", f.beams.Beams
			}
			return f.run(cmd.Context())
		},
	}
	f.modelFlags.add(cmd)
	f.addSampling(cmd, defaultSampling().Temperature, -1)
	f.spec.add(cmd, specAuto)
	f.beams.add(cmd)
	fl := cmd.Flags()
	wordsVar(fl, &f.prompt, "prompt", "p", "", some("a text"), "the prompt")
	wordsVar(fl, &f.system, "system", "", "", anything, "system message, for a model whose chat template has a place for one")
	intVar(fl, &f.nPredict, "predict", "n", -1, -1, noLimit, "tokens to generate at most (-1: until the context is full)")
	wordsVar(fl, &f.layout, "kv-layout", "", "contiguous", oneOf("contiguous", "paged"), `KV cache: "contiguous" for one answer at a time, or "paged" as for many, which remembers earlier turns longer`)
	fl.BoolVar(&f.raw, "raw", false, "feed the prompt as it is, without the chat template")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON object with the answer and the figures")
	fl.Var(&pieces{p: &f.stops}, "stop", "text that ends the answer and is not shown; may be given several times")
	fl.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on past end-of-sequence tokens")
	return cmd
}

// arguments sorts the positional arguments into model and prompt.
func (f *runFlags) arguments(args []string) error {
	if len(args) > 0 && f.name == "" && (len(args) == 2 || namesModel(args[0])) {
		f.name, args = args[0], args[1:]
	}
	if len(args) == 0 {
		return nil
	}
	if len(args) == 1 && f.name == "" && looksLikeModel.MatchString(args[0]) {
		return &usageError{fmt.Errorf("%s: no such model (quickdraft list --catalog shows them); give a prompt of that form with -p", args[0])}
	}
	if len(args) == 2 || f.prompt != "" {
		return &usageError{fmt.Errorf("%q: the model or the prompt is already given as an option", args[0])}
	}
	f.prompt = args[0]
	return nil
}

// looksLikeModel matches what is rather a mistyped model than a prompt.
var looksLikeModel = regexp.MustCompile(`^[A-Za-z0-9._-]+:[A-Za-z0-9._-]+$`)

// namesModel reports whether a lone argument is a model rather than a prompt.
func namesModel(s string) bool {
	if _, ok := hub.Find(s); ok {
		return true
	}
	for _, prefix := range []string{"hf:", "pypi:", "http://", "https://", "./", "../", "/"} {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	_, err := os.Stat(s)
	return err == nil
}

// run answers one prompt or opens the chat.
func (f *runFlags) run(ctx context.Context) error {
	p := f.params()
	if err := p.Validate(1 << 30); err != nil {
		return &usageError{err}
	}
	if err := text.CheckStops(f.stops); err != nil {
		return &usageError{fmt.Errorf("--stop: %w", err)}
	}
	if len(f.stops) > 0 && f.beams.Beams > 1 {
		return &usageError{errors.New("--stop with --num-beams: a search has many answers at once and no text of any until its end")}
	}
	if f.raw && f.system != "" {
		return &usageError{errors.New("--system needs the chat template, which --raw leaves out")}
	}
	if f.prompt == "" {
		if term.IsTerminal(int(os.Stdin.Fd())) {
			if f.beams.Beams > 1 {
				return &usageError{errors.New("--num-beams: a search answers a prompt, not a chat")}
			}
			return f.chat(ctx)
		}
		data, err := readStdin(ctx)
		if err != nil {
			return err
		}
		if f.prompt = strings.TrimSuffix(string(data), "\n"); f.prompt == "" {
			return &usageError{errors.New("the prompt is empty: give one as argument, with -p, or on standard input")}
		}
	}
	messages := []text.Message{{Role: "user", Content: f.prompt}}
	if f.system != "" {
		messages = append([]text.Message{{Role: "system", Content: f.system}}, messages...)
	}
	var ids []int32
	m, err := f.start(ctx, func(p *prompter) (err error) {
		if err = p.checkSystem(ctx, f.system); err != nil {
			return err
		}
		if ids, err = p.encode(ctx, messages, f.raw); err == nil {
			err = p.checkRoom(len(ids), f.nPredict)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer m.Close()
	return f.answer(ctx, m, ids)
}

// start opens the model, checks what depends on it, and says what it found.
func (f *runFlags) start(ctx context.Context, check func(*prompter) error) (*loaded, error) {
	m, err := f.open(ctx, check)
	if err != nil {
		return nil, err
	}
	if err := checkBiases(f.LogitBias, m.config.Vocab); err != nil {
		m.Close()
		return nil, err
	}
	fmt.Fprintln(os.Stderr, m.banner())
	return m, nil
}

// answer streams one answer to standard output and the figures to standard error, or both as one JSON object.
func (f *runFlags) answer(parent context.Context, m *loaded, ids []int32) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var out strings.Builder
	show := func(s string) {
		out.WriteString(s)
		if f.asJSON || s == "" {
			return
		}
		if _, err := fmt.Fprint(stdout, s); err != nil {
			cancel(err)
		}
	}
	res, err := f.generate(ctx, m, ids, show)
	if stdout.err != nil {
		return stdout.err
	}
	if err != nil && parent.Err() == nil {
		return err
	}
	if !f.asJSON {
		fmt.Fprintln(stdout)
		fmt.Fprintln(os.Stderr, res.figures)
	} else if err := printJSON(struct {
		Model  string `json:"model"`
		Text   string `json:"text"`
		Finish string `json:"finish_reason"`
		Beams  []beam `json:"beams,omitempty"` // of a search, best first
		figures
	}{f.name, out.String(), string(res.finish), res.beams, res.figures}); err != nil {
		return err
	}
	return context.Cause(parent)
}

// result is what one generation left.
type result struct {
	ids    []int32
	finish engine.Finish
	beams  []beam // of a search, best first
	figures
}

// generate runs one request and shows its text as it comes.
func (f *runFlags) generate(ctx context.Context, m *loaded, ids []int32, show func(string)) (result, error) {
	req := engine.Request{
		Prompt: ids, MaxTokens: f.nPredict, Sampling: f.paramsFor(m.text.Tokenizer), IgnoreEOS: f.ignoreEOS, EOG: m.eog(), Reproducible: f.seed >= 0,
	}
	if f.beams.Beams > 1 {
		return f.search(ctx, m, req, show)
	}
	stream, err := text.NewStopStream(m.text.Tokenizer, f.stops)
	if err != nil {
		return result{}, err
	}
	if len(f.stops) > 0 {
		if req.Stop, err = text.NewStopStream(m.text.Tokenizer, f.stops); err != nil {
			return result{}, err
		}
	}
	ticket, err := m.Submit(ctx, req)
	if err != nil {
		return result{}, err
	}
	var res result
	for tok := range ticket.Tokens() {
		if tok.HasID {
			res.ids = append(res.ids, tok.ID)
			show(stream.Push(tok.ID))
		}
		if tok.Finish != "" {
			res.finish, err = tok.Finish, tok.Err
		}
	}
	show(stream.Flush())
	res.figures = newFigures(m, ticket.Stats())
	return res, err
}

// eog returns the ids that end an answer: what the tokenizer and the model's configuration name.
func (m *loaded) eog() []int32 {
	ids := append(m.text.Tokenizer.EOGs(), m.Model().Config().EOS...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// randomSeed returns a seed that no earlier run had.
func randomSeed() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, says its documentation
	return binary.LittleEndian.Uint64(b[:])
}

// checkSamplers judges the order of --samplers.
func checkSamplers(s string) error {
	want := fmt.Errorf("want some of %s, each once", strings.Join(sample.DefaultOrder(), ";"))
	p := sample.Default()
	if p.Order = splitSamplers(s); len(p.Order) == 0 {
		return want
	}
	err := p.Validate(1)
	var wrong *sample.ParamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return fmt.Errorf("%v: %w", wrong.Value, want)
	}
	return want
}

// splitSamplers reads the order of --samplers; nil means the default.
func splitSamplers(s string) []string {
	if s == "" {
		return nil
	}
	return strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ',' })
}

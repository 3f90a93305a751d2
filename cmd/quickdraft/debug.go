package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quickdraft/asm/cpu"
	"quickdraft/engine"
	"quickdraft/kvcache"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

func debugCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "debug", Short: "Tools for comparing engines: logits, greedy ids, tokens, rendered templates"}
	cmd.AddCommand(debugLogits(), debugGenerate(), debugTokenize(), debugTemplate(), debugLevels())
	return cmd
}

// parseIDs reads "1,2,3".
func parseIDs(s string) ([]int32, error) {
	var ids []int32
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		id, err := strconv.ParseInt(part, 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("%q is not a token id, want numbers like 1,2,3", part)
		}
		ids = append(ids, int32(id))
	}
	if len(ids) == 0 {
		return nil, errors.New("want token ids like 1,2,3")
	}
	return ids, nil
}

func checkIDs(s string) error {
	_, err := parseIDs(s)
	return err
}

// givenIDs reads the option --ids, which must be given.
func givenIDs(s string) ([]int32, error) {
	ids, err := parseIDs(s)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--ids: %w", err)}
	}
	return ids, nil
}

func debugLogits() *cobra.Command {
	var f modelFlags
	var idList, decoderList string
	var top, chunk int
	cmd := &cobra.Command{
		Use: "logits", Short: "Print the logits of every position of a token sequence as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := givenIDs(idList)
			if err != nil {
				return err
			}
			path, err := f.resolve(cmd.Context())
			if err != nil {
				return err
			}
			var decoder []int32
			if decoderList != "" {
				if decoder, err = parseIDs(decoderList); err != nil {
					return err
				}
			}
			return writeLogits(cmd.Context(), path, &f, ids, decoder, top, chunk)
		},
	}
	f.addName(cmd)
	f.addLoading(cmd)
	wordsVar(cmd.Flags(), &idList, "ids", "", "", checkIDs, "token ids, separated by commas")
	wordsVar(cmd.Flags(), &decoderList, "decoder-ids", "", "", checkIDs, "with an encoder-decoder, whose encoder reads --ids: what the decoder is fed after its start token")
	intVar(cmd.Flags(), &top, "top", "", 0, 0, noLimit, "print the N highest logits of a position, with their ids, instead of all")
	intVar(cmd.Flags(), &chunk, "chunk", "", 64, 1, model.DefaultMaxBatch, "tokens fed in one pass")
	return cmd
}

// topLogit is one entry of debug logits --top.
type topLogit struct {
	ID    int     `json:"id"`
	Logit float32 `json:"logit"`
}

// writeLogits feeds ids in chunks and prints a row a position: of the decoder's, where the model has an encoder for ids.
func writeLogits(ctx context.Context, path string, f *modelFlags, ids, decoder []int32, top, chunk int) error {
	m, err := f.openModel(ctx, path)
	if err != nil {
		return err
	}
	defer m.Close()
	input, encodes := ids, m.Config().EncoderLayers > 0
	if encodes {
		ids = append([]int32{m.Config().DecoderStart}, decoder...)
	} else if decoder != nil {
		return &usageError{fmt.Errorf("--decoder-ids: %s has no encoder", path)}
	}
	cache, err := m.NewCache(len(ids)/16 + 1)
	if err != nil {
		return err
	}
	defer cache.Close()
	seq := cache.NewSeq()
	if encodes {
		if err := m.Encode(seq, input); err != nil {
			return err
		}
	}
	if err := seq.Reserve(len(ids)); err != nil {
		return err
	}
	return feedLogits(ctx, m, seq, ids, top, chunk)
}

// feedLogits runs ids through the model and prints their logits.
func feedLogits(ctx context.Context, m *model.Model, seq *kvcache.Seq, ids []int32, top, chunk int) error {
	w := bufio.NewWriter(stdout)
	fmt.Fprintf(w, `{"n_vocab":%d,"logits":[`, m.Config().Vocab)
	for at := 0; at < len(ids); at += chunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part := ids[at:min(at+chunk, len(ids))]
		b := model.Batch{Tokens: part, Spans: []model.Span{{Seq: seq, N: len(part), Prompt: len(ids)}}}
		for i := range part {
			b.Logits = append(b.Logits, int32(i))
		}
		logits, err := m.Forward(&b)
		if err != nil {
			return err
		}
		seq.Commit(len(part))
		for i := range part {
			if at+i > 0 {
				w.WriteByte(',')
			}
			if err := writeRow(w, logits.Row(i), top); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(w, "]}")
	return w.Flush()
}

func writeRow(w *bufio.Writer, row []float32, top int) error {
	var v any = row
	if top > 0 {
		v = topLogits(row, top)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// topLogits returns the n highest logits, the lower id first where two are equal.
func topLogits(row []float32, n int) []topLogit {
	all := make([]topLogit, len(row))
	for id, x := range row {
		all[id] = topLogit{id, x}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Logit > all[j].Logit })
	return all[:min(n, len(all))]
}

func debugGenerate() *cobra.Command {
	var f modelFlags
	var idList string
	var n int
	cmd := &cobra.Command{
		Use: "generate", Short: "Continue a token sequence greedily and print the new ids as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ids, err := givenIDs(idList)
			if err != nil {
				return err
			}
			path, err := f.resolve(cmd.Context())
			if err != nil {
				return err
			}
			e, err := f.openEngine(cmd.Context(), path, nil, nil)
			if err != nil {
				return err
			}
			defer e.Close()
			return generateIDs(cmd.Context(), e, ids, n)
		},
	}
	f.add(cmd)
	wordsVar(cmd.Flags(), &idList, "ids", "", "", checkIDs, "token ids of the prompt, separated by commas")
	intVar(cmd.Flags(), &n, "predict", "n", 24, 0, noLimit, "tokens to generate; end-of-sequence tokens do not stop")
	return cmd
}

func generateIDs(ctx context.Context, e *engine.Engine, ids []int32, n int) error {
	out := struct {
		IDs []int32 `json:"ids"`
	}{IDs: []int32{}}
	for id, err := range e.Generate(ctx, engine.Request{Prompt: ids, MaxTokens: n, IgnoreEOS: true, Sampling: sample.Greedy()}) {
		if err != nil {
			return err
		}
		out.IDs = append(out.IDs, id)
	}
	if len(out.IDs) < n {
		fmt.Fprintf(os.Stderr, "the context of %d tokens (-c) is full after %d of %d\n", e.ContextLen(), len(out.IDs), n)
	}
	return json.NewEncoder(stdout).Encode(out)
}

func debugTokenize() *cobra.Command {
	var f modelFlags
	var o tokenizer.EncodeOptions
	cmd := &cobra.Command{
		Use: "tokenize", Short: "Read JSON strings, one a line, and print their token ids", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, t, err := f.resolveText(cmd.Context())
			if err != nil {
				return err
			}
			return tokenizeLines(cmd.Context(), t, o)
		},
	}
	f.addName(cmd)
	cmd.Flags().BoolVar(&o.AddSpecial, "special", false, "add BOS and EOS as the model wants them")
	cmd.Flags().BoolVar(&o.ParseSpecial, "parse-special", false, "recognise special tokens in the text")
	return cmd
}

// tokenizeLines answers every JSON value of standard input with a line.
func tokenizeLines(ctx context.Context, t *text.Text, o tokenizer.EncodeOptions) error {
	in := json.NewDecoder(newStdin(ctx))
	w := bufio.NewWriter(stdout)
	out := json.NewEncoder(w)
	defer w.Flush() // what came before an error is answered
	for n := 1; ; n++ {
		var s *string
		err := in.Decode(&s)
		if err == io.EOF {
			break
		}
		if err == nil && s == nil {
			err = errors.New("is null")
		}
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("standard input, value %d: want a JSON string: %w", n, err)
		}
		ids := t.Tokenizer.Encode(*s, o)
		if ids == nil {
			ids = []int32{}
		}
		if err := out.Encode(ids); err != nil {
			return err
		}
	}
	return w.Flush()
}

// templateFlags replace what the model says about its template.
type templateFlags struct {
	messages, template, bos, eos, now string
}

func debugTemplate() *cobra.Command {
	var f modelFlags
	var o templateFlags
	cmd := &cobra.Command{
		Use: "template", Short: "Render a conversation with the model's chat template and print it as a JSON string", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := o.render(cmd.Context(), &f)
			if err != nil {
				return err
			}
			enc := json.NewEncoder(stdout)
			enc.SetEscapeHTML(false)
			return enc.Encode(out)
		},
	}
	f.addName(cmd)
	fl := cmd.Flags()
	wordsVar(fl, &o.messages, "messages", "", "-", some("a JSON file, or -"), `JSON file {"messages":[..],"tools":[..],"add_generation_prompt":true,..}; further keys are template variables; "-" is standard input`)
	wordsVar(fl, &o.template, "template", "", "", some("the file of a template"), "file with another template than the model's; no model is needed then")
	wordsVar(fl, &o.bos, "bos", "", "", anything, "text of the beginning-of-sequence token")
	wordsVar(fl, &o.eos, "eos", "", "", anything, "text of the end-of-sequence token")
	wordsVar(fl, &o.now, "now", "", "", checkNow, "time that the template sees, like 2026-07-04T09:05:03 (default: the clock)")
	return cmd
}

func debugLevels() *cobra.Command {
	return &cobra.Command{
		Use: "levels", Short: "List the instruction set levels of this CPU, one a line, whatever QUICKDRAFT_ISA says", Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // instead of a judgement of QUICKDRAFT_ISA
		RunE: func(*cobra.Command, []string) error {
			for _, l := range cpu.Host() {
				fmt.Fprintln(stdout, l)
			}
			return nil
		},
	}
}

// parseNow accepts a date and time with or without an offset.
func parseNow(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time like 2026-07-04T09:05:03")
}

func checkNow(s string) error {
	_, err := parseNow(s)
	return err
}

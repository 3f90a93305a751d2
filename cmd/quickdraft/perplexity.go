package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"quickdraft/eval"
	"quickdraft/model"
	"quickdraft/tensor"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

// textFlags are the options of commands that feed a text file to a model.
type textFlags struct {
	modelFlags
	file    string
	windows int
}

func (f *textFlags) add(cmd *cobra.Command) {
	f.weights = "native"
	fl := cmd.Flags()
	wordsVar(fl, &f.name, "model", "m", "", some("the name or the file of a model"), "model, named as for run")
	wordsVar(fl, &f.file, "file", "f", "", some("the file of a text"), "text file")
	intVar(fl, &f.context, "ctx-size", "c", 512, eval.MinContext, noLimit, "tokens of the windows that the text is cut into")
	intVar(fl, &f.windows, "windows", "", 0, 0, noLimit, "windows to read (0: all)")
	addThreads(fl, &f.threads, "worker threads (0: the physical cores this process may use)")
	fl.BoolVar(&f.noTiles, "no-repack-cache", false, "repack the weights again instead of keeping them in the cache folder")
}

// opened is a model with a text as ids.
type opened struct {
	*model.Model
	path string
	ids  []int32
	opts eval.Options
	pool *tensor.Pool
}

func (o *opened) close() {
	o.Model.Close()
	o.pool.Close()
}

// openText loads the model and encodes the text.
func (f *textFlags) openText(ctx context.Context) (*opened, error) {
	if f.file == "" {
		return nil, &usageError{errors.New("-f: want the file of a text")}
	}
	o := f.engineOptions()
	data, err := readFile("-f", f.file)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("-f %q: is empty, want a text of at least %d tokens, one window (-c)", f.file, f.context)
	}
	path, t, err := f.resolveText(ctx)
	if err != nil {
		return nil, err
	}
	ids := t.Tokenizer.Encode(string(data), tokenizer.EncodeOptions{AddSpecial: true})
	if len(ids) < f.context {
		return nil, fmt.Errorf("-f %q: the text has %d tokens, want at least %d, one window (-c)", f.file, len(ids), f.context)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	bar := newBar("loading", os.Stderr)
	pool := tensor.NewPool(o.Threads)
	m, err := model.Load(path, model.Options{Pool: pool, F32: o.F32, Progress: bar.Set, TilesDir: o.TilesDir, Note: bar.Note, Stop: stopOf(ctx)})
	bar.Finish()
	if err == nil {
		c := m.Config()
		err = errors.Join(c.CheckTokens(t.Tokenizer.VocabSize()), checkContext(f.context, c.ContextLen))
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &opened{Model: m, path: path, pool: pool, ids: ids, opts: f.evalOptions(t)}, nil
}

// evalOptions are the windows, with a begin-of-text token in each where the tokenizer puts one in front of texts.
func (f *textFlags) evalOptions(t *text.Text) eval.Options {
	o := eval.Options{Context: f.context, Windows: f.windows, BOS: -1}
	if t.Tokenizer.AddsBOS() {
		o.BOS = t.Tokenizer.BOS()
	}
	steps := newBar("windows", os.Stderr)
	o.Progress = func(done, total int) {
		steps.Count(done, total)
		if done == total {
			steps.Finish()
		}
	}
	return o
}

// perplexityResult is what quickdraft perplexity prints.
type perplexityResult struct {
	Model   string `json:"model"`
	Text    string `json:"text"`
	Weights string `json:"weights"` // "native" or "f32"
	CacheK  string `json:"cache_type_k"`
	CacheV  string `json:"cache_type_v"`
	*eval.Perplexity
	Float32 *eval.Perplexity `json:"f32,omitempty"`            // of --against-f32
	Percent *float64         `json:"percent_of_f32,omitempty"` // by how much the perplexity is above it
}

// String is the result for people.
func (r *perplexityResult) String() string {
	if r.Float32 == nil {
		return r.Perplexity.String()
	}
	return fmt.Sprintf("%v\n%v with float32 throughout\n%+.3f %%", r.Perplexity, r.Float32, *r.Percent)
}

// measure reads the text with a model.
func (f *textFlags) measure(ctx context.Context) (*opened, *eval.Perplexity, error) {
	m, err := f.openText(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer m.close()
	m.opts.K8, m.opts.V8 = f.cacheK == "q8_0", f.cacheV == "q8_0"
	p, err := eval.Measure(ctx, m.Model, m.ids, m.opts)
	return m, p, err
}

// perplexity measures once, or twice to compare.
func (f *textFlags) perplexity(ctx context.Context, against bool) (*perplexityResult, error) {
	if against && f.weights == "f32" {
		return nil, &usageError{errors.New("--against-f32 with --weights f32: want the weights as the file has them on one side")}
	}
	m, p, err := f.measure(ctx)
	if err != nil {
		return nil, err
	}
	r := &perplexityResult{Model: m.path, Text: f.file, Weights: f.weights, CacheK: f.cacheK, CacheV: f.cacheV, Perplexity: p}
	if !against {
		return r, nil
	}
	exact := *f
	exact.weights, exact.cacheK, exact.cacheV = "f32", "f16", "f16" // its cache is float32, whatever the option says
	if _, r.Float32, err = exact.measure(ctx); err != nil {
		return nil, err
	}
	percent := 100 * (p.Perplexity/r.Float32.Perplexity - 1)
	r.Percent = &percent
	return r, nil
}

func perplexityCommand() *cobra.Command {
	var f textFlags
	var asJSON, against bool
	cmd := &cobra.Command{
		Use: "perplexity", Short: "Measure how well a model predicts a text", Args: cobra.NoArgs,
		Long: "Cuts the text into windows and predicts the second half of each from what stands before it. The result is e to the\n" +
			"mean negative log-likelihood, with its standard error. --weights f32 computes everything in float32; --against-f32 does\n" +
			"both and says by how much the arithmetic of the file's own format is off on the same weights.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.perplexity(cmd.Context(), against)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(r)
			}
			_, err = fmt.Fprintln(stdout, r)
			return err
		},
	}
	f.add(cmd)
	f.addCacheTypes(cmd)
	wordsVar(cmd.Flags(), &f.weights, "weights", "", "native", oneOf("native", "f32"), `"native" or "f32": everything in float32, without activation quantisation`)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&against, "against-f32", false, "measure again with everything in float32 and print the difference in percent")
	return cmd
}

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quickdraft/bench"
	"quickdraft/model"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

// benchFlags say what the subcommands of bench measure: a model or a shape.
type benchFlags struct {
	modelFlags
	shape, format, write string
	asJSON               bool
	flags                *pflag.FlagSet // to see which are given
}

func (b *benchFlags) add(cmd *cobra.Command) {
	b.weights = "native"
	fl := cmd.Flags()
	b.flags = fl
	wordsVar(fl, &b.name, "model", "m", "", some("the name or the file of a model"), "model, named as for run")
	addThreads(fl, &b.threads, "worker threads (0: the physical cores this process may use)")
	fl.BoolVar(&b.noTiles, "no-repack-cache", false, "repack the weights again instead of keeping them in the cache folder")
	wordsVar(fl, &b.shape, "shape", "", "", checkShape, "random weights of a known shape instead of a model: llama-3.2-1b, llama-3.2-3b or qwen2.5-coder-7b")
	wordsVar(fl, &b.format, "format", "", "q4_0", checkFormat, "weight format of --shape")
	wordsVar(fl, &b.write, "write", "", "", some("the name of a file to write"), "write the shape to this GGUF file and measure that")
	fl.BoolVar(&b.asJSON, "json", false, "print JSON")
}

// check finds options that do not go together.
func (b *benchFlags) check() error {
	switch {
	case b.shape != "" && b.name != "":
		return &usageError{fmt.Errorf("-m %s and --shape %s: want one of them", b.name, b.shape)}
	case b.write != "" && b.shape == "":
		return &usageError{fmt.Errorf("--write %s: want --shape with it", b.write)}
	case b.shape == "" && b.flags.Changed("format"):
		return &usageError{fmt.Errorf("--format %s: want --shape with it, a model has formats of its own", b.format)}
	case b.write != "":
		return checkOutput("--write", b.write)
	}
	return nil
}

func checkShape(s string) error {
	_, err := bench.FindShape(s)
	return err
}

func checkFormat(s string) error {
	_, err := gguf.ParseType(s)
	return err
}

// load returns the model and its name in results; close ends its workers too.
func (b *benchFlags) load(ctx context.Context) (m *model.Model, name string, closeAll func(), err error) {
	o := b.engineOptions()
	bar := newBar("loading", os.Stderr)
	defer bar.Finish()
	pool := tensor.NewPool(o.Threads)
	mo := model.Options{Pool: pool, Progress: bar.Set, TilesDir: o.TilesDir, Note: bar.Note, Stop: stopOf(ctx)}
	if b.shape != "" {
		m, name, err = b.loadShape(ctx, mo)
	} else if name, err = b.resolve(ctx); err == nil {
		m, err = model.Load(name, mo)
	}
	if err != nil {
		pool.Close()
		return nil, "", nil, err
	}
	return m, name, func() { m.Close(); pool.Close() }, nil
}

// loadShape makes the model in memory, or in the file of --write.
func (b *benchFlags) loadShape(ctx context.Context, o model.Options) (*model.Model, string, error) {
	s, err := bench.FindShape(b.shape)
	if err != nil {
		return nil, "", err
	}
	t, err := gguf.ParseType(b.format)
	if err != nil {
		return nil, "", err
	}
	if b.write == "" {
		m, err := s.Build(t, o)
		return m, fmt.Sprintf("%s shape in %v", s.Name, t), err
	}
	if err := s.Write(ctx, b.write, t); err != nil {
		return nil, "", err
	}
	o.TilesDir = ""
	m, err := model.Load(b.write, o)
	return m, b.write, err
}

// with loads what the flags say, runs f for sequences of up to maxTokens tokens, and prints the result.
func (b *benchFlags) with(ctx context.Context, maxTokens int, f func(*bench.Runner) (fmt.Stringer, error)) error {
	if err := b.check(); err != nil {
		return err
	}
	m, name, closeAll, err := b.load(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	if trained := m.Config().ContextLen; maxTokens > trained {
		return &usageError{fmt.Errorf("a sequence of %d tokens is asked for, want at most %d, what %s was made for", maxTokens, trained, name)}
	}
	r, err := bench.NewRunner(name, m, maxTokens)
	if err != nil {
		return err
	}
	defer r.Close()
	res, err := f(r)
	if err != nil {
		return err
	}
	return b.print(res)
}

func (b *benchFlags) print(res fmt.Stringer) error {
	if b.asJSON {
		return printJSON(res)
	}
	_, err := fmt.Fprintln(stdout, res)
	return err
}

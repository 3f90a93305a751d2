package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

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
}

func (b *benchFlags) add(cmd *cobra.Command) {
	b.weights = "native"
	fl := cmd.Flags()
	fl.StringVarP(&b.name, "model", "m", "", "model, named as for run")
	fl.IntVarP(&b.threads, "threads", "t", 0, "worker threads (0: the physical cores this process may use)")
	fl.BoolVar(&b.noTiles, "no-repack-cache", false, "repack the weights again instead of keeping them in the cache folder")
	fl.StringVar(&b.shape, "shape", "", "random weights of a known shape instead of a model: llama-3.2-1b, llama-3.2-3b or qwen2.5-coder-7b")
	fl.StringVar(&b.format, "format", "q4_0", "weight format of --shape")
	fl.StringVar(&b.write, "write", "", "write the shape to this GGUF file and measure that")
	fl.BoolVar(&b.asJSON, "json", false, "print JSON")
}

// check finds options that do not go together.
func (b *benchFlags) check() error {
	switch {
	case b.shape != "" && b.name != "":
		return &usageError{fmt.Errorf("-m %s and --shape %s: want one of them", b.name, b.shape)}
	case b.write != "" && b.shape == "":
		return &usageError{fmt.Errorf("--write %s: want --shape with it", b.write)}
	}
	if _, err := gguf.ParseType(b.format); err != nil {
		return &usageError{fmt.Errorf("--format %s: %w", b.format, err)}
	}
	if b.shape == "" {
		return nil
	}
	if _, err := bench.FindShape(b.shape); err != nil {
		return &usageError{fmt.Errorf("--shape: %w", err)}
	}
	return nil
}

// load returns the model and its name in results; close ends its workers too.
func (b *benchFlags) load(ctx context.Context) (m *model.Model, name string, closeAll func(), err error) {
	o, err := b.engineOptions()
	if err != nil {
		return nil, "", nil, err
	}
	bar := newBar("loading", os.Stderr)
	defer bar.Finish()
	pool := tensor.NewPool(o.Threads)
	mo := model.Options{Pool: pool, Progress: bar.Set, TilesDir: o.TilesDir, Note: bar.Note}
	if b.shape != "" {
		m, name, err = b.loadShape(mo)
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
func (b *benchFlags) loadShape(o model.Options) (*model.Model, string, error) {
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
	if err := s.Write(b.write, t); err != nil {
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
	_, err := fmt.Println(res)
	return err
}

// atLeast checks integer options: name, value and least value in turns.
func atLeast(checks ...any) error {
	for i := 0; i < len(checks); i += 3 {
		if v, least := checks[i+1].(int), checks[i+2].(int); v < least {
			return &usageError{fmt.Errorf("%s %d: want %d or more", checks[i], v, least)}
		}
	}
	return nil
}

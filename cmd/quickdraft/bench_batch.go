package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"quickdraft/bench"
	"quickdraft/engine"
)

// batchFlags are the options of quickdraft bench batch.
type batchFlags struct {
	benchFlags
	bench.BatchOptions
	temperature float64
}

func benchBatch() *cobra.Command {
	var b batchFlags
	cmd := &cobra.Command{
		Use: "batch", Short: "Measure decoding of several streams at once, and where the time of a step goes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			return b.run(cmd.Context())
		},
	}
	b.weights = "native"
	fl := cmd.Flags()
	fl.StringVarP(&b.name, "model", "m", "", "model, named as for run")
	fl.IntVarP(&b.threads, "threads", "t", 0, "worker threads (0: the physical cores this process may use)")
	fl.BoolVar(&b.noTiles, "no-repack-cache", false, "repack the weights again instead of keeping them in the cache folder")
	fl.BoolVar(&b.asJSON, "json", false, "print JSON")
	fl.IntSliceVar(&b.Streams, "streams", []int{1, 2, 4, 8, 16}, "numbers of streams")
	fl.IntVarP(&b.Prompt, "prompt-tokens", "p", 32, "tokens of each stream's prompt")
	fl.IntVarP(&b.Tokens, "predict", "n", 48, "tokens that each stream decodes while it is measured")
	fl.IntVarP(&b.Rounds, "repeat", "r", 3, "times that every number of streams is measured, in turns")
	fl.Float64Var(&b.temperature, "temp", 0.7, "temperature; 0 takes the most probable token")
	return cmd
}

// maxStreams bounds the cache that a run asks for.
const maxStreams = 256

func (b *batchFlags) check() error {
	if len(b.Streams) == 0 || slices.Min(b.Streams) < 1 || slices.Max(b.Streams) > maxStreams {
		return &usageError{fmt.Errorf("--streams %v: want numbers from 1 to %d", b.Streams, maxStreams)}
	}
	if err := atLeast("-p", b.Prompt, 1, "-n", b.Tokens, 16, "-r", b.Rounds, 1); err != nil {
		return err
	}
	b.Sample = defaultSampling()
	b.Sample.Temperature = b.temperature
	if err := b.Sample.Validate(1 << 30); err != nil {
		return &usageError{err}
	}
	return nil
}

func (b *batchFlags) run(ctx context.Context) error {
	o, err := b.engineOptions()
	if err != nil {
		return err
	}
	path, err := b.resolve(ctx)
	if err != nil {
		return err
	}
	o.Context, o.KVTokens, o.MaxRunning, o.NoPrefix = b.MaxTokens(), b.KVTokens(), slices.Max(b.Streams), true
	bar := newBar("loading", os.Stderr)
	o.Progress, o.Note = bar.Set, bar.Note
	e, err := engine.Open(path, o)
	bar.Finish()
	if err != nil {
		return err
	}
	defer e.Close()
	res, err := bench.Decoding(ctx, e, path, b.BatchOptions)
	if err != nil {
		return err
	}
	return b.print(res)
}

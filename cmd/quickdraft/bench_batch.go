package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"quickdraft/bench"
	"quickdraft/engine"
)

// batchFlags are the options of quickdraft bench batch.
type batchFlags struct {
	benchFlags
	bench.BatchOptions
	temperature float64
	stallTarget time.Duration
}

func benchBatch() *cobra.Command {
	var b batchFlags
	cmd := &cobra.Command{
		Use: "batch", Short: "Measure decoding of several streams at once, and where the time of a step goes", Args: cobra.NoArgs,
		Long: "Measures decoding of several streams at once, and where the time of a step goes. With --stall it measures instead how long\n" +
			"running streams wait from token to token while a long prompt arrives, by default with 8 streams and once.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.Stall > 0 && !cmd.Flags().Changed("streams") {
				b.Streams = []int{8}
			}
			if b.Stall > 0 && !cmd.Flags().Changed("repeat") {
				b.Rounds = 1
			}
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
	fl.IntVar(&b.Stall, "stall", 0, "measure the gaps between tokens while a prompt of this many tokens arrives")
	fl.DurationVar(&b.stallTarget, "stall-target", 0, "time that a pass with tokens of a prompt beside running streams may take (0: the engine's, 200ms)")
	b.addCacheTypes(cmd)
	fl.Float64Var(&b.temperature, "temp", 0.7, "temperature; 0 takes the most probable token")
	return cmd
}

// maxStreams bounds the cache that a run asks for.
const maxStreams = 256

func (b *batchFlags) check() error {
	if len(b.Streams) == 0 || slices.Min(b.Streams) < 1 || slices.Max(b.Streams) > maxStreams {
		return &usageError{fmt.Errorf("--streams %v: want numbers from 1 to %d", b.Streams, maxStreams)}
	}
	if err := atLeast("-p", b.Prompt, 1, "-n", b.Tokens, 16, "-r", b.Rounds, 1, "--stall", b.Stall, 0); err != nil {
		return err
	}
	if b.stallTarget < 0 {
		return &usageError{fmt.Errorf("--stall-target %v: want 0 (the engine's) or more", b.stallTarget)}
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
	if o.StallTarget = b.stallTarget; b.Stall > 0 {
		o.MaxRunning++
	}
	bar := newBar("loading", os.Stderr)
	o.Progress, o.Note = bar.Set, bar.Note
	e, err := engine.Open(path, o)
	bar.Finish()
	if err != nil {
		return err
	}
	defer e.Close()
	if b.Stall > 0 {
		res, err := bench.Stalling(ctx, e, path, b.BatchOptions)
		if err != nil {
			return err
		}
		return b.print(res)
	}
	res, err := bench.Decoding(ctx, e, path, b.BatchOptions)
	if err != nil {
		return err
	}
	return b.print(res)
}

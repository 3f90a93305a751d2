package main

import (
	"context"
	"errors"
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
			b.Sample = defaultSampling()
			b.Sample.Temperature = b.temperature
			return b.run(cmd.Context())
		},
	}
	b.weights = "native"
	fl := cmd.Flags()
	wordsVar(fl, &b.name, "model", "m", "", some("the name or the file of a model"), "model, named as for run")
	addThreads(fl, &b.threads, "worker threads (0: the physical cores this process may use)")
	fl.BoolVar(&b.noTiles, "no-repack-cache", false, "repack the weights again instead of keeping them in the cache folder")
	fl.BoolVar(&b.asJSON, "json", false, "print JSON")
	b.Streams = []int{1, 2, 4, 8, 16}
	fl.Var(&wholes{p: &b.Streams, least: 1, most: maxStreams}, "streams", "numbers of streams")
	intVar(fl, &b.Prompt, "prompt-tokens", "p", 32, 1, noLimit, "tokens of each stream's prompt")
	intVar(fl, &b.Tokens, "predict", "n", 48, 16, noLimit, "tokens that each stream decodes while it is measured")
	intVar(fl, &b.Rounds, "repeat", "r", 3, 1, maxRepeats, "times that every number of streams is measured, in turns")
	intVar(fl, &b.Stall, "stall", "", 0, 0, noLimit, "measure the gaps between tokens while a prompt of this many tokens arrives")
	fl.Var(&span{&b.stallTarget}, "stall-target", "time that a pass with tokens of a prompt beside running streams may take (0: the engine's, 150ms)")
	b.addCacheTypes(cmd)
	addTemperature(fl, &b.temperature, 0.7, "temperature; 0 takes the most probable token")
	return cmd
}

// maxStreams bounds the cache that a run asks for.
const maxStreams = 256

// maxRepeats is how often anything may be measured.
const maxRepeats = 10000

func (b *batchFlags) run(ctx context.Context) error {
	o := b.engineOptions()
	path, err := b.resolve(ctx)
	if err != nil {
		return err
	}
	o.Context, o.KVTokens, o.MaxRunning, o.NoPrefix = b.MaxTokens(), b.KVTokens(), slices.Max(b.Streams), true
	if o.StallTarget = b.stallTarget; b.Stall > 0 {
		o.MaxRunning++
	}
	bar := newBar("loading", os.Stderr)
	o.Progress, o.Note, o.Stop = bar.Set, bar.Note, stopOf(ctx)
	e, err := engine.Open(path, o)
	bar.Finish()
	var long *engine.ContextError
	if errors.As(err, &long) {
		return &usageError{fmt.Errorf("requests of %d tokens are asked for (-p, -n, --streams, --stall), want at most %d, what %s was made for", long.Asked, long.Trained, path)}
	}
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

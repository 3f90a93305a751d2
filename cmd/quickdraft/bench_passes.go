package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"quickdraft/bench"
	"quickdraft/model"
)

func benchDecode() *cobra.Command {
	var b benchFlags
	var n, depth, repeat int
	cmd := &cobra.Command{
		Use: "decode", Short: "Measure decoding beside memory bandwidth", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd.Context(), n+depth, func(r *bench.Runner) (fmt.Stringer, error) {
				return r.Decode(cmd.Context(), depth, n, repeat)
			})
		},
	}
	b.add(cmd)
	intVar(cmd.Flags(), &n, "predict", "n", 64, 1, noLimit, "tokens to decode each time")
	intVar(cmd.Flags(), &depth, "depth", "", 64, 1, noLimit, "tokens in the cache before them")
	intVar(cmd.Flags(), &repeat, "repeat", "r", 3, 1, maxRepeats, "repetitions; the median over bursts of 8 tokens is printed")
	return cmd
}

func benchVerify() *cobra.Command {
	var b benchFlags
	var maxM, depth, rounds int
	cmd := &cobra.Command{
		Use: "verify", Short: "Measure passes over 1 to 16 tokens, what checking guesses costs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd.Context(), maxM+depth, func(r *bench.Runner) (fmt.Stringer, error) {
				return r.Verify(cmd.Context(), depth, maxM, rounds)
			})
		},
	}
	b.add(cmd)
	intVar(cmd.Flags(), &maxM, "max", "", 16, 1, model.DefaultMaxBatch, "largest number of tokens")
	intVar(cmd.Flags(), &depth, "depth", "", 64, 1, noLimit, "tokens in the cache before them")
	intVar(cmd.Flags(), &rounds, "rounds", "r", 11, 1, maxRepeats, "passes of each size, interleaved")
	return cmd
}

func benchPrefill() *cobra.Command {
	var b benchFlags
	var n, repeat int
	cmd := &cobra.Command{
		Use: "prefill", Short: "Measure reading a prompt beside the peak of int8 products", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd.Context(), n, func(r *bench.Runner) (fmt.Stringer, error) {
				return r.Prefill(cmd.Context(), n, repeat)
			})
		},
	}
	b.add(cmd)
	intVar(cmd.Flags(), &n, "prompt-tokens", "p", 512, 1, noLimit, "tokens of the prompt")
	intVar(cmd.Flags(), &repeat, "repeat", "r", 3, 1, maxRepeats, "repetitions; the median is printed")
	return cmd
}

func benchRoofline() *cobra.Command {
	var b benchFlags
	var rounds int
	cmd := &cobra.Command{
		Use: "roofline", Short: "Measure the machine's limits, and where a model sits under them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			o := b.engineOptions()
			res, err := bench.MeasureRoofline(cmd.Context(), o.Threads, rounds)
			if err != nil {
				return err
			}
			if b.name == "" && b.shape == "" {
				return b.print(res)
			}
			return b.with(cmd.Context(), 64, func(r *bench.Runner) (fmt.Stringer, error) {
				res.Place, err = r.PlaceModel(cmd.Context())
				return res, err
			})
		},
	}
	b.add(cmd)
	intVar(cmd.Flags(), &rounds, "rounds", "r", 7, 1, maxRepeats, "measurements of each limit, interleaved")
	return cmd
}

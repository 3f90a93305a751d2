package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"quickdraft/bench"
	"quickdraft/engine"
	"quickdraft/sample"
	"quickdraft/tensor"
)

// benchResult is what quickdraft bench prints.
type benchResult struct {
	bench.Head
	Model            string       `json:"model"`
	PrefillPerSecond float64      `json:"prefill_tokens_per_second"`
	PrefillSpread    bench.Spread `json:"prefill_spread"`
	DecodePerSecond  float64      `json:"decode_tokens_per_second"`
	WeightGBps       float64      `json:"weight_gbps"`
	DRAMGBps         float64      `json:"dram_gbps"`
	DRAMSpread       bench.Spread `json:"dram_spread"`
	BandwidthShare   float64      `json:"bandwidth_share"`
	Spread           bench.Spread `json:"decode_spread"`
}

func benchCommand() *cobra.Command {
	var f modelFlags
	var nPrompt, nDecode, repeat int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure prefill and decode speed beside the machine's memory bandwidth", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := f.open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer m.Close()
			res, err := benchModel(cmd.Context(), m, nPrompt, nDecode, repeat)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(res)
			}
			res.print()
			return nil
		},
	}
	f.add(cmd)
	f.spec.add(cmd, specNone)
	intVar(cmd.Flags(), &nPrompt, "prompt-tokens", "p", 256, 1, noLimit, "tokens of the prompt")
	intVar(cmd.Flags(), &nDecode, "predict", "n", 48, 2, noLimit, "tokens to decode")
	intVar(cmd.Flags(), &repeat, "repeat", "r", 3, 1, maxRepeats, "repetitions; the median is printed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(benchRoofline(), benchDecode(), benchVerify(), benchPrefill(), benchBatch(), benchSpec(), benchTheory())
	return cmd
}

// benchModel interleaves decoding with measurements of the memory bandwidth, which drifts on shared machines.
func benchModel(ctx context.Context, m *loaded, nPrompt, nDecode, repeat int) (benchResult, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	if nPrompt+nDecode > m.ContextLen() {
		return benchResult{}, &usageError{fmt.Errorf("-p %d -n %d: want at most the context's %d tokens in all", nPrompt, nDecode, m.ContextLen())}
	}
	prompt := make([]int32, nPrompt)
	pool := tensor.NewPool(m.Threads())
	defer pool.Close()
	limits, err := bench.NewLimits(pool)
	if err != nil {
		return benchResult{}, err
	}
	defer limits.Close()
	var prefill, decode []float64
	for range repeat {
		for i := range prompt { // a new one each time, or the cache would know it
			prompt[i] = int32(rng.IntN(m.text.Tokenizer.VocabSize()))
		}
		limits.Measure()
		ticket, err := m.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: nDecode, IgnoreEOS: true, Sampling: sample.Greedy()})
		if err != nil {
			return benchResult{}, err
		}
		for tok := range ticket.Tokens() {
			if tok.Err != nil {
				return benchResult{}, tok.Err
			}
		}
		fig := newFigures(m, ticket.Stats())
		prefill, decode = append(prefill, fig.PromptPerSecond), append(decode, fig.DecodePerSecond)
	}
	res := benchResult{
		Head: bench.NewHead(m.Threads()), Model: m.path,
		PrefillPerSecond: bench.Median(prefill), DecodePerSecond: bench.Median(decode), DRAMGBps: bench.Median(limits.DRAM),
		PrefillSpread: bench.SpreadOf(prefill), Spread: bench.SpreadOf(decode), DRAMSpread: bench.SpreadOf(limits.DRAM),
	}
	res.WeightGBps = res.DecodePerSecond * float64(m.Model().WeightBytes()) / 1e9
	res.BandwidthShare = res.WeightGBps / res.DRAMGBps
	return res, nil
}

func (r benchResult) print() {
	fmt.Fprintln(stdout, r.Head)
	fmt.Fprintf(stdout, "model     %s\n", r.Model)
	fmt.Fprintf(stdout, "prefill   %8.1f tokens/s (spread %v)\n", r.PrefillPerSecond, r.PrefillSpread)
	fmt.Fprintf(stdout, "decode    %8.1f tokens/s (spread %v)\n", r.DecodePerSecond, r.Spread)
	fmt.Fprintf(stdout, "weights   %8.1f GB/s\n", r.WeightGBps)
	fmt.Fprintf(stdout, "dram      %8.1f GB/s (spread %v) measured between the runs; share %.2f\n", r.DRAMGBps, r.DRAMSpread, r.BandwidthShare)
}

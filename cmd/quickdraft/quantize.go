package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"quickdraft/modelfile/gguf"
	"quickdraft/quantize"
)

func quantizeCommand() *cobra.Command {
	var threads int
	cmd := &cobra.Command{
		Use: "quantize IN OUT TYPE", Short: "Write a GGUF model again in another weight format", Args: cobra.ExactArgs(3),
		Long: "Writes the model IN, a GGUF file or a name as for run, to the file OUT with its matrices in TYPE, like q8_0 or q4_k.\n" +
			"Vectors and routers stay float32; matrices whose columns do not fill TYPE's blocks take a type of smaller ones.",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := gguf.ParseType(args[2])
			if err != nil {
				return &usageError{fmt.Errorf("TYPE %s: %w", args[2], err)}
			}
			if threads < 0 || threads > 1024 {
				return &usageError{fmt.Errorf("-t %d: want 0 (automatic) to 1024", threads)}
			}
			f := modelFlags{name: args[0]}
			in, err := f.resolve(cmd.Context())
			if err != nil {
				return err
			}
			return quantizeFile(in, args[1], t, threads)
		},
	}
	cmd.Flags().IntVarP(&threads, "threads", "t", 0, "threads that encode (0: all that may run)")
	return cmd
}

func quantizeFile(in, out string, t gguf.Type, threads int) error {
	if info, err := os.Stat(in); err == nil && info.IsDir() {
		return &usageError{fmt.Errorf("%s: is a folder, want a GGUF file", in)}
	}
	bar := newBar("quantizing", os.Stderr)
	defer bar.Finish()
	res, err := quantize.File(in, out, t, quantize.Options{Threads: threads, Note: bar.Note, Progress: bar.Set})
	if err != nil {
		return err
	}
	bar.Finish()
	fmt.Printf("%s: %d tensors, %d converted, %.1f MB to %.1f MB\n", out, res.Tensors, res.Converted, float64(res.InBytes)/1e6, float64(res.OutBytes)/1e6)
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"quickdraft/eval"
	"quickdraft/internal/disk"
	"quickdraft/quantize"
)

// quantizeFlags are the options of quickdraft quantize.
type quantizeFlags struct {
	threads    int
	pure       bool
	importance string
}

func quantizeCommand() *cobra.Command {
	var f quantizeFlags
	cmd := &cobra.Command{
		Use: "quantize IN OUT TYPE", Short: "Write a model as GGUF in another weight format", Args: cobra.ExactArgs(3),
		Long: "Writes the model IN, a GGUF file, a safetensors folder or a name as for run, to the file OUT. TYPE is a type for all\n" +
			"matrices, like q8_0 or q4_k, or a mix that gives more bits to those whose errors count most: q2_k_s, q2_k, q3_k_s, q3_k_m,\n" +
			"q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m. Vectors and routers stay float32; matrices whose columns do not fill the type's blocks\n" +
			"take a type of smaller ones. --imatrix rounds so that the columns whose activations are large are hit best.",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0], args[1], args[2]) },
	}
	fl := cmd.Flags()
	addThreads(fl, &f.threads, "threads that encode (0: all that may run)")
	fl.BoolVar(&f.pure, "pure", false, "one type for all matrices: of a mix the one that most have")
	wordsVar(fl, &f.importance, "imatrix", "", "", some("a file of importances"), "file of quickdraft imatrix or llama.cpp's")
	return cmd
}

func (f *quantizeFlags) run(ctx context.Context, in, out, name string) error {
	target, err := quantize.ParseTarget(name, f.pure)
	if err != nil {
		return &usageError{fmt.Errorf("TYPE %s: %w", name, err)}
	}
	warnThreads(f.threads)
	bar := newBar("quantizing", os.Stderr)
	o := quantize.Options{Threads: f.threads, Note: bar.Note, Progress: bar.Set}
	if f.importance != "" {
		if o.Importance, err = eval.ReadImportance(f.importance); err != nil {
			return cannotRead("--imatrix", f.importance, err)
		}
	}
	if err := checkOutput("OUT", out); err != nil { // before a model is pulled
		return err
	}
	m := modelFlags{name: in}
	if in, err = m.resolve(ctx); err != nil {
		return err
	}
	if err := checkOutput("OUT", out, in, f.importance); err != nil {
		return err
	}
	defer bar.Finish()
	res, err := quantize.File(ctx, in, out, target, o)
	if err != nil {
		return err
	}
	bar.Finish()
	fmt.Fprintf(stdout, "%s: %s, %d tensors, %d converted", out, target.Name, res.Tensors, res.Converted)
	if o.Importance != nil {
		fmt.Fprintf(stdout, " (%d by importances)", res.Weighted)
	}
	fmt.Fprintf(stdout, ", %.1f MB to %.1f MB\n", float64(res.InBytes)/1e6, float64(res.OutBytes)/1e6)
	return nil
}

func imatrixCommand() *cobra.Command {
	var f textFlags
	var out string
	cmd := &cobra.Command{
		Use: "imatrix", Short: "Measure which columns of a model's matrices matter", Args: cobra.NoArgs,
		Long: "Feeds a text to the model and writes the mean squared activations of all matrices' columns to a file, which quantize\n" +
			"takes with --imatrix. The text should be like what the model is for; 100,000 tokens are plenty.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return &usageError{errors.New("-o: want the file to write")}
			}
			if err := checkOutput("-o", out, f.file); err != nil {
				return err
			}
			m, err := f.openText(cmd.Context())
			if err != nil {
				return err
			}
			defer m.close()
			if err := checkOutput("-o", out, m.path); err != nil {
				return err
			}
			if err := disk.CheckRoom(out, 1<<20); err != nil { // what all but the smallest models take
				return err
			}
			im, p, err := eval.Collect(cmd.Context(), m.Model, m.ids, f.file, m.opts)
			if err != nil {
				return err
			}
			if err := im.WriteFile(out); err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%s: importances of %d tensors; %v\n", out, len(im.Names()), p)
			return err
		},
	}
	f.add(cmd)
	wordsVar(cmd.Flags(), &out, "output", "o", "", some("the name of a file to write"), "file to write")
	return cmd
}

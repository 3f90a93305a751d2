// Command quickdraft runs language models on machines without a GPU.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"quickdraft/asm/cpu"
	"quickdraft/hub"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	os.Exit(runMain(watchSignals(context.Background()), os.Args[1:]))
}

// runMain runs a command line, says what went wrong and returns the exit code.
func runMain(ctx context.Context, args []string) int {
	cmd := root()
	cmd.SetArgs(longShorthand(args))
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		err = stdout.err
	}
	if err == nil {
		return 0
	}
	var why *stopped
	if errors.As(context.Cause(ctx), &why) {
		if err != error(why) && !errors.Is(err, context.Canceled) { // it says more than that
			fmt.Fprintln(os.Stderr, "error:", err)
		}
		return why.code()
	}
	code := exitCode(err)
	if code != pipeCode {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	return code
}

// pipeCode is the exit code of a program that a closed pipe ends.
const pipeCode = 128 + int(syscall.SIGPIPE)

// exitCode is 2 for what the caller did wrong, 141 when nobody reads the output any more and 1 for everything else that failed.
func exitCode(err error) int {
	var usage *usageError
	var name *hub.NameError
	switch {
	case stdout.err != nil && errors.Is(stdout.err, syscall.EPIPE):
		return pipeCode
	case errors.As(err, &usage), errors.As(err, &name):
		return 2
	}
	return 1
}

// usageError marks an error of the caller's: an unknown option, a value out of range, something that cannot be done here.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "quickdraft",
		Short:         "An LLM inference engine for machines without a GPU",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := cpu.Err(); err != nil {
				return &usageError{err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.SetOut(stdout)
	cmd.AddCommand(runCommand(), benchCommand(), perplexityCommand(), debugCommand())
	cmd.AddCommand(quantizeCommand(), imatrixCommand())
	cmd.AddCommand(hubCommands()...)
	markUsage(cmd)
	return cmd
}

// markUsage makes wrong arguments of cmd and of the commands below it usage errors.
func markUsage(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		if i := slices.Index(args, ""); i >= 0 { // what a variable that is not set leaves
			return &usageError{fmt.Errorf("argument %d of %q is empty, want %s", i+1, cmd.CommandPath(), cmd.Use)}
		}
		return nil
	}
	if cmd.RunE == nil && cmd.Run == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, c := range cmd.Commands() {
		markUsage(c)
	}
}

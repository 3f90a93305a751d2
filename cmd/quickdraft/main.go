// Command quickdraft runs language models on machines without a GPU.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/spf13/cobra"

	"quickdraft/asm/cpu"
	"quickdraft/hub"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	cmd := root()
	cmd.SetArgs(longShorthand(os.Args[1:]))
	err := cmd.ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errInterrupted) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(exitCode(err))
}

// exitCode is 2 for what the caller did wrong, 130 after Ctrl-C and 1 for everything else that failed.
func exitCode(err error) int {
	var usage *usageError
	var name *hub.NameError
	switch {
	case errors.Is(err, errInterrupted):
		return 130
	case errors.As(err, &usage), errors.As(err, &name):
		return 2
	}
	return 1
}

// errInterrupted ends a command that Ctrl-C stopped and that has said all it has to say.
var errInterrupted = errors.New("interrupted")

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

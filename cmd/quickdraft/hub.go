package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"quickdraft/hub"
)

// openHub opens the cache with a progress bar and notes on standard error. The caller calls done when the pull is over.
func openHub() (h *hub.Hub, done func(), err error) {
	b := newBar("pulling", os.Stderr)
	h, err = hub.Open(hub.Options{
		Note:     func(line string) { b.Note(line) },
		Progress: func(p hub.Progress) { b.Name(p.Name); b.Set(p.Done, p.Total) },
	})
	if err != nil {
		return nil, nil, &usageError{err}
	}
	return h, b.Finish, nil
}

// pull returns the path of a model's file, fetching it when the cache lacks it.
func pull(ctx context.Context, name string) (string, error) {
	h, done, err := openHub()
	if err != nil {
		return "", err
	}
	defer done()
	return h.Pull(ctx, name)
}

func hubCommands() []*cobra.Command {
	return []*cobra.Command{pullCommand(), listCommand(), showCommand(), rmCommand()}
}

func pullCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pull MODEL", Short: "Fetch a model into the cache", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := pull(cmd.Context(), args[0])
			if err == nil {
				fmt.Fprintln(stdout, path)
			}
			return err
		},
	}
}

func listCommand() *cobra.Command {
	var asJSON, dir, catalog bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the models in the cache", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, done, err := openHub()
			if err != nil {
				return err
			}
			defer done()
			if dir {
				fmt.Fprintln(stdout, h.Dir())
				return nil
			}
			if catalog {
				return printCatalog()
			}
			entries, err := h.List()
			if err != nil {
				return err
			}
			return printEntries(entries, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&dir, "dir", false, "print the folder of the catalog's models instead")
	cmd.Flags().BoolVar(&catalog, "catalog", false, "list what can be pulled by name instead")
	return cmd
}

func printEntries(entries []hub.Entry, asJSON bool) error {
	if asJSON {
		return printJSON(entries)
	}
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tSTATE")
	for _, e := range entries {
		state := "complete"
		if e.Partial {
			state = "partial"
		}
		fmt.Fprintf(w, "%s\t%.1f MB\t%s\n", printable(e.Name), float64(e.Size)/1e6, state)
	}
	return w.Flush()
}

// printable is a name as it is, or quoted where it would do something to a terminal or a table.
func printable(name string) string {
	for _, r := range name {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(name)
		}
	}
	return name
}

func printCatalog() error {
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tWHAT")
	for _, m := range hub.Catalog() {
		fmt.Fprintf(w, "%s\t%.1f MB\t%s\n", m.Name, float64(m.Size)/1e6, m.About)
	}
	return w.Flush()
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show MODEL", Short: "Print what is known about a model as JSON", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			h, done, err := openHub()
			if err != nil {
				return err
			}
			defer done()
			info, err := h.Show(args[0])
			if err != nil {
				return err
			}
			return printJSON(info)
		},
	}
}

func rmCommand() *cobra.Command {
	var tiles bool
	cmd := &cobra.Command{
		Use: "rm MODEL | --repacked", Short: "Delete a model from the cache, or what was repacked of all",
		Args: func(_ *cobra.Command, args []string) error {
			if tiles != (len(args) == 0) || len(args) > 1 {
				return &usageError{fmt.Errorf("rm: got %d models, want one, or --repacked alone", len(args))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			h, done, err := openHub()
			if err != nil {
				return err
			}
			defer done()
			if !tiles {
				return h.Remove(args[0])
			}
			freed, err := h.RemoveRepacked()
			if err == nil || freed > 0 {
				fmt.Fprintf(stdout, "%.1f MB freed\n", float64(freed)/1e6)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&tiles, "repacked", false, "delete the repacked weights of all models; the next start makes them again")
	return cmd
}

func printJSON(v any) error {
	enc := json.NewEncoder(stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

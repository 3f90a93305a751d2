// Command check compares how many conformance cases the tests ran with how many there are. It reads the file that
// QUICKDRAFT_GOLDEN_LOG named during the tests, prints a line a set, and fails where cases were left out.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: check LOG")
		os.Exit(2)
	}
	ok, err := check(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// check reports whether every set ran in full.
func check(log string) (bool, error) {
	root, found := golden.Root()
	if !found {
		return false, fmt.Errorf("no conformance data at %s", root)
	}
	want, err := expected(root)
	if err != nil {
		return false, err
	}
	ran, err := readLog(log)
	if err != nil {
		return false, err
	}
	ok := true
	for _, set := range slices.Sorted(maps.Keys(want)) {
		verdict := "ok"
		if ran[set] < want[set] {
			verdict, ok = "TOO FEW", false
		}
		fmt.Printf("golden %-26s %5d of %5d cases  %s\n", set, ran[set], want[set], verdict)
	}
	return ok, nil
}

// readLog returns the largest count that a set reported.
func readLog(path string) (map[string]int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ran := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var set string
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "%s %d", &set, &n); err != nil {
			return nil, fmt.Errorf("%s: line %q: want a set and a count", path, lines.Text())
		}
		ran[set] = max(ran[set], n)
	}
	return ran, lines.Err()
}

// expected counts the cases of every set from the data alone.
func expected(root string) (map[string]int, error) {
	want := map[string]int{}
	for _, count := range []func(string, map[string]int) error{
		countArchs, countTokenizers, countChat, countTemplates, countSpeculative, countReal, countQuants,
	} {
		if err := count(root, want); err != nil {
			return nil, err
		}
	}
	return want, nil
}

func countArchs(root string, want map[string]int) error {
	var m struct{ Models []json.RawMessage }
	err := readJSON(filepath.Join(root, "archs", "manifest.json"), &m)
	want["archs"] = len(m.Models)
	return err
}

func countTokenizers(root string, want map[string]int) error {
	found, err := files(filepath.Join(root, "tokenizers", "*", "cases.json.gz"))
	for _, file := range found {
		var m struct{ Cases []json.RawMessage }
		if err := readJSON(file, &m); err != nil {
			return err
		}
		want["tokenizers/"+filepath.Base(filepath.Dir(file))] = len(m.Cases)
	}
	return err
}

func countChat(root string, want map[string]int) error {
	found, err := files(filepath.Join(root, "chat", "*.json.gz"))
	for _, file := range found {
		var m struct{ Cases []json.RawMessage }
		if err := readJSON(file, &m); err != nil {
			return err
		}
		want["chat"] += len(m.Cases)
	}
	return err
}

func countTemplates(root string, want map[string]int) error {
	data, err := read(filepath.Join(root, "templates", "expected.jsonl.gz"))
	want["templates"] = bytes.Count(data, []byte("\n"))
	return err
}

func countSpeculative(root string, want map[string]int) error {
	var pairs struct{ Pairs []json.RawMessage }
	if err := readJSON(filepath.Join(root, "speculative", "pairs.json.gz"), &pairs); err != nil {
		return err
	}
	want["speculative"] = len(pairs.Pairs)
	var theory struct{ Grid, Optimal, Steps []json.RawMessage }
	if err := readJSON(filepath.Join(root, "speculative", "expectations.json.gz"), &theory); err != nil {
		return err
	}
	want["speculative/expectations"] = len(theory.Grid) + len(theory.Optimal) + len(theory.Steps)
	type list []struct{ Cases []json.RawMessage }
	var samplers struct{ Samples, Edges list }
	err := readJSON(filepath.Join(root, "speculative", "samplers.json.gz"), &samplers)
	for _, s := range append(samplers.Samples, samplers.Edges...) {
		want["speculative/samplers"] += len(s.Cases)
	}
	return err
}

func countReal(root string, want map[string]int) error {
	found, err := files(filepath.Join(root, "real", "*.json.gz"))
	for _, file := range found {
		var m struct{ Prompts []json.RawMessage }
		if err := readJSON(file, &m); err != nil {
			return err
		}
		want["real"] += len(m.Prompts)
	}
	return err
}

// countQuants counts the groups of blocks in formats that the engine knows.
func countQuants(root string, want map[string]int) error {
	groups := map[string]json.RawMessage{}
	if err := readJSON(filepath.Join(root, "quants", "manifest.json"), &groups); err != nil {
		return err
	}
	for _, group := range []string{"quantized", "real", "random_blocks", "ggml_quantized"} {
		cases := map[string]json.RawMessage{}
		if err := json.Unmarshal(groups[group], &cases); err != nil {
			return fmt.Errorf("quants/manifest.json: %s: %w", group, err)
		}
		for name, data := range cases {
			var c struct {
				TypeID *gguf.Type `json:"type_id"`
			}
			if json.Unmarshal(data, &c) == nil && c.TypeID != nil && c.TypeID.Known() {
				want["quants"]++
			} else if c.TypeID == nil && name[0] != '_' {
				return fmt.Errorf("quants/manifest.json: %s/%s: no type id", group, name)
			}
		}
	}
	return nil
}

// files returns those of a pattern, of which there has to be one.
func files(pattern string) ([]string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no conformance data at %s", pattern)
	}
	return found, err
}

func readJSON(path string, v any) error {
	data, err := read(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// read returns a file's content, unpacked where its name ends in .gz.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !strings.HasSuffix(path, ".gz") {
		return io.ReadAll(f)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return io.ReadAll(z)
}

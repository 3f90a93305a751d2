// Package prompts holds the questions that speculation is measured with: kinds of text that differ in how well they can be
// guessed.
package prompts

import (
	"embed"
	"strings"
)

//go:embed *.txt
var files embed.FS

// Kinds are the sets, ten prompts each.
var Kinds = []string{"code-writing", "code-editing", "json-extraction", "summarising", "chat", "maths"}

// Set returns the prompts of a kind, nil for one that does not exist.
func Set(kind string) []string {
	data, err := files.ReadFile(kind + ".txt")
	if err != nil {
		return nil
	}
	all := strings.Split(string(data), "\n---\n")
	for i, p := range all {
		all[i] = strings.TrimSpace(p)
	}
	return all
}

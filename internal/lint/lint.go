// Package lint holds the rules of the house that a compiler does not check. Its tests run every rule over the whole tree, and
// each rule over a bad sample, so that a rule which stops finding anything is found itself.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Finding is a breach of a rule.
type Finding struct {
	File string // slash-separated, from the root of the module
	Line int    // 0 for the file as a whole
	Msg  string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.File, f.Msg)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Msg)
}

// File is a file of the tree.
type File struct {
	Path string // slash-separated, from the root of the module
	Data []byte
}

// Root is the folder of the module.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Tree reads the files that git tracks, or all files outside hidden folders where there is no git.
func Tree(root string) ([]File, error) {
	names, err := tracked(root)
	if err != nil {
		if names, err = walk(root); err != nil {
			return nil, err
		}
	}
	var files []File
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue // tracked, and deleted in the checkout
		}
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: name, Data: data})
	}
	return files, nil
}

func tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil || len(out) == 0 {
		return nil, fmt.Errorf("git ls-files: %d bytes, %v", len(out), err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

func walk(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != root
		if hidden && d.IsDir() {
			return filepath.SkipDir
		}
		if !d.IsDir() && !hidden {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}

// IsGo reports whether a file is Go source outside testdata.
func (f File) IsGo() bool {
	return strings.HasSuffix(f.Path, ".go") && !slices.Contains(strings.Split(f.Path, "/"), "testdata")
}

// IsTest reports whether a file is a Go test.
func (f File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Dir is the folder of the file, "." for the root.
func (f File) Dir() string { return path.Dir(f.Path) }

var (
	generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	packageLine   = regexp.MustCompile(`(?m)^package `)
)

// IsGenerated reports whether the file says so before its first line of code.
func (f File) IsGenerated() bool {
	head := f.Data
	if at := packageLine.FindIndex(head); at != nil {
		head = head[:at[0]]
	}
	return generatedLine.Match(head)
}

// Parse parses a Go file. Positions have the file's own path.
func (f File) Parse(fset *token.FileSet) (*ast.File, error) {
	return parser.ParseFile(fset, f.Path, f.Data, parser.ParseComments|parser.SkipObjectResolution)
}

// parsed calls visit for each Go file that keep accepts; a file that does not parse is a finding.
func parsed(files []File, keep func(File) bool, visit func(File, *token.FileSet, *ast.File) []Finding) []Finding {
	var found []Finding
	fset := token.NewFileSet()
	for _, f := range files {
		if !f.IsGo() || !keep(f) {
			continue
		}
		tree, err := f.Parse(fset)
		if err != nil {
			found = append(found, Finding{File: f.Path, Msg: "does not parse: " + err.Error()})
			continue
		}
		found = append(found, visit(f, fset, tree)...)
	}
	return found
}

package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the module's root.
const Module = "quickdraft"

// order is the house from the foundation up. A package imports only from its own line and the lines above it; a line takes
// in all folders below it that have no line of their own.
var order = []string{
	"internal/detmath",
	"internal/disk",
	"asm",
	"machine",
	"modelfile",
	"text",
	"sample",
	"quant",
	"tensor",
	"kvcache",
	"model",
	"drafter",
	"engine",
	"hub",
	"eval",
	"quantize",
	"server",
	"cuda",
	"bench",
	"cmd",
}

// helpers are for tests; bench and tests may import them. They import nothing of the house but each other; commands below
// them may.
var helpers = []string{"internal/golden", "internal/lint", "internal/invariants"}

// apart are pairs that the order allows and the house does not.
var apart = []struct{ from, to, why string }{
	{"engine", "text", "engine never sees text"},
	{"quant", "machine", "quant never sees a thread"},
	{"quant", "text", "quant is arithmetic"},
	{"quant", "sample", "quant is arithmetic"},
	{"sample", "machine", "sample sees only []float32 and ids"},
	{"sample", "modelfile", "sample sees only []float32 and ids"},
	{"sample", "text", "sample sees only []float32 and ids"},
	{"tensor", "text", "a pass never sees text"},
	{"kvcache", "text", "a pass never sees text"},
	{"model", "text", "a pass never sees text"},
	{"drafter", "text", "a drafter sees only ids"},
}

// line returns the place of a folder in the order, or -1.
func line(dir string) int {
	best, at := -1, -1
	for i, name := range order {
		if (dir == name || strings.HasPrefix(dir, name+"/")) && len(name) > best {
			best, at = len(name), i
		}
	}
	return at
}

func isHelper(dir string) bool {
	for _, h := range helpers {
		if dir == h || strings.HasPrefix(dir, h+"/") {
			return true
		}
	}
	return false
}

// Imports checks the import order of DESIGN.md, section 3. asm/_gen is a module of its own. Tests may import helpers too.
func Imports(files []File) []Finding {
	keep := func(f File) bool { return !strings.HasPrefix(f.Path, "asm/_gen/") }
	return parsed(files, keep, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		var found []Finding
		for _, spec := range tree.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil || target != Module && !strings.HasPrefix(target, Module+"/") {
				continue
			}
			if msg := forbidden(f, strings.TrimPrefix(strings.TrimPrefix(target, Module), "/")); msg != "" {
				found = append(found, Finding{File: f.Path, Line: fset.Position(spec.Pos()).Line, Msg: msg})
			}
		}
		return found
	})
}

// forbidden says why a file may not import a folder of the module, or "".
func forbidden(f File, to string) string {
	from := f.Dir()
	switch {
	case slices.Contains(strings.Split(to, "/"), "testdata"):
		return fmt.Sprintf("imports %s: no rule reads what lies in testdata", to)
	case isHelper(to) && (f.IsTest() || isHelper(from) || strings.HasPrefix(from, "bench")):
		return ""
	case isHelper(to):
		return fmt.Sprintf("imports %s, which is for tests", to)
	case slices.Contains(helpers, from) && !f.IsTest():
		return fmt.Sprintf("imports %s: a helper of tests imports nothing of the house", to)
	case isHelper(from):
		return ""
	}
	lineFrom, lineTo := line(from), line(to)
	switch {
	case lineFrom < 0:
		return fmt.Sprintf("folder %s has no place in the import order", from)
	case lineTo < 0:
		return fmt.Sprintf("folder %s has no place in the import order", to)
	case order[lineTo] == "bench" && lineFrom != lineTo && order[lineFrom] != "cmd":
		return fmt.Sprintf("imports %s: only the command line imports bench", to)
	case lineTo > lineFrom:
		return fmt.Sprintf("%s imports %s, which stands above it", from, to)
	case order[lineFrom] == "asm" && to != "asm/cpu" && path.Base(from) != "asm" && path.Base(from) != "probe":
		return fmt.Sprintf("imports %s: kernels see only pointers and counts", to)
	}
	for _, a := range apart {
		if order[lineFrom] == a.from && order[lineTo] == a.to {
			return fmt.Sprintf("imports %s: %s", to, a.why)
		}
	}
	return ""
}

// Cgo finds imports of "C" and cgo directives.
func Cgo(files []File) []Finding {
	all := func(File) bool { return true }
	return parsed(files, all, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		var found []Finding
		for _, spec := range tree.Imports {
			if spec.Path.Value == `"C"` {
				found = append(found, Finding{File: f.Path, Line: fset.Position(spec.Pos()).Line, Msg: "imports \"C\": there is no cgo here"})
			}
		}
		for _, group := range tree.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:cgo_") {
					found = append(found, Finding{File: f.Path, Line: fset.Position(c.Pos()).Line, Msg: c.Text + ": there is no cgo here"})
				}
			}
		}
		return found
	})
}

// threadless are packages that are called from threads and start none.
var threadless = []string{"quant", "sample", "internal/detmath"}

// Threads finds goroutines and what synchronises them in packages that have none.
func Threads(files []File) []Finding {
	keep := func(f File) bool { return !f.IsTest() && slices.Contains(threadless, f.Dir()) }
	return parsed(files, keep, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		var found []Finding
		add := func(n ast.Node, what string) {
			found = append(found, Finding{File: f.Path, Line: fset.Position(n.Pos()).Line, Msg: fmt.Sprintf("%s: %s never sees a thread", what, f.Dir())})
		}
		for _, spec := range tree.Imports {
			if spec.Path.Value == `"sync"` || spec.Path.Value == `"sync/atomic"` {
				add(spec, "imports "+spec.Path.Value)
			}
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				add(n, "starts a goroutine")
			}
			return true
		})
		return found
	})
}

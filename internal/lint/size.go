package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// Sizes beyond which a file or function is too long to read.
const (
	MaxFile    = 600 // lines
	MaxFunc    = 80
	MaxForward = 120 // of a Forward, which reads from top to bottom
)

// Sizes checks the length of files and functions. Generated code and the kernel emitters of asm/_gen are exempt.
func Sizes(files []File) []Finding {
	keep := func(f File) bool { return !f.IsGenerated() && !strings.HasPrefix(f.Path, "asm/_gen/") }
	return parsed(files, keep, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		var found []Finding
		if n := bytes.Count(f.Data, []byte("\n")); n > MaxFile {
			found = append(found, Finding{File: f.Path, Msg: fmt.Sprintf("has %d lines, at most %d are right", n, MaxFile)})
		}
		for _, d := range tree.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				found = append(found, longLiterals(f, fset, d)...)
				continue
			}
			limit := MaxFunc
			if fn.Name.Name == "Forward" {
				limit = MaxForward
			}
			first := fset.Position(fn.Pos()).Line
			if n := fset.Position(fn.End()).Line - first + 1; n > limit {
				found = append(found, Finding{File: f.Path, Line: first, Msg: fmt.Sprintf("%s has %d lines, at most %d are right", fn.Name.Name, n, limit)})
			}
		}
		return found
	})
}

// longLiterals checks the functions that variables of the package are set to.
func longLiterals(f File, fset *token.FileSet, d ast.Decl) (found []Finding) {
	ast.Inspect(d, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		if !ok {
			return true
		}
		first := fset.Position(lit.Pos()).Line
		if n := fset.Position(lit.End()).Line - first + 1; n > MaxFunc {
			found = append(found, Finding{File: f.Path, Line: first, Msg: fmt.Sprintf("a function literal has %d lines, at most %d are right", n, MaxFunc)})
		}
		return false
	})
	return found
}

package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// writers are the functions of package os that make, fill or name files.
var writers = []string{"Create", "CreateTemp", "Rename", "WriteFile", "OpenFile"}

// Whole finds files that are made without internal/disk, where they would appear half written. The cache of hub is another
// matter, it continues half a file; so is code that makes code, and tests write what they like.
func Whole(files []File) []Finding {
	keep := func(f File) bool {
		return !f.IsTest() && f.Dir() != "internal/disk" && !isHelper(f.Dir()) && !strings.HasPrefix(f.Path, "asm/_gen/")
	}
	return parsed(files, keep, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		var found []Finding
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if sel.Sel.Name == "CommitUnsynced" && f.Dir() != "modelfile/repacked" {
				found = append(found, Finding{File: f.Path, Line: fset.Position(sel.Pos()).Line, Msg: "CommitUnsynced: only repacked weights are checked when they are read"})
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "os" && slices.Contains(writers, sel.Sel.Name) {
				found = append(found, Finding{File: f.Path, Line: fset.Position(sel.Pos()).Line,
					Msg: fmt.Sprintf("os.%s: files are made with internal/disk, so that none is seen half written", sel.Sel.Name)})
			}
			return true
		})
		return found
	})
}

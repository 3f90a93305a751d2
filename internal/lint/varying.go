package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// exact are the functions of math that have one right result, which every processor gives.
var exact = map[string]bool{
	"Abs": true, "Ceil": true, "Copysign": true, "Dim": true, "FMA": true, "Float32bits": true, "Float32frombits": true,
	"Float64bits": true, "Float64frombits": true, "Floor": true, "Frexp": true, "Ilogb": true, "Inf": true, "IsInf": true,
	"IsNaN": true, "Ldexp": true, "Logb": true, "Max": true, "Min": true, "Mod": true, "Modf": true, "NaN": true,
	"Nextafter": true, "Nextafter32": true, "Remainder": true, "Round": true, "RoundToEven": true, "Signbit": true,
	"Sqrt": true, "Trunc": true,
}

// constantOf reports whether a name of math is one of its constants.
func constantOf(name string) bool {
	return strings.HasPrefix(name, "Max") && name != "Max" || strings.HasPrefix(name, "Smallest") || strings.HasPrefix(name, "Min") && name != "Min" ||
		name == "E" || name == "Pi" || name == "Phi" || strings.HasPrefix(name, "Sqrt") && name != "Sqrt" || strings.HasPrefix(name, "Ln") ||
		name == "Log2E" || name == "Log10E"
}

// inPass reports whether a file computes what must have the same bits everywhere.
func inPass(f File) bool {
	if f.IsTest() {
		return false
	}
	for _, p := range Pass {
		if Module+"/"+f.Dir() == p || strings.HasPrefix(Module+"/"+f.Dir(), p+"/") {
			return true
		}
	}
	return false
}

// Varying finds functions in the packages of the pass that do not give the same bits everywhere: those of math that are
// not exact, under whatever name it is imported, math/cmplx, the draws of math/rand that use them, and linknames, which
// reach around both.
func Varying(files []File) []Finding {
	return parsed(files, inPass, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		var found []Finding
		add := func(at token.Pos, format string, args ...any) {
			found = append(found, Finding{File: f.Path, Line: fset.Position(at).Line, Msg: fmt.Sprintf(format, args...)})
		}
		packages := make(map[string]string) // by local name
		for _, spec := range tree.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			name := strings.TrimSuffix(path, "/v2")
			name = name[strings.LastIndexByte(name, '/')+1:]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			switch {
			case path == "math/cmplx":
				add(spec.Pos(), "math/cmplx has other bits on other processors")
			case (path == "math" || path == "math/rand/v2" || path == "math/rand") && name == ".":
				add(spec.Pos(), "imports %s without its name, which hides what is used of it", path)
			}
			packages[name] = path
		}
		for _, group := range tree.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:linkname ") {
					add(c.Pos(), "go:linkname reaches around the rules for imports and arithmetic")
				}
			}
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, _ := sel.X.(*ast.Ident)
			if id != nil && packages[id.Name] == "math" && !exact[sel.Sel.Name] && !constantOf(sel.Sel.Name) {
				add(sel.Pos(), "math.%s has other bits on other processors: use internal/detmath", sel.Sel.Name)
			} else if sel.Sel.Name == "NormFloat64" || sel.Sel.Name == "ExpFloat64" {
				add(sel.Pos(), "%s uses math.Exp, which has other bits on other processors", sel.Sel.Name)
			}
			return true
		})
		return found
	})
}

package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// Fusing finds products that reach a sum without a conversion. A compiler may fuse x*y + z into one operation that rounds
// once, also across statements, inlined calls and variables, and does on some processors and not on others; an explicit
// float32(x*y) or float64(x*y) forbids it. What is stored in memory and loaded again is not followed.
func Fusing(pkgs []Package, root string) []Finding {
	m := &products{vars: make(map[types.Object]bool), results: make(map[string]bool), sums: make(map[string]bool)}
	for grown := true; grown; {
		grown = false
		for i := range pkgs {
			m.info = pkgs[i].Info
			for _, f := range pkgs[i].Files {
				grown = m.learn(f) || grown
			}
		}
	}
	var found []Finding
	for i := range pkgs {
		p := &pkgs[i]
		m.info = p.Info
		for _, f := range p.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				for _, at := range m.fused(n) {
					pos := p.Fset.Position(at.Pos())
					name := pos.Filename
					if rel, err := filepath.Rel(root, name); err == nil && !strings.HasPrefix(rel, "..") {
						name = filepath.ToSlash(rel)
					}
					found = append(found, Finding{File: name, Line: pos.Line,
						Msg: fmt.Sprintf("the product %s may be fused with a sum: write float32(...) or float64(...) around it", types.ExprString(at))})
				}
				return true
			})
		}
	}
	return found
}

// products knows where unconverted products may be.
type products struct {
	info    *types.Info
	vars    map[types.Object]bool // variables and parameters that may hold one
	results map[string]bool       // functions that may return one, by full name
	sums    map[string]bool       // "function#i" whose parameter i goes into a sum
}

func (m *products) isFloat(e ast.Expr) bool {
	tv, ok := m.info.Types[e]
	if !ok || tv.Value != nil || tv.Type == nil {
		return false
	}
	switch t := tv.Type.Underlying().(type) {
	case *types.Basic:
		return t.Info()&types.IsFloat != 0
	case *types.Interface: // a type parameter
		return true
	}
	return false
}

// product reports whether e may be an unconverted product.
func (m *products) product(e ast.Expr) bool {
	e = ast.Unparen(e)
	if !m.isFloat(e) {
		return false
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return e.Op == token.MUL
	case *ast.UnaryExpr:
		return e.Op == token.SUB && m.product(e.X)
	case *ast.Ident:
		return m.vars[m.info.Uses[e]]
	case *ast.CallExpr:
		fn := m.callee(e)
		return fn != nil && m.results[fn.FullName()]
	}
	return false
}

// callee is the function that a call names, or nil for conversions, builtins and values.
func (m *products) callee(e *ast.CallExpr) *types.Func {
	fun := ast.Unparen(e.Fun)
	if ix, ok := fun.(*ast.IndexExpr); ok {
		fun = ix.X
	}
	switch fun := fun.(type) {
	case *ast.Ident:
		fn, _ := m.info.Uses[fun].(*types.Func)
		return fn
	case *ast.SelectorExpr:
		fn, _ := m.info.Uses[fun.Sel].(*types.Func)
		return fn
	}
	return nil
}

// learn adds what a file shows about variables, results and parameters and reports whether there was anything new.
func (m *products) learn(f *ast.File) bool {
	grown := false
	variable := func(lhs ast.Expr) {
		id, ok := ast.Unparen(lhs).(*ast.Ident)
		if !ok {
			return
		}
		obj := m.info.Defs[id]
		if obj == nil {
			obj = m.info.Uses[id]
		}
		if obj != nil && !m.vars[obj] {
			m.vars[obj] = true
			grown = true
		}
	}
	for _, d := range f.Decls {
		fn, _ := d.(*ast.FuncDecl)
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, lhs := range n.Lhs {
					if n.Tok == token.MUL_ASSIGN && m.isFloat(lhs) || len(n.Rhs) == len(n.Lhs) && m.product(n.Rhs[i]) && n.Tok != token.ADD_ASSIGN && n.Tok != token.SUB_ASSIGN {
						variable(lhs)
					}
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if len(n.Values) == len(n.Names) && m.product(n.Values[i]) {
						variable(name)
					}
				}
			case *ast.FuncLit:
				return true
			case *ast.ReturnStmt:
				if fn != nil && len(n.Results) == 1 && m.product(n.Results[0]) {
					grown = m.add(m.results, m.info.Defs[fn.Name].(*types.Func).FullName()) || grown
				}
			}
			return true
		})
		if fn != nil && fn.Body != nil {
			grown = m.learnParams(fn) || grown
		}
	}
	return grown
}

func (m *products) add(set map[string]bool, key string) bool {
	fresh := !set[key]
	set[key] = true
	return fresh
}

// learnParams notes the parameters of a function that are operands of a sum in its body.
func (m *products) learnParams(fn *ast.FuncDecl) bool {
	obj := m.info.Defs[fn.Name].(*types.Func)
	params := obj.Signature().Params()
	index := make(map[types.Object]int)
	for i := range params.Len() {
		index[params.At(i)] = i
	}
	grown := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		for _, operand := range m.operands(n) {
			id, ok := ast.Unparen(operand).(*ast.Ident)
			if !ok {
				continue
			}
			if i, ok := index[m.info.Uses[id]]; ok {
				grown = m.add(m.sums, fmt.Sprintf("%s#%d", obj.FullName(), i)) || grown
			}
		}
		return true
	})
	return grown
}

// operands are the floating-point expressions that a node adds or subtracts, or hands to a function that does.
func (m *products) operands(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if (n.Op == token.ADD || n.Op == token.SUB) && m.isFloat(n) {
			return []ast.Expr{n.X, n.Y}
		}
	case *ast.AssignStmt:
		if (n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN) && m.isFloat(n.Lhs[0]) {
			return []ast.Expr{n.Lhs[0], n.Rhs[0]}
		}
	case *ast.CallExpr:
		fn := m.callee(n)
		if fn == nil {
			return nil
		}
		var out []ast.Expr
		for i, a := range n.Args {
			if m.sums[fmt.Sprintf("%s#%d", fn.FullName(), i)] {
				out = append(out, a)
			}
		}
		return out
	}
	return nil
}

// fused returns the operands of a sum that may be unconverted products.
func (m *products) fused(n ast.Node) []ast.Expr {
	var out []ast.Expr
	for _, e := range m.operands(n) {
		if m.product(e) {
			out = append(out, e)
		}
	}
	return out
}

// varying are functions of math whose results differ between processors.
var varying = map[string]bool{
	"Acos": true, "Acosh": true, "Asin": true, "Asinh": true, "Atan": true, "Atan2": true, "Atanh": true, "Cbrt": true, "Cos": true,
	"Cosh": true, "Erf": true, "Erfc": true, "Exp": true, "Exp2": true, "Expm1": true, "Gamma": true, "Hypot": true, "Lgamma": true,
	"Log": true, "Log10": true, "Log1p": true, "Log2": true, "Pow": true, "Sin": true, "Sincos": true, "Sinh": true, "Tan": true, "Tanh": true,
}

// Varying finds functions of package math in the packages of the pass that do not give the same bits everywhere.
func Varying(files []File) []Finding {
	keep := func(f File) bool {
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
	return parsed(files, keep, func(f File, fset *token.FileSet, tree *ast.File) []Finding {
		name := ""
		for _, spec := range tree.Imports {
			if spec.Path.Value == `"math"` {
				name = "math"
				if spec.Name != nil {
					name = spec.Name.Name
				}
			}
		}
		var found []Finding
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && name != "" && id.Name == name && varying[sel.Sel.Name] {
				found = append(found, Finding{File: f.Path, Line: fset.Position(sel.Pos()).Line,
					Msg: fmt.Sprintf("math.%s has other bits on other processors: use internal/detmath", sel.Sel.Name)})
			}
			return true
		})
		return found
	})
}

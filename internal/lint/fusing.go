package lint

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"path/filepath"
	"strings"
)

// Fusing finds products that reach a sum without a conversion. A compiler may fuse x*y + z into one operation that rounds
// once, also across statements, inlined calls, fields and variables, and does on some processors and not on others; an
// explicit float32(x*y) or float64(x*y) forbids it. A quotient by a power of two counts, for it becomes a product. Elements
// of slices are not followed: Fused sees those, in what the compiler makes.
func Fusing(pkgs []Package, root string) []Finding {
	m := &products{vars: make(map[types.Object]bool), known: make(map[string]bool), same: make(map[string][]string)}
	for size := -1; size != len(m.vars)+len(m.known); {
		size = len(m.vars) + len(m.known)
		for i := range pkgs {
			m.info = pkgs[i].Info
			for _, f := range pkgs[i].Files {
				m.learn(f)
			}
		}
	}
	var found []Finding
	for i := range pkgs {
		p := &pkgs[i]
		m.info = p.Info
		report := func(at ast.Expr, format string) {
			pos := p.Fset.Position(at.Pos())
			name := pos.Filename
			if rel, err := filepath.Rel(root, name); err == nil && !strings.HasPrefix(rel, "..") {
				name = filepath.ToSlash(rel)
			}
			found = append(found, Finding{File: name, Line: pos.Line, Msg: fmt.Sprintf(format, types.ExprString(at))})
		}
		for _, f := range p.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				for _, e := range m.operands(n) {
					if m.product(e) {
						report(e, "the product %s may be fused with a sum: write float32(...) or float64(...) around it")
					}
				}
				if e, ok := n.(*ast.BinaryExpr); ok && (e.Op == token.MUL || e.Op == token.QUO) && m.is(e, types.IsComplex) {
					report(e, "the complex %s holds products in sums: compute with the parts")
				}
				return true
			})
		}
	}
	return found
}

// products knows where unconverted products may be. A function is named by key.
type products struct {
	info  *types.Info
	vars  map[types.Object]bool // variables, parameters and fields that may hold one
	known map[string]bool       // "f>i": result i of f may be one; "f+i": parameter i of f goes into a sum; "f=i": f may return parameter i
	same  map[string][]string   // other names of a variable's function
}

func (m *products) is(e ast.Expr, info types.BasicInfo) bool {
	tv, ok := m.info.Types[e]
	if !ok || tv.Value != nil || tv.Type == nil {
		return false
	}
	switch t := tv.Type.Underlying().(type) {
	case *types.Basic:
		return t.Info()&info != 0
	case *types.Interface: // a type parameter
		return info == types.IsFloat
	}
	return false
}

// product reports whether e may be an unconverted product.
func (m *products) product(e ast.Expr) bool {
	e = ast.Unparen(e)
	if !m.is(e, types.IsFloat) {
		return false
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return e.Op == token.MUL || e.Op == token.QUO && m.powerOfTwo(e.Y)
	case *ast.UnaryExpr:
		return (e.Op == token.SUB || e.Op == token.ADD) && m.product(e.X)
	case *ast.Ident, *ast.SelectorExpr:
		return m.vars[m.object(e)]
	case *ast.CallExpr:
		return m.result(e, 0)
	}
	return false
}

// result reports whether result i of a call may be an unconverted product.
func (m *products) result(call *ast.CallExpr, i int) bool {
	for _, f := range m.callees(call) {
		if m.known[fmt.Sprintf("%s>%d", f, i)] {
			return true
		}
		for j, arg := range m.arguments(call) {
			if m.known[fmt.Sprintf("%s=%d", f, j)] && m.product(arg) {
				return true
			}
		}
	}
	return false
}

func (m *products) powerOfTwo(e ast.Expr) bool {
	v := m.info.Types[e].Value
	if v == nil {
		return false
	}
	f, _ := constant.Float64Val(v)
	frac, _ := math.Frexp(f)
	return math.Abs(frac) == 0.5
}

// operands are the floating-point expressions that a node adds or subtracts, or hands to a function that does.
func (m *products) operands(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if (n.Op == token.ADD || n.Op == token.SUB) && m.is(n, types.IsFloat) {
			return []ast.Expr{n.X, n.Y}
		}
	case *ast.AssignStmt:
		if (n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN) && m.is(n.Lhs[0], types.IsFloat) {
			return []ast.Expr{n.Lhs[0], n.Rhs[0]}
		}
	case *ast.CallExpr:
		var out []ast.Expr
		for _, f := range m.callees(n) {
			for i, a := range m.arguments(n) {
				if m.known[fmt.Sprintf("%s+%d", f, i)] {
					out = append(out, a)
				}
			}
		}
		return out
	}
	return nil
}

// arguments of a call; those of a method are preceded by its receiver.
func (m *products) arguments(call *ast.CallExpr) []ast.Expr {
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if s := m.info.Selections[sel]; s != nil && s.Kind() == types.MethodVal {
			return append([]ast.Expr{sel.X}, call.Args...)
		}
	}
	return call.Args
}

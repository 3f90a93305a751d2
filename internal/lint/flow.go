package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// object is what an identifier or a selector names.
func (m *products) object(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if obj := m.info.Defs[e]; obj != nil {
			return obj
		}
		return m.info.Uses[e]
	case *ast.SelectorExpr:
		if v, ok := m.info.Uses[e.Sel].(*types.Var); ok {
			return v.Origin()
		}
		return m.info.Uses[e.Sel]
	}
	return nil
}

// key names a function, or a variable that holds one.
func key(obj types.Object) string {
	switch obj := obj.(type) {
	case *types.Func:
		return obj.Origin().FullName()
	case *types.Var:
		return fmt.Sprintf("%s@%d", obj.Name(), obj.Pos())
	}
	return ""
}

// functions are the names of what an expression of function type may be; none for conversions and builtins.
func (m *products) functions(e ast.Expr) []string {
	e = ast.Unparen(e)
	switch ix := e.(type) {
	case *ast.IndexExpr:
		e = ix.X
	case *ast.IndexListExpr:
		e = ix.X
	case *ast.FuncLit:
		return []string{literal(ix)}
	}
	name := key(m.object(e))
	if name == "" {
		return nil
	}
	return append([]string{name}, m.same[name]...)
}

func literal(f *ast.FuncLit) string { return fmt.Sprintf("literal@%d", f.Pos()) }

func (m *products) callees(call *ast.CallExpr) []string { return m.functions(call.Fun) }

// learn adds what a file shows about variables, results and parameters.
func (m *products) learn(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			m.learnFunction(key(m.info.Defs[fn.Name]), fn.Recv, fn.Type, fn.Body)
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				m.learnFunction(literal(n), nil, n.Type, n.Body)
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN && m.is(n.Lhs[0], types.IsFloat) || n.Tok == token.QUO_ASSIGN && m.powerOfTwo(n.Rhs[0]) {
					m.hold(n.Lhs[0])
				} else if n.Tok == token.ASSIGN || n.Tok == token.DEFINE {
					m.assign(n.Lhs, n.Rhs)
				}
			case *ast.ValueSpec:
				lhs := make([]ast.Expr, len(n.Names))
				for i, name := range n.Names {
					lhs[i] = name
				}
				m.assign(lhs, n.Values)
			case *ast.CompositeLit:
				m.learnFields(n)
			}
			return true
		})
	}
}

// hold notes that a variable or field may hold a product.
func (m *products) hold(e ast.Expr) {
	if obj := m.object(e); obj != nil {
		m.vars[obj] = true
	}
}

func (m *products) assign(lhs, rhs []ast.Expr) {
	if len(rhs) == 1 && len(lhs) > 1 {
		if call, ok := ast.Unparen(rhs[0]).(*ast.CallExpr); ok {
			for i, e := range lhs {
				if m.result(call, i) {
					m.hold(e)
				}
			}
		}
		return
	}
	for i, e := range rhs {
		if m.product(e) {
			m.hold(lhs[i])
		}
		if t := m.info.TypeOf(e); t != nil {
			if _, ok := t.Underlying().(*types.Signature); ok {
				m.alias(key(m.object(lhs[i])), m.functions(e))
			}
		}
	}
}

// alias notes that a variable may hold the functions.
func (m *products) alias(name string, functions []string) {
	for _, f := range functions {
		if fresh := name + "~" + f; name != "" && !m.known[fresh] {
			m.known[fresh] = true
			m.same[name] = append(m.same[name], f)
		}
	}
}

// learnFields notes the products among the fields of a struct literal: the compiler keeps small structs in registers.
func (m *products) learnFields(lit *ast.CompositeLit) {
	t := m.info.TypeOf(lit)
	if t == nil {
		return
	}
	s, ok := t.Underlying().(*types.Struct)
	for i, e := range lit.Elts {
		if kv, keyed := e.(*ast.KeyValueExpr); ok && keyed && m.product(kv.Value) {
			m.hold(kv.Key)
		} else if ok && !keyed && m.product(e) {
			m.vars[s.Field(i).Origin()] = true
		}
	}
}

// learnFunction notes the results of a function that may be products, and the parameters that are operands of a sum in it
// or returned from it, also under another name.
func (m *products) learnFunction(name string, recv *ast.FieldList, typ *ast.FuncType, body *ast.BlockStmt) {
	index := make(map[types.Object]int)
	for i, id := range append(names(recv), names(typ.Params)...) {
		if id != nil {
			index[m.info.Defs[id]] = i
		}
	}
	results := names(typ.Results)
	for size := -1; size != len(index); {
		size = len(index)
		inspectBody(body, func(n ast.Node) { m.learnCopies(n, index) })
	}
	inspectBody(body, func(n ast.Node) {
		for _, e := range m.operands(n) {
			if i, ok := index[m.object(e)]; ok {
				m.known[fmt.Sprintf("%s+%d", name, i)] = true
			}
		}
		ret, ok := n.(*ast.ReturnStmt)
		if !ok {
			return
		}
		for i, e := range ret.Results {
			if m.product(e) {
				m.known[fmt.Sprintf("%s>%d", name, i)] = true
			}
			if p, ok := index[m.object(e)]; ok && i == 0 {
				m.known[fmt.Sprintf("%s=%d", name, p)] = true
			}
		}
	})
	for i, id := range results {
		if id != nil && m.vars[m.info.Defs[id]] {
			m.known[fmt.Sprintf("%s>%d", name, i)] = true
		}
	}
}

// learnCopies adds the variables that a statement sets to one in index.
func (m *products) learnCopies(n ast.Node, index map[types.Object]int) {
	a, ok := n.(*ast.AssignStmt)
	if !ok || len(a.Lhs) != len(a.Rhs) || a.Tok != token.ASSIGN && a.Tok != token.DEFINE {
		return
	}
	for i, e := range a.Rhs {
		p, ok := index[m.object(e)]
		to, isVar := m.object(a.Lhs[i]).(*types.Var)
		if _, has := index[to]; ok && isVar && !to.IsField() && !has && m.is(e, types.IsFloat) {
			index[to] = p
		}
	}
}

// names lists the names of a field list, nil for a nameless field.
func names(list *ast.FieldList) (out []*ast.Ident) {
	if list == nil {
		return nil
	}
	for _, f := range list.List {
		if len(f.Names) == 0 {
			out = append(out, nil)
		}
		out = append(out, f.Names...)
	}
	return out
}

// inspectBody visits a function without the function literals in it.
func inspectBody(body *ast.BlockStmt, visit func(ast.Node)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		if n != nil {
			visit(n)
		}
		return true
	})
}

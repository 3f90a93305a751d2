package chat

import (
	"slices"
	"strconv"
	"strings"
)

// expr writes an expression. Literals, names, logic and conditions stay; the rest becomes calls.
func (l *lowering) expr(e *expr) {
	if !l.deeper(e.line) {
		return
	}
	defer func() { l.depth-- }()
	l.cost++
	switch e.kind {
	case exLit:
		l.write(e.text)
	case exStr:
		l.write(quote(e.text))
	case exName:
		if e.text == "varargs" {
			l.write(fnVarargs, "(varargs)")
			return
		}
		l.write(goName(e.text))
	case exList:
		l.call(fnList, "", e.args)
	case exTuple:
		l.call(fnTuple, "", e.args)
	case exDict:
		l.call(fnDict, l.at(e, "dict"), e.args)
	case exAttr:
		l.call(fnAttr, l.at(e, e.text), e.args)
	case exItem:
		l.call(fnItem, l.at(e, "item"), e.args)
	case exSlice:
		l.call(fnSlice, l.at(e, "slice"), e.args)
	case exCall:
		l.callExpr(e)
	case exFilter:
		l.filterExpr(e)
	case exTest:
		l.testExpr(e)
	case exUnary:
		l.call(fnUnary, l.at(e, e.text)+", "+quote(e.text), e.args)
	case exNot:
		l.write("(not ")
		l.condition(e.args[0])
		l.write(")")
	case exBinary:
		l.chain(fnBinary, e)
	case exCompare:
		l.chain(fnCompare, e)
	case exConcat:
		l.call(fnConcat, l.at(e, "~"), e.args)
	case exAnd:
		l.joined(e.args, " and ")
	case exOr:
		l.joined(e.args, " or ")
	case exCond:
		l.cond(e)
	}
}

// at registers the site of an expression and returns it as an argument.
func (l *lowering) at(e *expr, name string) string {
	i := l.site(e.line, name)
	if e.kind == exAttr || e.kind == exItem || e.kind == exSlice {
		l.sites[i].of = path(e.args[0], 0)
	}
	return strconv.Itoa(i)
}

// path is the text of a.b.c, or "value" for what is not a path of at most four names.
func path(e *expr, depth int) string {
	switch {
	case e.kind == exName:
		return e.text
	case e.kind == exAttr && depth < 3:
		return path(e.args[0], depth+1) + "." + e.text
	case e.kind == exItem && depth < 3:
		return path(e.args[0], depth+1) + "[...]"
	}
	return "value"
}

// call writes fn(first, args...); a nil argument is none.
func (l *lowering) call(fn, first string, args []*expr) {
	l.write(fn, "(", first)
	for i, a := range args {
		if i > 0 || first != "" {
			l.write(", ")
		}
		if a == nil {
			l.write("none")
		} else {
			l.expr(a)
		}
	}
	l.write(")")
}

// chain writes fn(site, first, op, next, op, next ...).
func (l *lowering) chain(fn string, e *expr) {
	l.write(fn, "(", l.at(e, e.ops[0]), ", ")
	l.expr(e.args[0])
	for i, op := range e.ops {
		l.write(", ", quote(op), ", ")
		l.expr(e.args[i+1])
	}
	l.write(")")
}

func (l *lowering) joined(args []*expr, word string) {
	l.write("(")
	for i, a := range args {
		if i > 0 {
			l.write(word)
		}
		l.expr(a)
	}
	l.write(")")
}

func (l *lowering) cond(e *expr) {
	l.write("(")
	l.expr(e.args[1])
	l.write(" if ")
	l.condition(e.args[0])
	if e.args[2] != nil {
		l.write(" else ")
		l.expr(e.args[2])
	}
	l.write(")")
}

// lazyFilters give Python a generator, which is true even when nothing comes out of it. Here they give a list.
var lazyFilters = []string{"map", "select", "reject", "selectattr", "rejectattr", "unique", "batch", "slice", "items"}

// condition writes an expression of which only the truth matters.
func (l *lowering) condition(e *expr) {
	if e.kind != exFilter || !slices.Contains(lazyFilters, e.text) {
		l.expr(e)
		return
	}
	l.write("(")
	l.expr(e)
	l.write(" is defined)")
}

// callExpr writes a call. A method is looked up and called at once; dict and namespace get their keywords in order, which
// the library's map of keywords would lose.
func (l *lowering) callExpr(e *expr) {
	callee := e.args[0]
	switch {
	case callee.kind == exName && (callee.text == "dict" || callee.text == "namespace") && len(e.kw) > 0 && e.star == nil && e.starKw == nil:
		l.write(fnKeywords, "(", l.at(e, callee.text), ", ", callee.text, ", ")
		l.call(fnList, "", e.args[1:])
		for _, k := range e.kw {
			l.write(", ", quote(k.name), ", ")
			l.expr(k.value)
		}
		l.write(")")
	case callee.kind == exAttr && e.star == nil:
		l.write(fnMethod, "(", l.at(callee, callee.text), ", ")
		l.expr(callee.args[0])
		l.arguments(e)
	case e.star != nil:
		l.write(fnCallStar, "(", l.at(e, calleeName(callee)), ", ")
		l.expr(callee)
		l.write(", ")
		l.expr(e.star)
		l.arguments(e)
	default:
		l.write(fnCall, "(", l.at(e, calleeName(callee)), ", ")
		l.expr(callee)
		l.arguments(e)
	}
}

// arguments writes the arguments after the first, all keywords, and the closing parenthesis.
func (l *lowering) arguments(e *expr) {
	for _, a := range e.args[1:] {
		l.write(", ")
		l.expr(a)
	}
	for _, k := range e.kw {
		l.write(", ", goName(k.name), "=")
		l.expr(k.value)
	}
	if e.starKw != nil {
		l.write(", **")
		l.expr(e.starKw)
	}
	l.write(")")
}

func calleeName(e *expr) string {
	if e.kind == exName || e.kind == exAttr {
		return e.text
	}
	return "expression"
}

func (l *lowering) filterExpr(e *expr) {
	fn := fnFilter
	if e.star != nil {
		fn = fnFilterAll
	}
	l.write(fn, "(", l.at(e, e.text), ", ")
	l.expr(e.args[0])
	if e.star != nil {
		l.write(", ")
		l.expr(e.star)
	}
	l.arguments(e)
}

// testExpr leaves the tests to the library that only look at the kind of a value.
func (l *lowering) testExpr(e *expr) {
	if e.text == "defined" || e.text == "undefined" || e.text == "none" {
		l.write("(")
		l.expr(e.args[0])
		l.write(" is ", e.text, ")")
		return
	}
	l.write(fnTest, "(", l.at(e, e.text), ", ")
	l.expr(e.args[0])
	l.arguments(e)
}

// quote writes a string as the library reads it.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

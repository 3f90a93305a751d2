package chat

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// site is a place in the template that a lowered call names by index.
type site struct {
	line  int
	depth int    // statements and expressions around it
	name  string // what is called or read there
	of    string // what it is read from, for messages
}

// lowering writes the template for the library. Output tags hold everything but control flow, so there is no text for its
// white space rules to work on; {%+ +%} keeps it from looking for some.
type lowering struct {
	out   *strings.Builder
	texts []jinja.Value
	sites []site
	depth int
	temps int // names made up so far
	cost  int // nodes written since the start of the body around, nested loops left out
	err   error
}

func lower(body []*stmt) *lowering {
	l := &lowering{out: new(strings.Builder)}
	l.body(body)
	return l
}

// site registers a place and returns its index.
func (l *lowering) site(line int, name string) int {
	l.sites = append(l.sites, site{line: line, depth: l.depth, name: name})
	l.cost++
	return len(l.sites) - 1
}

// deeper opens a level of nesting and reports whether it is allowed; close it with l.depth--.
func (l *lowering) deeper(line int) bool {
	l.depth++
	if l.depth > maxTree && l.err == nil {
		l.err = &Error{Line: line, Msg: fmt.Sprintf("nests deeper than %d", maxTree)}
	}
	return l.err == nil
}

func (l *lowering) write(parts ...string) {
	for _, s := range parts {
		l.out.WriteString(s)
	}
}

func (l *lowering) temp() string {
	l.temps++
	return "__v" + strconv.Itoa(l.temps)
}

// goName is the name that a template variable has for the library, which reads ASCII names only, takes null for none, and
// must not confuse a variable with ours.
func goName(name string) string {
	plain := name != "null" && !strings.HasPrefix(name, "__")
	for i := 0; i < len(name); i++ {
		plain = plain && name[i] < 0x80
	}
	if plain {
		return name
	}
	return fmt.Sprintf("__u%x", name)
}

// function names of lowered calls; run.variables binds them.
const (
	fnText      = "__x"     // text(index)
	fnOutput    = "__o"     // output(site, value): the text of the value
	fnTick      = "__t"     // tick(steps, bytes): spends
	fnIter      = "__it"    // iter(site, value): a list
	fnPush      = "__p"     // push(list, item)
	fnUnpack    = "__un"    // unpack(site, value, count): a list of count items
	fnSetAttr   = "__sn"    // setattr(site, namespace, value): the value
	fnCall      = "__call"  // call(site, callee, args...)
	fnCallStar  = "__calls" // call(site, callee, list, args...): the list's items follow the args
	fnMethod    = "__m"     // method(site, object, args...): calls the attribute that the site names
	fnAttr      = "__a"     // attr(site, object)
	fnItem      = "__i"     // item(site, object, key)
	fnSlice     = "__s"     // slice(site, object, start, stop, step)
	fnList      = "__l"     // list(items...)
	fnTuple     = "__tu"    // tuple(items...)
	fnVarargs   = "__va"    // varargs(list): a macro's further arguments, which are a tuple
	fnBig       = "__n"     // big(digits): an integer beyond 64 bits
	fnDict      = "__d"     // dict(site, key, value, ...)
	fnKeywords  = "__kw"    // keywords(site, callee, list, key, value, ...): calls with keywords in order
	fnBinary    = "__b"     // binary(site, first, op, next, op, next ...)
	fnConcat    = "__j"     // concat(site, parts...)
	fnCompare   = "__c"     // compare(site, first, op, next, op, next ...)
	fnUnary     = "__ng"    // unary(site, op, operand)
	fnFilter    = "__f"     // filter(site, value, args...)
	fnFilterAll = "__fs"    // filter(site, value, list, args...)
	fnTest      = "__is"    // test(site, value, args...)
)

func (l *lowering) body(body []*stmt) {
	for _, s := range body {
		if !l.deeper(s.line) {
			return
		}
		l.cost++
		l.stmt(s)
		l.depth--
	}
}

// ticked writes the body of something that may run many times, after a tick that pays for one run.
func (l *lowering) ticked(body []*stmt, bytes int, before func()) {
	around, out := l.cost, l.out
	l.cost, l.out = 0, new(strings.Builder)
	if before != nil {
		before()
	}
	l.body(body)
	inner := l.out.String()
	l.out = out
	l.write("{{ ", fnTick, "(", strconv.Itoa(l.cost), ", ", strconv.Itoa(bytes), ") }}", inner)
	l.cost = around
}

func (l *lowering) stmt(s *stmt) {
	switch s.kind {
	case stText:
		l.texts = append(l.texts, jinja.NewString(s.text))
		l.write("{{ ", fnText, "(", strconv.Itoa(len(l.texts)-1), ") }}")
	case stOutput:
		l.write("{{ ", fnOutput, "(", strconv.Itoa(l.site(s.line, "output")), ", ")
		l.expr(s.expr)
		l.write(") }}")
	case stIf:
		l.ifStmt(s)
	case stFor:
		l.forStmt(s)
	case stSet:
		l.assign(s.target, func() { l.expr(s.expr) })
	case stSetBlock:
		name := l.capture(s.body, nil)
		l.assign(s.target, func() { l.filtered(s.filter, name+"()") })
	case stMacro:
		l.macro(goName(s.text), s.params, s.body)
	case stCall:
		l.callStmt(s)
	case stFilter:
		name := l.capture(s.body, nil)
		l.write("{{ ", fnOutput, "(", strconv.Itoa(l.site(s.line, "filter")), ", ")
		l.filtered(s.filter, name+"()")
		l.write(") }}")
	case stWith:
		l.withStmt(s)
	case stBreak:
		l.write("{%+ break +%}")
	case stContinue:
		l.write("{%+ continue +%}")
	case stScope:
		l.body(s.body)
	}
}

func (l *lowering) ifStmt(s *stmt) {
	word := "if "
	for _, b := range s.branches {
		if b.cond == nil {
			l.write("{%+ else +%}")
		} else {
			l.write("{%+ ", word)
			l.condition(b.cond)
			l.write(" +%}")
		}
		l.body(b.body)
		word = "elif "
	}
	l.write("{%+ endif +%}")
}

// forStmt writes a loop. Several targets are unpacked at the start of its body, because the library takes two at most and
// does not check their number; a condition on them first makes the list of what passes.
func (l *lowering) forStmt(s *stmt) {
	item := l.loopName(s.target)
	unpack := func() { l.unpack(s.target, item) }
	filter := s.filter
	source := func() { l.expr(s.expr) }
	if filter != nil && s.target.kind == exTuple {
		if s.recursive && l.err == nil {
			l.err = &Error{Line: s.line, Msg: "recursive loop with a condition and several variables is not supported"}
		}
		list := l.temp()
		l.write("{%+ set ", list, " = ", fnList, "() +%}{%+ for ", item, " in ", fnIter, "(", strconv.Itoa(l.site(s.line, "for")), ", ")
		source()
		l.write(") +%}")
		l.ticked(nil, 0, func() {
			unpack()
			l.write("{%+ if ")
			l.expr(filter)
			l.write(" +%}{{ ", fnPush, "(", list, ", ", item, ") }}{%+ endif +%}")
		})
		l.write("{%+ endfor +%}")
		source, filter = func() { l.write(list) }, nil
	}
	l.write("{%+ for ", item, " in ", fnIter, "(", strconv.Itoa(l.site(s.line, "for")), ", ")
	source()
	l.write(")")
	if filter != nil {
		l.write(" if ")
		l.expr(filter)
	}
	if s.recursive {
		l.write(" recursive")
	}
	l.write(" +%}")
	l.ticked(s.body, 0, unpack)
	if s.other != nil {
		l.write("{%+ else +%}")
		l.body(s.other)
	}
	l.write("{%+ endfor +%}")
}

// loopName is the variable that the library's loop sets.
func (l *lowering) loopName(target *expr) string {
	if target.kind == exTuple {
		return l.temp()
	}
	return goName(target.text)
}

// unpack sets the names of a tuple target from a variable.
func (l *lowering) unpack(target *expr, from string) {
	if target.kind == exTuple {
		l.assign(target, func() { l.write(from) })
	}
}

// assign writes set statements for a target.
func (l *lowering) assign(target *expr, value func()) {
	switch target.kind {
	case exName:
		l.write("{%+ set ", goName(target.text), " = ")
		value()
		l.write(" +%}")
	case exAttr:
		ns := goName(target.args[0].text)
		l.write("{%+ set ", ns, ".", target.text, " = ", fnSetAttr, "(", strconv.Itoa(l.site(target.line, target.args[0].text)), ", ", ns, ", ")
		value()
		l.write(") +%}")
	case exTuple:
		l.assignTuple(target, value)
	}
}

func (l *lowering) assignTuple(target *expr, value func()) {
	if !l.deeper(target.line) {
		return
	}
	defer func() { l.depth-- }()
	names := make([]string, len(target.args))
	for i, t := range target.args {
		names[i] = goName(t.text)
		if t.kind != exName {
			names[i] = l.temp()
		}
	}
	whole := l.temp()
	l.write("{%+ set ", whole, " = ", fnUnpack, "(", strconv.Itoa(l.site(target.line, "unpack")), ", ")
	value()
	l.write(", ", strconv.Itoa(len(names)), ") +%}")
	for i, name := range names {
		l.write("{%+ set ", name, " = ", whole, "[", strconv.Itoa(i), "] +%}")
	}
	for i, t := range target.args {
		if t.kind != exName {
			l.assign(t, func() { l.write(names[i]) })
		}
	}
}

// macroBytes pays for a macro value and the scope it keeps alive.
const macroBytes = 1024

func (l *lowering) macro(name string, params []param, body []*stmt) {
	l.write("{{ ", fnTick, "(1, ", strconv.Itoa(macroBytes), ") }}{%+ macro ", name, "(")
	for i, p := range params {
		if i > 0 {
			l.write(", ")
		}
		l.write(goName(p.name))
		if p.value != nil {
			l.write("=")
			l.expr(p.value)
		}
	}
	l.write(") +%}")
	outer := l.cost
	l.ticked(body, 0, nil)
	l.cost = outer + len(body)
	l.write("{%+ endmacro +%}")
}

// capture writes a body as a macro of its own, which gives it a scope, and returns the macro's name.
func (l *lowering) capture(body []*stmt, params []param) string {
	name := l.temp()
	l.macro(name, params, body)
	return name
}

// withStmt passes the values as arguments, so that none of them sees another.
func (l *lowering) withStmt(s *stmt) {
	bare := make([]param, len(s.params))
	for i, p := range s.params {
		bare[i] = param{name: p.name}
	}
	name := l.capture(s.body, bare)
	l.write("{{ ", fnOutput, "(", strconv.Itoa(l.site(s.line, "with")), ", ", name, "(")
	for i, p := range s.params {
		if i > 0 {
			l.write(", ")
		}
		l.expr(p.value)
	}
	l.write(")) }}")
}

func (l *lowering) callStmt(s *stmt) {
	l.write("{%+ call(")
	for i, p := range s.params {
		if i > 0 {
			l.write(", ")
		}
		l.write(goName(p.name))
	}
	l.write(") ")
	l.expr(s.expr)
	l.write(" +%}")
	l.ticked(s.body, macroBytes, nil)
	l.write("{%+ endcall +%}")
}

// filtered writes a filter chain over a value that is already lowered.
func (l *lowering) filtered(chain *expr, value string) {
	if chain == nil {
		l.write(value)
		return
	}
	inner := chain
	for inner.args[0] != nil {
		inner = inner.args[0]
	}
	inner.args[0] = &expr{kind: exLit, line: chain.line, text: value}
	l.expr(chain)
}

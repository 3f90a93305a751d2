package chat

import (
	"fmt"
	"slices"
	"strings"
)

// parser reads a template by jinja2's grammar.
type parser struct {
	lex   *lexer
	cur   token
	next  token // valid when ahead
	ahead bool
	nodes int
	nest  int
	loops int // loops around, for break and continue
	conds int // if statements and conditional expressions around: an unknown filter there fails only when it runs
}

func parse(src string) ([]*stmt, error) {
	p := &parser{lex: newLexer(src)}
	body, _, err := p.body()
	return body, err
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{Line: p.cur.line, Msg: fmt.Sprintf(format, args...)}
}

// advance moves to the next token of the tag.
func (p *parser) advance() (err error) {
	if p.ahead {
		p.cur, p.ahead = p.next, false
		return nil
	}
	p.cur, err = p.lex.token()
	return err
}

// peek returns the token after the current one.
func (p *parser) peek() (token, error) {
	if !p.ahead {
		t, err := p.lex.token()
		if err != nil {
			return t, err
		}
		p.next, p.ahead = t, true
	}
	return p.next, nil
}

func (p *parser) isOp(op string) bool     { return p.cur.kind == tokOp && p.cur.text == op }
func (p *parser) isName(name string) bool { return p.cur.kind == tokName && p.cur.text == name }

// skipOp moves past an operator if it is the current token.
func (p *parser) skipOp(op string) (bool, error) {
	if !p.isOp(op) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) skipName(name string) (bool, error) {
	if !p.isName(name) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expectOp(op string) error {
	if !p.isOp(op) {
		return p.fail("expected %q, got %v", op, p.cur)
	}
	return p.advance()
}

func (p *parser) expectName() (string, error) {
	if p.cur.kind != tokName {
		return "", p.fail("expected a name, got %v", p.cur)
	}
	name := p.cur.text
	return name, p.advance()
}

func (p *parser) expectEnd() error {
	if p.cur.kind != tokEnd {
		return p.fail("expected the end of the tag, got %v", p.cur)
	}
	return nil
}

// deeper opens a level of nesting; close it with p.nest--.
func (p *parser) deeper() error {
	p.nest++
	if p.nest > maxNest {
		return p.fail("nests deeper than %d", maxNest)
	}
	return nil
}

func (p *parser) count() error {
	p.nodes++
	if p.nodes > maxNodes {
		return p.fail("has more than %d expressions and statements", maxNodes)
	}
	return nil
}

// body reads statements up to a block that starts with one of ends, whose name is returned and whose other tokens are still
// to be read. Without ends it reads to the end of the template.
func (p *parser) body(ends ...string) ([]*stmt, string, error) {
	if err := p.deeper(); err != nil {
		return nil, "", err
	}
	defer func() { p.nest-- }()
	opened := p.lex.line
	var out []*stmt
	for {
		line := p.lex.line
		text, tag, err := p.lex.data()
		if err != nil {
			return nil, "", err
		}
		if text != "" {
			out = append(out, &stmt{kind: stText, line: line, text: text})
		}
		if err := p.count(); err != nil {
			return nil, "", err
		}
		if tag == tagEOF {
			if len(ends) > 0 {
				return nil, "", &Error{Line: opened, Msg: fmt.Sprintf("block without %s", strings.Join(ends, " or "))}
			}
			return out, "", nil
		}
		if err := p.advance(); err != nil {
			return nil, "", err
		}
		if tag == tagBlock && p.cur.kind == tokName && slices.Contains(ends, p.cur.text) {
			end := p.cur.text
			return out, end, p.advance()
		}
		s, err := p.tag(tag)
		if err != nil {
			return nil, "", err
		}
		if err := p.expectEnd(); err != nil {
			return nil, "", err
		}
		if s != nil {
			out = append(out, s)
		}
	}
}

// tag reads the inside of {{ }} or a whole statement up to, but not over, the end of its last tag.
func (p *parser) tag(kind tagKind) (*stmt, error) {
	line := p.cur.line
	if kind == tagVariable {
		e, err := p.tuple(true)
		return &stmt{kind: stOutput, line: line, expr: e}, err
	}
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	s := &stmt{line: line}
	switch name {
	case "if":
		return s, p.ifStmt(s)
	case "for":
		return s, p.forStmt(s)
	case "set":
		return s, p.setStmt(s)
	case "macro":
		return s, p.macroStmt(s)
	case "call":
		return s, p.callStmt(s)
	case "filter":
		return s, p.filterStmt(s)
	case "with":
		return s, p.withStmt(s)
	case "generation":
		s.kind = stScope
		s.body, _, err = p.body("endgeneration")
		return s, err
	case "block":
		return s, p.blockStmt(s)
	case "print":
		s.kind = stOutput
		return s, p.printStmt(s)
	case "break", "continue":
		s.kind = stBreak
		if name == "continue" {
			s.kind = stContinue
		}
		if p.loops == 0 {
			return nil, p.fail("%s outside of a loop", name)
		}
		return s, nil
	}
	return nil, &Error{Line: line, Msg: fmt.Sprintf("unknown statement %q", name)}
}

// inner reads a nested body after checking the end of the opening tag.
func (p *parser) inner(ends ...string) ([]*stmt, string, error) {
	if err := p.expectEnd(); err != nil {
		return nil, "", err
	}
	return p.body(ends...)
}

// printStmt reads expressions that are written one after the other.
func (p *parser) printStmt(s *stmt) (err error) {
	if s.expr, err = p.node(exConcat, ""); err != nil {
		return err
	}
	for p.cur.kind != tokEnd {
		if len(s.expr.args) > 0 {
			if err = p.expectOp(","); err != nil {
				return err
			}
		}
		part, err := p.expression()
		if err != nil {
			return err
		}
		s.expr.args = append(s.expr.args, part)
	}
	return nil
}

func (p *parser) ifStmt(s *stmt) error {
	s.kind = stIf
	p.conds++
	defer func() { p.conds-- }()
	end := "elif"
	for end != "endif" {
		var b branch
		var err error
		ends := []string{"elif", "else", "endif"}
		if end == "elif" {
			if b.cond, err = p.tuple(false); err != nil {
				return err
			}
		} else {
			ends = ends[2:]
		}
		if b.body, end, err = p.inner(ends...); err != nil {
			return err
		}
		s.branches = append(s.branches, b)
	}
	return nil
}

func (p *parser) forStmt(s *stmt) (err error) {
	s.kind = stFor
	if s.target, err = p.target(false); err != nil {
		return err
	}
	if !p.isName("in") {
		return p.fail("expected \"in\", got %v", p.cur)
	}
	if err = p.advance(); err != nil {
		return err
	}
	if s.expr, err = p.tuple(false); err != nil {
		return err
	}
	filtered, err := p.skipName("if")
	if err != nil {
		return err
	}
	if filtered {
		if s.filter, err = p.expression(); err != nil {
			return err
		}
	}
	if s.recursive, err = p.skipName("recursive"); err != nil {
		return err
	}
	p.loops++
	var end string
	s.body, end, err = p.inner("endfor", "else")
	p.loops--
	if err == nil && end == "else" {
		s.other, _, err = p.inner("endfor")
	}
	return err
}

func (p *parser) setStmt(s *stmt) (err error) {
	s.kind = stSet
	if s.target, err = p.target(true); err != nil {
		return err
	}
	assigned, err := p.skipOp("=")
	if err != nil {
		return err
	}
	if assigned {
		s.expr, err = p.tuple(true)
		return err
	}
	s.kind = stSetBlock
	if s.target.kind == exTuple {
		return p.fail("a set block takes one name")
	}
	if p.isOp("|") {
		if s.filter, err = p.filters(nil, false); err != nil {
			return err
		}
	}
	s.body, _, err = p.inner("endset")
	return err
}

func (p *parser) macroStmt(s *stmt) (err error) {
	s.kind = stMacro
	if s.text, err = p.expectName(); err != nil {
		return err
	}
	if s.params, err = p.signature(); err != nil {
		return err
	}
	return p.function(s, "endmacro")
}

// function reads the body of a macro or a call block; loops around it are not its own.
func (p *parser) function(s *stmt, end string) (err error) {
	loops := p.loops
	p.loops = 0
	s.body, _, err = p.inner(end)
	p.loops = loops
	return err
}

func (p *parser) signature() ([]param, error) {
	if err := p.expectOp("("); err != nil {
		return nil, err
	}
	var params []param
	for !p.isOp(")") {
		if len(params) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return nil, err
		}
		pa := param{name: name}
		assigned, err := p.skipOp("=")
		if err != nil {
			return nil, err
		}
		if assigned {
			if pa.value, err = p.expression(); err != nil {
				return nil, err
			}
		} else if len(params) > 0 && params[len(params)-1].value != nil {
			return nil, p.fail("parameter %q without a default after one with a default", name)
		}
		params = append(params, pa)
	}
	return params, p.advance()
}

func (p *parser) callStmt(s *stmt) (err error) {
	s.kind = stCall
	if p.isOp("(") {
		if s.params, err = p.signature(); err != nil {
			return err
		}
		for _, pa := range s.params {
			if pa.value != nil {
				return p.fail("parameter %q of a call block has a default, which is not supported", pa.name)
			}
		}
	}
	if s.expr, err = p.expression(); err != nil {
		return err
	}
	if s.expr.kind != exCall {
		return p.fail("expected a call")
	}
	return p.function(s, "endcall")
}

func (p *parser) filterStmt(s *stmt) (err error) {
	s.kind = stFilter
	if s.filter, err = p.filters(nil, true); err != nil {
		return err
	}
	s.body, _, err = p.inner("endfilter")
	return err
}

func (p *parser) withStmt(s *stmt) (err error) {
	s.kind = stWith
	for p.cur.kind != tokEnd {
		if len(s.params) > 0 {
			if err = p.expectOp(","); err != nil {
				return err
			}
		}
		var pa param
		if pa.name, err = p.expectName(); err != nil {
			return err
		}
		if err = p.expectOp("="); err != nil {
			return err
		}
		if pa.value, err = p.expression(); err != nil {
			return err
		}
		s.params = append(s.params, pa)
	}
	s.body, _, err = p.inner("endwith")
	return err
}

func (p *parser) blockStmt(s *stmt) (err error) {
	s.kind = stScope
	name, err := p.expectName()
	if err != nil {
		return err
	}
	for p.isName("scoped") || p.isName("required") {
		if err = p.advance(); err != nil {
			return err
		}
	}
	if s.body, _, err = p.inner("endblock"); err != nil {
		return err
	}
	_, err = p.skipName(name)
	return err
}

package chat

import (
	"slices"
	"strconv"
	"strings"
)

// node makes an expression at the current token's line.
func (p *parser) node(kind exprKind, text string, args ...*expr) (*expr, error) {
	return &expr{kind: kind, line: p.cur.line, text: text, args: args}, p.count()
}

// tuple reads one expression, or several parted by commas as a tuple. conds allows conditional expressions.
func (p *parser) tuple(conds bool) (*expr, error) {
	read := p.expression
	if !conds {
		read = p.or
	}
	first, err := read()
	if err != nil || !p.isOp(",") {
		return first, err
	}
	return p.restOfTuple(first, read)
}

// restOfTuple reads the items after the first, the current token being the comma.
func (p *parser) restOfTuple(first *expr, read func() (*expr, error)) (*expr, error) {
	t, err := p.node(exTuple, "", first)
	if err != nil {
		return nil, err
	}
	for p.isOp(",") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.cur.kind == tokEnd || p.isOp(")") || p.isOp("=") || p.isName("in") {
			break
		}
		item, err := read()
		if err != nil {
			return nil, err
		}
		t.args = append(t.args, item)
	}
	return t, nil
}

// target reads what is assigned to: a name, names in a tuple, or with namespaces name.attribute.
func (p *parser) target(namespaces bool) (*expr, error) {
	read := func() (*expr, error) { return p.targetItem(namespaces) }
	first, err := read()
	if err != nil || !p.isOp(",") {
		return first, err
	}
	return p.restOfTuple(first, read)
}

func (p *parser) targetItem(namespaces bool) (*expr, error) {
	if p.isOp("(") {
		if err := p.deeper(); err != nil {
			return nil, err
		}
		defer func() { p.nest-- }()
		if err := p.advance(); err != nil {
			return nil, err
		}
		t, err := p.target(namespaces)
		if err != nil {
			return nil, err
		}
		return t, p.expectOp(")")
	}
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		return nil, p.fail("cannot assign to %s", name)
	}
	e, err := p.node(exName, name)
	if err != nil || !namespaces || !p.isOp(".") {
		return e, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	attr, err := p.expectName()
	if err != nil {
		return nil, err
	}
	return p.node(exAttr, attr, e)
}

// expression reads a whole expression; x if y else z binds weakest.
func (p *parser) expression() (*expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.nest-- }()
	value, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.isName("if") {
		p.conds++
		value, err = p.conditional(value)
		p.conds--
		if err != nil {
			return nil, err
		}
	}
	return value, nil
}

func (p *parser) conditional(value *expr) (*expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	cond, err := p.or()
	if err != nil {
		return nil, err
	}
	e, err := p.node(exCond, "", cond, value, nil)
	if err != nil || !p.isName("else") {
		return e, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	e.args[2], err = p.expression()
	return e, err
}

func (p *parser) or() (*expr, error)  { return p.logic(exOr, "or", p.and) }
func (p *parser) and() (*expr, error) { return p.logic(exAnd, "and", p.not) }

// logic reads operands joined by a keyword into one flat node.
func (p *parser) logic(kind exprKind, word string, operand func() (*expr, error)) (*expr, error) {
	first, err := operand()
	if err != nil || !p.isName(word) {
		return first, err
	}
	e, err := p.node(kind, "", first)
	for err == nil && p.isName(word) {
		if err = p.advance(); err != nil {
			break
		}
		var next *expr
		next, err = operand()
		e.args = append(e.args, next)
	}
	return e, err
}

func (p *parser) not() (*expr, error) {
	if !p.isName("not") {
		return p.compare()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.nest-- }()
	if err := p.advance(); err != nil {
		return nil, err
	}
	operand, err := p.not()
	if err != nil {
		return nil, err
	}
	return p.node(exNot, "", operand)
}

func (p *parser) compare() (*expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	var e *expr
	for {
		op, err := p.comparison()
		if err != nil {
			return nil, err
		}
		if op == "" {
			break
		}
		if e == nil {
			if e, err = p.node(exCompare, "", first); err != nil {
				return nil, err
			}
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		e.ops = append(e.ops, op)
		e.args = append(e.args, right)
	}
	if e == nil {
		return first, nil
	}
	return e, nil
}

// comparison moves past a comparison operator and returns it, or "".
func (p *parser) comparison() (string, error) {
	switch {
	case p.cur.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, p.cur.text):
		op := p.cur.text
		return op, p.advance()
	case p.isName("in"):
		return "in", p.advance()
	case p.isName("not"):
		next, err := p.peek()
		if err != nil || next.kind != tokName || next.text != "in" {
			return "", err
		}
		if err := p.advance(); err != nil {
			return "", err
		}
		return "not in", p.advance()
	}
	return "", nil
}

func (p *parser) sum() (*expr, error) {
	return p.binary(exBinary, p.concat, "+", "-")
}

func (p *parser) concat() (*expr, error) {
	return p.binary(exConcat, p.product, "~")
}

func (p *parser) product() (*expr, error) {
	return p.binary(exBinary, p.power, "*", "/", "//", "%")
}

func (p *parser) power() (*expr, error) {
	return p.binary(exBinary, func() (*expr, error) { return p.unary(true) }, "**")
}

// binary reads operands joined by operators of one rank into one flat node.
func (p *parser) binary(kind exprKind, operand func() (*expr, error), ops ...string) (*expr, error) {
	first, err := operand()
	if err != nil || p.cur.kind != tokOp || !slices.Contains(ops, p.cur.text) {
		return first, err
	}
	e, err := p.node(kind, "", first)
	for err == nil && p.cur.kind == tokOp && slices.Contains(ops, p.cur.text) {
		e.ops = append(e.ops, p.cur.text)
		if err = p.advance(); err != nil {
			break
		}
		var next *expr
		next, err = operand()
		e.args = append(e.args, next)
	}
	return e, err
}

// unary reads a signed operand with what is applied to it. A sign binds tighter than a filter.
func (p *parser) unary(filters bool) (*expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.nest-- }()
	var e *expr
	var err error
	if p.isOp("-") || p.isOp("+") {
		sign := p.cur.text
		if err = p.advance(); err != nil {
			return nil, err
		}
		operand, err := p.unary(false)
		if err != nil {
			return nil, err
		}
		if e, err = p.node(exUnary, sign, operand); err != nil {
			return nil, err
		}
	} else if e, err = p.primary(); err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	return p.filterExpr(e)
}

func (p *parser) primary() (*expr, error) {
	t := p.cur
	switch t.kind {
	case tokName:
		if err := p.advance(); err != nil {
			return nil, err
		}
		switch t.text {
		case "true", "True", "false", "False", "none", "None":
			return p.node(exLit, strings.ToLower(t.text))
		}
		return p.node(exName, t.text)
	case tokString:
		var text strings.Builder
		for p.cur.kind == tokString {
			text.WriteString(p.cur.text)
			if err := p.advance(); err != nil {
				return nil, err
			}
		}
		return p.node(exStr, text.String())
	case tokInt, tokFloat:
		return p.numeral(t)
	case tokOp:
		switch t.text {
		case "(":
			return p.parens()
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	return nil, p.fail("unexpected %v", t)
}

// numeral reads a number into a form that the library reads back as the same value.
func (p *parser) numeral(t token) (*expr, error) {
	text := t.text
	if t.kind == tokInt {
		v, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err == nil:
			text = strconv.FormatInt(v, 10)
		case len(text) > maxIntDigits:
			return nil, p.fail("integer has %d digits, at most %d are accepted", len(text), maxIntDigits)
		default:
			text = fnBig + "(" + quote(text) + ")"
		}
	} else {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, p.fail("number %s is out of range", text)
		}
		text = strconv.FormatFloat(v, 'e', -1, 64)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	return p.node(exLit, text)
}

func (p *parser) parens() (*expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.isOp(")") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		return p.node(exTuple, "")
	}
	e, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return e, p.expectOp(")")
}

func (p *parser) list() (*expr, error) {
	e, err := p.node(exList, "")
	if err != nil {
		return nil, err
	}
	err = p.items("]", func() error {
		item, err := p.expression()
		e.args = append(e.args, item)
		return err
	})
	return e, err
}

func (p *parser) dict() (*expr, error) {
	e, err := p.node(exDict, "")
	if err != nil {
		return nil, err
	}
	err = p.items("}", func() error {
		key, err := p.expression()
		if err != nil {
			return err
		}
		if err = p.expectOp(":"); err != nil {
			return err
		}
		value, err := p.expression()
		e.args = append(e.args, key, value)
		return err
	})
	return e, err
}

// items reads things parted by commas, with an optional last comma, between the current opening bracket and end.
func (p *parser) items(end string, read func() error) error {
	if err := p.advance(); err != nil {
		return err
	}
	for n := 0; !p.isOp(end); n++ {
		if n > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
			if p.isOp(end) {
				break
			}
		}
		if err := read(); err != nil {
			return err
		}
	}
	return p.advance()
}

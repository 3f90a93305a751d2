package chat

import "slices"

// postfix reads attributes, subscripts and calls.
func (p *parser) postfix(e *expr) (*expr, error) {
	var err error
	for err == nil {
		switch {
		case p.isOp("."):
			e, err = p.attribute(e)
		case p.isOp("["):
			e, err = p.subscript(e)
		case p.isOp("("):
			e, err = p.call(exCall, "", e)
		default:
			return e, nil
		}
	}
	return nil, err
}

func (p *parser) attribute(object *expr) (*expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	t := p.cur
	switch t.kind {
	case tokName:
		if err := p.advance(); err != nil {
			return nil, err
		}
		return p.node(exAttr, t.text, object)
	case tokInt:
		key, err := p.numeral(t)
		if err != nil {
			return nil, err
		}
		return p.node(exItem, "", object, key)
	}
	return nil, p.fail("expected a name or a number after the dot, got %v", t)
}

func (p *parser) subscript(object *expr) (*expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	var parts [3]*expr // start, stop, step
	colons := 0
	for !p.isOp("]") {
		if p.isOp(":") && colons < 2 {
			colons++
			if err := p.advance(); err != nil {
				return nil, err
			}
			continue
		}
		if parts[colons] != nil {
			return nil, p.fail("expected \"]\", got %v", p.cur)
		}
		var err error
		if parts[colons], err = p.expression(); err != nil {
			return nil, err
		}
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if colons > 0 {
		return p.node(exSlice, "", object, parts[0], parts[1], parts[2])
	}
	if parts[0] == nil {
		return nil, p.fail("empty subscript")
	}
	return p.node(exItem, "", object, parts[0])
}

// call reads arguments into a call, a filter or a test.
func (p *parser) call(kind exprKind, name string, head *expr) (*expr, error) {
	e, err := p.node(kind, name, head)
	if err != nil {
		return nil, err
	}
	err = p.items(")", func() error { return p.argument(e) })
	return e, err
}

func (p *parser) argument(e *expr) (err error) {
	switch {
	case p.isOp("*") && e.star == nil && e.starKw == nil:
		if err = p.advance(); err == nil {
			e.star, err = p.expression()
		}
		return err
	case p.isOp("**") && e.starKw == nil:
		if err = p.advance(); err == nil {
			e.starKw, err = p.expression()
		}
		return err
	}
	if p.cur.kind == tokName {
		next, err := p.peek()
		if err != nil {
			return err
		}
		if next.kind == tokOp && next.text == "=" {
			return p.keyword(e)
		}
	}
	if len(e.kw) > 0 || e.star != nil || e.starKw != nil {
		return p.fail("positional argument after a named one")
	}
	arg, err := p.expression()
	e.args = append(e.args, arg)
	return err
}

func (p *parser) keyword(e *expr) error {
	name := p.cur.text
	if slices.ContainsFunc(e.kw, func(k keyword) bool { return k.name == name }) {
		return p.fail("argument %q is given twice", name)
	}
	if err := p.advance(); err != nil {
		return err
	}
	if err := p.advance(); err != nil {
		return err
	}
	value, err := p.expression()
	e.kw = append(e.kw, keyword{name, value})
	return err
}

// filterExpr reads filters, tests and calls of their results.
func (p *parser) filterExpr(e *expr) (*expr, error) {
	var err error
	for err == nil {
		switch {
		case p.isOp("|"):
			e, err = p.filter(e)
		case p.isName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			e, err = p.call(exCall, "", e)
		default:
			return e, nil
		}
	}
	return nil, err
}

// filters reads the filters of a block, whose innermost value is nil. inline says that the first has no bar before it.
func (p *parser) filters(e *expr, inline bool) (*expr, error) {
	for inline || p.isOp("|") {
		var err error
		if inline {
			e, err = p.filterName(e)
		} else {
			e, err = p.filter(e)
		}
		if err != nil {
			return nil, err
		}
		inline = false
	}
	return e, nil
}

func (p *parser) filter(e *expr) (*expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	return p.filterName(e)
}

func (p *parser) filterName(e *expr) (*expr, error) {
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	if _, ok := filters[name]; !ok && p.conds == 0 {
		return nil, p.fail("no filter named %q", name)
	}
	if p.isOp("(") {
		return p.call(exFilter, name, e)
	}
	return p.node(exFilter, name, e)
}

func (p *parser) dottedName() (string, error) {
	name, err := p.expectName()
	for err == nil && p.isOp(".") {
		if err = p.advance(); err != nil {
			break
		}
		var part string
		part, err = p.expectName()
		name += "." + part
	}
	return name, err
}

// test reads is [not] name [argument].
func (p *parser) test(e *expr) (*expr, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	negated, err := p.skipName("not")
	if err != nil {
		return nil, err
	}
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	if _, ok := tests[name]; !ok && p.conds == 0 {
		return nil, p.fail("no test named %q", name)
	}
	var t *expr
	switch {
	case p.isOp("("):
		t, err = p.call(exTest, name, e)
	case p.startsArgument():
		t, err = p.testArgument(name, e)
	default:
		t, err = p.node(exTest, name, e)
	}
	if err != nil || !negated {
		return t, err
	}
	return p.node(exNot, "", t)
}

// startsArgument reports whether the current token starts the argument of a test without parentheses.
func (p *parser) startsArgument() bool {
	switch p.cur.kind {
	case tokName:
		return !p.isName("else") && !p.isName("or") && !p.isName("and")
	case tokString, tokInt, tokFloat:
		return true
	}
	return p.isOp("[") || p.isOp("{")
}

func (p *parser) testArgument(name string, e *expr) (*expr, error) {
	if p.isName("is") {
		return nil, p.fail("tests cannot be chained with is")
	}
	arg, err := p.primary()
	if err != nil {
		return nil, err
	}
	if arg, err = p.postfix(arg); err != nil {
		return nil, err
	}
	return p.node(exTest, name, e, arg)
}

// Package chat turns a conversation into the text a model was trained on: it renders the model's own Jinja template as
// Hugging Face's renderer does (jinja2 in its immutable sandbox, with trim_blocks, lstrip_blocks and loop controls).
//
// Templates come from model files and requests from anywhere, so neither is trusted. The library that executes them,
// github.com/ardanlabs/jinja, has no limits and no step hook: it would run out of stack, memory or patience on a hostile
// template. So a template is parsed here with jinja2's grammar, checked for size and depth, and handed to the library in a
// lowered form that holds no operators, attributes, filters or text, only control flow and calls:
//
//	{{ a.b + 1 }}                    {{ __o(0, __b(1, "+", __a(2, a, "b"), 1)) }}
//	{% for x in y %}T{% endfor %}    {%+ for x in __it(0, y) +%}{{ __t(1, 1) }}{{ __x(0) }}{%+ endfor +%}
//
// The library runs statements, scopes and macros; each call lands in a run, which counts steps, bytes and depth, can be
// interrupted between any two of them, and computes what Python would. An argument that is a number names a site: the
// place in the template for error messages.
package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Input is what a template sees.
type Input struct {
	Messages            jinja.Value      // list of messages, each a dict with "role" and more
	Tools, Documents    jinja.Value      // lists; undefined is passed as none, as Hugging Face does
	AddGenerationPrompt bool             // ask for the opening of the assistant's turn
	BOS, EOS, UNK, PAD  string           // bos_token and so on; "" leaves the variable undefined
	Vars                []Var            // further variables, set last, so that they win over all others
	Now                 func() time.Time // clock of strftime_now; nil is the system's
}

// Var is a template variable.
type Var struct {
	Name  string
	Value jinja.Value
}

// Template is a compiled template. It is immutable and may be rendered by several goroutines at once.
type Template struct {
	inner *jinja.Template
	texts []jinja.Value // literal text, by the index that __x gets
	sites []site
}

// Error is a failure at a place in a template. A raise_exception of the template's own is a RaisedError instead.
type Error struct {
	Line int // line in the template, from 1; 0 where it is not known
	Msg  string
	err  error // what Msg says, where it is an error of its own
}

// Unwrap returns the error that Msg says, nil where it is not an error of its own.
func (e *Error) Unwrap() error { return e.err }

// Error gives the line in the template, where it is known, and what is wrong.
func (e *Error) Error() string {
	if e.Line == 0 {
		return "chat template: " + e.Msg
	}
	return fmt.Sprintf("chat template line %d: %s", e.Line, e.Msg)
}

// RaisedError carries the text that a template gave to raise_exception: a request it does not accept.
type RaisedError struct{ Message string }

// Error returns the template's own text.
func (e *RaisedError) Error() string { return e.Message }

// Compile parses a template. It fails on what jinja2 refuses, on statements that have no meaning in a chat template
// (include, import, extends), and beyond the limits of limits.go; errors name the line.
func Compile(src string) (t *Template, err error) {
	defer catch(&err)
	if len(src) > maxSource {
		return nil, &Error{Msg: fmt.Sprintf("%d bytes long, at most %d are accepted", len(src), maxSource)}
	}
	body, err := parse(strings.ToValidUTF8(src, "\uFFFD"))
	if err != nil {
		return nil, err
	}
	low := lower(body)
	if low.err != nil {
		return nil, low.err
	}
	inner, err := jinja.Compile(low.out.String())
	if err != nil {
		return nil, &Error{Msg: err.Error()}
	}
	return &Template{inner: inner, texts: low.texts, sites: low.sites}, nil
}

// Render executes the template. The error is a *RaisedError where the template refused the input and an *Error otherwise.
func (t *Template) Render(in Input) (string, error) {
	return t.RenderContext(context.Background(), in)
}

// RenderContext is Render that stops soon after ctx is done.
func (t *Template) RenderContext(ctx context.Context, in Input) (out string, err error) {
	defer catch(&err)
	r, err := newRun(ctx, t, in)
	if err != nil {
		return "", err
	}
	return t.inner.RenderValues(r.variables(in))
}

var errPanic = errors.New("panic")

// catch turns a panic below a library call into an error. Stack overflow is not among them: depth limits prevent it.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = &Error{Msg: fmt.Sprintf("cannot be evaluated: %v", p), err: errPanic}
	}
}

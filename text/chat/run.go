package chat

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
)

// pyErr is an error in the words of Python; the caller adds the place.
func pyErr(format string, args ...any) error { return fmt.Errorf(format, args...) }

// lowered is a function that lowered templates call. args starts after the site, if it has one.
type lowered func(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error)

// sited are the functions whose first argument is a site.
var sited map[string]lowered

// plain are the others.
var plain map[string]lowered

func init() {
	sited = map[string]lowered{
		fnOutput: loOutput, fnIter: loIter, fnUnpack: loUnpack, fnSetAttr: loSetAttr, fnCall: loCall, fnCallStar: loCallStar,
		fnMethod: loMethod, fnAttr: loAttr, fnItem: loItem, fnSlice: loSlice, fnDict: loDict, fnKeywords: loKeywords,
		fnBinary: loBinary, fnConcat: loConcat, fnCompare: loCompare, fnUnary: loUnary, fnFilter: loFilter,
		fnFilterAll: loFilterAll, fnTest: loTest,
	}
	plain = map[string]lowered{fnText: loText, fnTick: loTick, fnPush: loPush, fnList: loList, fnTuple: loTuple, fnVarargs: loVarargs, fnBig: loBig}
}

// variables are the names a template starts with: jinja2's and Hugging Face's functions, the input, and ours.
func (r *run) variables(in Input) map[string]jinja.Value {
	vars := make(map[string]jinja.Value, len(sited)+len(plain)+len(globals)+len(in.Vars)+8)
	for name, fn := range globals {
		vars[name] = jinja.NewCallable(name, func(args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
			return fn(r, args, kw)
		})
	}
	vars["messages"] = in.Messages
	vars["tools"] = orNone(in.Tools)
	vars["documents"] = orNone(in.Documents)
	vars["add_generation_prompt"] = jinja.NewBool(in.AddGenerationPrompt)
	for name, text := range map[string]string{"bos_token": in.BOS, "eos_token": in.EOS, "unk_token": in.UNK, "pad_token": in.PAD} {
		if text != "" {
			vars[name] = jinja.NewString(text)
		}
	}
	for _, v := range in.Vars {
		vars[goName(v.Name)] = v.Value
	}
	for name, fn := range sited {
		vars[name] = jinja.NewCallable(name, func(args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
			s := &r.sites[args[0].AsInt()]
			err := r.spend(0)
			var v jinja.Value
			if err == nil {
				v, err = fn(r, s, args[1:], kw)
			}
			return v, s.wrap(err)
		})
	}
	for name, fn := range plain {
		vars[name] = jinja.NewCallable(name, func(args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
			v, err := fn(r, nil, args, kw)
			if err != nil {
				err = (&site{}).wrap(err)
			}
			return v, err
		})
	}
	return vars
}

func orNone(v jinja.Value) jinja.Value {
	if v.IsUndefined() {
		return jinja.None()
	}
	return v
}

// wrap adds the place to an error that has none. The library's own errors, break and continue among them, come through
// invoke as they are.
func (s *site) wrap(err error) error {
	var placed *Error
	var raised *RaisedError
	var passed *passError
	switch {
	case err == nil, errors.As(err, &placed), errors.As(err, &raised):
		return err
	case errors.As(err, &passed):
		return passed.err
	}
	return &Error{Line: s.line, Msg: err.Error(), err: err}
}

// passError carries an error of the library through wrap unchanged.
type passError struct{ err error }

func (e *passError) Error() string { return e.err.Error() }

func loText(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	text := r.texts[args[0].AsInt()]
	return text, r.alloc(len(text.AsString()))
}

func loTick(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if err := r.spend(int(args[0].AsInt())); err != nil {
		return jinja.Value{}, err
	}
	return jinja.Value{}, r.alloc(int(args[1].AsInt()))
}

func loOutput(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	text, err := r.text(args[0])
	if err != nil {
		return jinja.Value{}, err
	}
	return jinja.NewString(text), r.alloc(len(text))
}

func loIter(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if args[0].IsList() {
		return args[0], nil
	}
	items, err := r.items(args[0])
	return list(items), err
}

func loPush(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	args[0].AsList().Append(args[1])
	return jinja.Value{}, r.alloc(2 * valueBytes)
}

func loUnpack(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	items, err := r.items(args[0])
	if err != nil {
		return jinja.Value{}, pyErr("cannot unpack: %w", err)
	}
	want := int(args[1].AsInt())
	if len(items) != want {
		return jinja.Value{}, pyErr("cannot unpack %d values into %d names", len(items), want)
	}
	return list(items), nil
}

func loSetAttr(r *run, s *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if k := r.kind(args[0]); k != kNamespace {
		return jinja.Value{}, pyErr("cannot assign attribute on %s, which is %s and not a namespace", s.name, k)
	}
	return args[1], r.alloc(2 * valueBytes)
}

func loList(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	return list(args), r.alloc(2*valueBytes + valueBytes*len(args))
}

func loTuple(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	return r.tagged(args, tagTuple), r.alloc(pairBytes + valueBytes*len(args))
}

func loVarargs(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if args[0].IsList() {
		r.mark(args[0].AsList(), tagTuple)
	}
	return args[0], r.alloc(pairBytes)
}

func loBig(_ *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	return newBig(args[0].AsString()), nil
}

// dictBytes pays for an entry of a dict.
const dictBytes = 96

func loDict(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	v := jinja.NewDict()
	for i := 0; i < len(args); i += 2 {
		key, err := r.key(args[i])
		if err != nil {
			return v, err
		}
		v.AsDict().Set(key, args[i+1])
	}
	return v, r.alloc(dictBytes * (2 + len(args)/2))
}

// loKeywords makes dict(...) and namespace(...) from keywords in order. The name may be a variable of the template's own.
func loKeywords(r *run, s *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	callee, positional, rest := args[0], args[1].AsList().Items, args[2:]
	if callee.IsCallable() && callee.AsCallable().Name == s.name {
		v, err := r.invoke(s, callee, positional, nil)
		if err != nil {
			return v, err
		}
		for i := 0; i < len(rest); i += 2 {
			v.AsDict().Set(rest[i].AsString(), rest[i+1])
		}
		return v, r.alloc(dictBytes * (len(rest) / 2))
	}
	kw := make(map[string]jinja.Value, len(rest)/2)
	for i := 0; i < len(rest); i += 2 {
		kw[goName(rest[i].AsString())] = rest[i+1]
	}
	return r.invoke(s, callee, positional, kw)
}

func loCall(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	return r.invoke(s, args[0], args[1:], kw)
}

func loCallStar(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	more, err := r.items(args[1])
	if err != nil {
		return jinja.Value{}, err
	}
	if err := r.allocTimes(len(more), valueBytes); err != nil {
		return jinja.Value{}, err
	}
	return r.invoke(s, args[0], append(append([]jinja.Value{}, args[2:]...), more...), kw)
}

func loMethod(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	object := args[0]
	if err := s.defined(object); err != nil {
		return object, err
	}
	if m, ok, err := r.method(object, s.name); ok || err != nil {
		if err != nil {
			return jinja.Value{}, err
		}
		return m.call(r, object, args[1:], kw)
	}
	callee, err := r.attr(object, s.name)
	if err != nil {
		return callee, err
	}
	if callee.IsUndefined() {
		return callee, pyErr("'%s' has no attribute '%s'", r.kind(object), s.name)
	}
	return r.invoke(s, callee, args[1:], kw)
}

// invoke calls a macro, a caller, a recursive loop or one of the functions templates start with.
func (r *run) invoke(s *site, callee jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	if callee.IsDict() {
		if loop, ok := callee.AsDict().Get("__call__"); ok && r.kind(callee) == kDict {
			callee = loop
			if len(args) == 1 {
				items, err := r.items(args[0])
				if err != nil {
					return jinja.Value{}, err
				}
				args = []jinja.Value{list(items)}
			}
		}
	}
	switch k := r.kind(callee); k {
	case kFunc:
	case kUndefined:
		return jinja.Value{}, pyErr("'%s' is undefined", s.name)
	default:
		return jinja.Value{}, pyErr("'%s' object is not callable", k)
	}
	f := callee.AsCallable()
	if f.Name == "loop.changed" { // the library compares the arguments without a limit
		for _, a := range args {
			if err := r.measure(a, 0); err != nil {
				return jinja.Value{}, err
			}
		}
	}
	if err := r.enter(s.depth); err != nil {
		return jinja.Value{}, err
	}
	v, err := f.Fn(args, kw)
	r.leave(s.depth)
	if _, builtin := globals[f.Name]; err != nil && !builtin {
		err = &passError{err}
	}
	return v, err
}

// measure spends a step for every value inside v.
func (r *run) measure(v jinja.Value, depth int) error {
	if depth > maxValueDepth {
		return errNest
	}
	if err := r.spend(0); err != nil {
		return err
	}
	switch {
	case v.IsList():
		for _, item := range v.AsList().Items {
			if err := r.measure(item, depth+1); err != nil {
				return err
			}
		}
	case v.IsDict():
		d := v.AsDict()
		for _, key := range d.Keys {
			if err := r.measure(d.Data[key], depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

package chat

import (
	"github.com/ardanlabs/jinja"
)

// global is a function that templates can call by name.
type global func(r *run, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error)

// globals are jinja2's and Hugging Face's functions. lipsum, which makes up text, is left out.
var globals = map[string]global{
	"raise_exception": raiseException,
	"strftime_now":    strftimeNow,
	"range":           rangeOf,
	"dict":            newDict,
	"namespace":       newNamespace,
	"cycler":          newCycler,
	"joiner":          newJoiner,
}

// one is the only argument of a function, given by place or by name.
func one(fn string, args []jinja.Value, kw map[string]jinja.Value, name string) (jinja.Value, error) {
	if v, ok := kw[name]; ok && len(args) == 0 && len(kw) == 1 {
		return v, nil
	}
	if len(args) != 1 || len(kw) > 0 {
		return jinja.Value{}, pyErr("%s() takes one argument, %s", fn, name)
	}
	return args[0], nil
}

func raiseException(r *run, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	v, err := one("raise_exception", args, kw, "message")
	if err != nil {
		return v, err
	}
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	return v, &RaisedError{Message: text}
}

func strftimeNow(r *run, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	v, err := one("strftime_now", args, kw, "format")
	if err != nil {
		return v, err
	}
	format, err := r.textArg(v, "strftime_now() argument")
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(format), 16); err != nil {
		return v, err
	}
	return jinja.NewString(strftime(r.now(), format)), nil
}

func rangeOf(r *run, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) < 1 || len(args) > 3 {
		return jinja.Value{}, pyErr("range expected 1 to 3 arguments, got %d", len(args))
	}
	bounds := [3]int64{0, 0, 1}
	for i, a := range args {
		n, ok := integer(a)
		if !ok {
			return a, pyErr("'%s' object cannot be interpreted as an integer", r.kind(a))
		}
		bounds[i] = n
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return args[2], pyErr("range() arg 3 must not be zero")
	}
	span, stride := uint64(stop)-uint64(start), uint64(step)
	if step < 0 {
		span, stride = uint64(start)-uint64(stop), -uint64(step)
	}
	n := uint64(0)
	if (step > 0) == (start < stop) && start != stop {
		n = (span-1)/stride + 1
	}
	if n > maxRangeItems {
		return args[0], pyErr("range too big: it has %d items, at most %d are allowed", n, maxRangeItems)
	}
	if err := r.allocTimes(int(n)+2, valueBytes+8); err != nil {
		return args[0], err
	}
	items := make([]jinja.Value, n)
	for i := range items {
		items[i] = jinja.NewInt(start + int64(i)*step)
	}
	return list(items), nil
}

// newDict is dict(mapping or pairs, **keywords).
func newDict(r *run, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	d := jinja.NewDict()
	if len(args) > 1 {
		return d, pyErr("dict expected at most 1 argument, got %d", len(args))
	}
	if err := r.allocTimes(len(kw)+2, dictBytes); err != nil {
		return d, err
	}
	if len(args) == 1 {
		if err := r.fillDict(d.AsDict(), args[0]); err != nil {
			return d, err
		}
	}
	for name, v := range kw {
		d.AsDict().Set(name, v)
	}
	return d, nil
}

func (r *run) fillDict(d *jinja.Dict, from jinja.Value) error {
	if k := r.kind(from); k == kDict || k == kNamespace {
		src := from.AsDict()
		if err := r.allocTimes(len(src.Keys), dictBytes); err != nil {
			return err
		}
		for _, key := range src.Keys {
			d.Set(key, src.Data[key])
		}
		return nil
	}
	pairs, err := r.items(from)
	if err != nil {
		return err
	}
	for i, p := range pairs {
		pair, err := r.items(p)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return pyErr("dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
		}
		key, err := r.key(pair[0])
		if err != nil {
			return err
		}
		if err := r.alloc(dictBytes); err != nil {
			return err
		}
		d.Set(key, pair[1])
	}
	return nil
}

func newNamespace(r *run, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	ns, err := newDict(r, args, kw)
	r.mark(ns.AsDict(), tagNamespace)
	return ns, err
}

func newCycler(r *run, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Value{}, pyErr("at least one item has to be provided")
	}
	c := jinja.NewDict()
	d := c.AsDict()
	at := 0
	d.Set("current", args[0])
	d.Set("next", jinja.NewCallable("cycler.next", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
		v := args[at]
		at = (at + 1) % len(args)
		d.Set("current", args[at])
		return v, nil
	}))
	d.Set("reset", jinja.NewCallable("cycler.reset", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
		at = 0
		d.Set("current", args[0])
		return jinja.None(), nil
	}))
	r.mark(d, tagNamespace)
	return c, r.alloc(8 * dictBytes)
}

func newJoiner(r *run, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	sep := jinja.NewString(", ")
	if len(args)+len(kw) > 0 {
		var err error
		if sep, err = one("joiner", args, kw, "sep"); err != nil {
			return sep, err
		}
	}
	used := false
	return jinja.NewCallable("joiner", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
		if used {
			return sep, nil
		}
		used = true
		return jinja.NewString(""), nil
	}), r.alloc(2 * dictBytes)
}

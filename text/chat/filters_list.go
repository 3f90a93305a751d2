package chat

import (
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// end is the first (0) or last (-1) item.
func (r *run) end(v jinja.Value, at int64) (jinja.Value, error) {
	if isText(r.kind(v)) {
		return r.charAt(v, at)
	}
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	return index(items, at), nil
}

func filterAttr(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	name, err := r.textArg(a[0], "name")
	if err != nil {
		return v, err
	}
	if _, isMethod, _ := r.method(v, name); r.kind(v) == kDict && !isMethod && !v.AsDict().Has("__call__") {
		return jinja.Undefined(), nil
	}
	return r.attr(v, name)
}

func filterList(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(items)+2, valueBytes); err != nil {
		return v, err
	}
	return list(append([]jinja.Value{}, items...)), nil
}

func filterItems(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	switch r.kind(v) {
	case kUndefined:
		return list(nil), nil
	case kDict:
		return dictItems(r, v, nil)
	}
	return v, pyErr("Can only get item pairs from a mapping.")
}

func filterReverse(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(items)+2, valueBytes); err != nil {
		return v, err
	}
	out := make([]jinja.Value, len(items))
	var text strings.Builder
	for i := range items {
		out[i] = items[len(items)-1-i]
		if isText(r.kind(v)) {
			text.WriteString(out[i].AsString())
		}
	}
	if isText(r.kind(v)) {
		return jinja.NewString(text.String()), nil
	}
	return list(out), nil
}

// attribute follows a path of attributes and indices, as attribute="a.0.b" asks for. What is missing becomes fallback,
// unless that is undefined.
func (r *run) attribute(v, path, fallback jinja.Value) (jinja.Value, error) {
	if !given(path) {
		return v, nil
	}
	name, ok := str(path)
	if !ok {
		return r.step(v, path, fallback)
	}
	for part := range strings.SplitSeq(name, ".") {
		key := jinja.NewString(part)
		if i, err := strconv.ParseInt(part, 10, 64); err == nil && i >= 0 && part[0] != '+' {
			key = jinja.NewInt(i)
		}
		var err error
		if v, err = r.step(v, key, fallback); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (r *run) step(v, key, fallback jinja.Value) (jinja.Value, error) {
	if err := r.spend(0); err != nil {
		return v, err
	}
	v, err := r.item(v, key)
	if v.IsUndefined() && given(fallback) {
		v = fallback
	}
	return v, err
}

// extremum makes max (1) and min (-1).
func extremum(sign int) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
		items, err := r.items(v)
		if err != nil || len(items) == 0 {
			return jinja.Undefined(), err
		}
		keys, err := r.keys(items, a[1], a[0], jinja.Undefined())
		if err != nil {
			return v, err
		}
		best := 0
		for i := range items {
			order, ordered, err := r.order("<", keys[i], keys[best], 0)
			if err != nil {
				return v, err
			}
			if ordered && order*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}
}

func filterSum(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	sum := a[1]
	if sum.IsUndefined() {
		sum = jinja.NewInt(0)
	}
	for _, item := range items {
		if item, err = r.attribute(item, a[0], jinja.Undefined()); err != nil {
			return v, err
		}
		if isText(r.kind(sum)) {
			return v, pyErr("sum() can't sum strings")
		}
		if sum, err = r.arith("+", sum, item); err != nil {
			return v, err
		}
		if err = r.spend(0); err != nil {
			return v, err
		}
	}
	return sum, nil
}

func filterJoin(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	sep, err := r.text(a[0])
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(items), 16); err != nil {
		return v, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if item, err = r.attribute(item, a[1], jinja.Undefined()); err != nil {
			return v, err
		}
		if parts[i], err = r.text(item); err != nil {
			return v, err
		}
		if err = r.spend(len(parts[i]) / 32); err != nil {
			return v, err
		}
	}
	return r.joinTexts(parts, sep)
}

// filterMap is map(attribute=..., default=...) or map("filter", args...).
func filterMap(r *run, v jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(items)+2, valueBytes); err != nil {
		return v, err
	}
	path, byAttribute := kw["attribute"]
	byAttribute = byAttribute && len(args) == 0
	if !byAttribute && len(args) == 0 {
		return v, pyErr("requires a filter argument")
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		if byAttribute {
			out[i], err = r.attribute(item, path, kw["default"])
		} else {
			var name string
			if name, err = r.textArg(args[0], "filter name"); err == nil {
				out[i], err = r.filter(name, item, args[1:], kw)
			}
		}
		if err == nil {
			err = r.spend(1)
		}
		if err != nil {
			return v, err
		}
	}
	return list(out), nil
}

// selector makes select, reject, selectattr and rejectattr.
func selector(keep, byAttribute bool) func(*run, jinja.Value, []jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return func(r *run, v jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
		if !truthy(v) {
			return list(nil), nil
		}
		items, err := r.items(v)
		if err != nil {
			return v, err
		}
		path := jinja.None()
		if byAttribute {
			if len(args) == 0 {
				return v, pyErr("missing parameter for attribute name")
			}
			path, args = args[0], args[1:]
		}
		if err := r.allocTimes(len(items)+2, valueBytes); err != nil {
			return v, err
		}
		var out []jinja.Value
		for _, item := range items {
			tested, err := r.attribute(item, path, jinja.Undefined())
			if err == nil {
				tested, err = r.selects(tested, args, kw)
			}
			if err != nil {
				return v, err
			}
			if truthy(tested) == keep {
				out = append(out, item)
			}
		}
		return list(out), nil
	}
}

// selects applies the test that args[0] names, or truth.
func (r *run) selects(v jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	if err := r.spend(1); err != nil || len(args) == 0 {
		return v, err
	}
	name, err := r.textArg(args[0], "test name")
	if err != nil {
		return v, err
	}
	return r.test(name, v, args[1:], kw)
}

func filterBatch(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	n, err := r.intArg(a[0], "linecount", 0)
	if err != nil {
		return v, err
	}
	if n < 1 {
		return v, pyErr("linecount is %d, at least 1 is right", n)
	}
	if err := r.allocTimes(len(items)+2, 4*valueBytes); err != nil {
		return v, err
	}
	var out []jinja.Value
	for i := 0; i < len(items); i += n {
		row := append([]jinja.Value{}, items[i:min(i+n, len(items))]...)
		if given(a[1]) {
			if err := r.allocTimes(n-len(row), 2*valueBytes); err != nil {
				return v, err
			}
			for len(row) < n {
				row = append(row, a[1])
			}
		}
		out = append(out, list(row))
	}
	return list(out), nil
}

func filterSlice(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	n, err := r.intArg(a[0], "slices", 0)
	if err != nil {
		return v, err
	}
	if n < 1 {
		return v, pyErr("slices is %d, at least 1 is right", n)
	}
	if err := r.allocTimes(n, 4*valueBytes); err != nil {
		return v, err
	}
	if err := r.allocTimes(len(items), valueBytes); err != nil {
		return v, err
	}
	size, extra := len(items)/n, len(items)%n
	out := make([]jinja.Value, n)
	start := 0
	for i := range out {
		end := start + size
		if i < extra {
			end++
		}
		row := append([]jinja.Value{}, items[start:end]...)
		if given(a[1]) && i >= extra {
			row = append(row, a[1])
		}
		out[i], start = list(row), end
	}
	return list(out), nil
}

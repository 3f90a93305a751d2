package chat

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"

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

// foldCase is the key that a case-insensitive filter compares.
func (r *run) foldCase(v, caseSensitive jinja.Value) (jinja.Value, error) {
	s, ok := str(v)
	if !ok || truthy(caseSensitive) {
		return v, nil
	}
	return jinja.NewString(lowerText(s)), r.allocTimes(len(s), 3)
}

// keys are what a filter with an attribute and case_sensitive compares; several attributes parted by commas make a list.
func (r *run) keys(items []jinja.Value, attribute, caseSensitive, fallback jinja.Value) ([]jinja.Value, error) {
	if err := r.allocTimes(len(items), valueBytes); err != nil {
		return nil, err
	}
	paths := []jinja.Value{attribute}
	if s, ok := str(attribute); ok && strings.Contains(s, ",") {
		paths = nil
		for p := range strings.SplitSeq(s, ",") {
			paths = append(paths, jinja.NewString(p))
		}
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		parts := make([]jinja.Value, len(paths))
		if err := r.allocTimes(len(paths), valueBytes); err != nil {
			return nil, err
		}
		for j, path := range paths {
			v, err := r.attribute(item, path, fallback)
			if err != nil {
				return nil, err
			}
			if parts[j], err = r.foldCase(v, caseSensitive); err != nil {
				return nil, err
			}
		}
		if out[i] = parts[0]; len(parts) > 1 {
			out[i] = list(parts)
		}
	}
	return out, nil
}

func filterSort(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	keys, err := r.keys(items, a[2], a[1], jinja.Undefined())
	if err != nil {
		return v, err
	}
	sorted, err := r.sorted(items, keys, truthy(a[0]))
	return list(sorted), err
}

func filterDictsort(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	if r.kind(v) != kDict {
		return v, pyErr("a mapping is required, not %s", r.kind(v))
	}
	by := "key"
	if given(a[1]) {
		by, _ = str(a[1])
	}
	at := map[string]int64{"key": 0, "value": 1}
	place, ok := at[by]
	if !ok {
		return v, pyErr("by must be \"key\" or \"value\"")
	}
	pairs, err := dictItems(r, v, nil)
	if err != nil {
		return v, err
	}
	items := pairs.AsList().Items
	keys, err := r.keys(items, jinja.NewInt(place), a[0], jinja.Undefined())
	if err != nil {
		return v, err
	}
	sorted, err := r.sorted(items, keys, truthy(a[2]))
	return list(sorted), err
}

func filterUnique(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	keys, err := r.keys(items, a[1], a[0], jinja.Undefined())
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(items), dictBytes); err != nil {
		return v, err
	}
	seen := make(map[string]bool, len(items))
	var out []jinja.Value
	for i, key := range keys {
		name, err := r.key(key)
		if err != nil {
			return v, err
		}
		if !seen[name] {
			seen[name] = true
			out = append(out, items[i])
		}
	}
	return list(out), nil
}

func filterGroupby(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	items, err := r.items(v)
	if err != nil {
		return v, err
	}
	keys, err := r.keys(items, a[0], a[2], a[1])
	if err != nil {
		return v, err
	}
	places := make([]jinja.Value, len(items))
	for i := range places {
		places[i] = jinja.NewInt(int64(i))
	}
	order, err := r.sorted(places, keys, false)
	if err != nil {
		return v, err
	}
	var groups []jinja.Value
	var group *jinja.List
	for i, place := range order {
		at := place.AsInt()
		same := false
		if i > 0 {
			if same, err = r.equal(keys[order[i-1].AsInt()], keys[at], 0); err != nil {
				return v, err
			}
		}
		if err := r.alloc(pairBytes); err != nil {
			return v, err
		}
		if !same {
			name, err := r.attribute(items[at], a[0], a[1])
			if err != nil {
				return v, err
			}
			members := list(nil)
			group = members.AsList()
			groups = append(groups, r.tagged([]jinja.Value{name, members}, tagTuple))
		}
		group.Append(items[at])
	}
	return list(groups), nil
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

func filterAbs(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	f, ok := number(v)
	switch {
	case !ok:
		return v, pyErr("bad operand type for abs(): '%s'", r.kind(v))
	case v.IsFloat():
		return jinja.NewFloat(math.Abs(f)), nil
	}
	return bigValue(toBig(v).Abs(toBig(v)))
}

func filterInt(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	if s, ok := str(v); ok {
		base, err := r.intArg(a[1], "base", 10)
		if err != nil {
			return v, err
		}
		if err := r.spend(len(s) / 32); err != nil {
			return v, err
		}
		if i, ok := parseInteger(s, base); ok {
			return i, nil
		}
	} else if isNumber(r.kind(v)) && !v.IsFloat() {
		return bigValue(toBig(v))
	}
	if f, ok := toFloat(v); ok {
		if z := floatBig(f); z != nil {
			return bigValue(z)
		}
	}
	if a[0].IsUndefined() {
		return jinja.NewInt(0), nil
	}
	return a[0], nil
}

// toFloat is Python's float(v) of numbers and strings.
func toFloat(v jinja.Value) (float64, bool) {
	s, ok := str(v)
	if !ok {
		return number(v)
	}
	s = strings.TrimFunc(s, isSpace)
	if len(s) > 1000 || strings.ContainsAny(s, "xXpP_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterFloat(_ *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	if f, ok := toFloat(v); ok {
		return jinja.NewFloat(f), nil
	}
	if a[0].IsUndefined() {
		return jinja.NewFloat(0), nil
	}
	return a[0], nil
}

func filterRound(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	f, ok := number(v)
	if !ok {
		return v, pyErr("type %s doesn't define __round__ method", r.kind(v))
	}
	digits, err := r.intArg(a[0], "precision", 0)
	if err != nil {
		return v, err
	}
	method := "common"
	if given(a[1]) {
		method, _ = str(a[1])
	}
	scale := math.Pow(10, float64(digits))
	switch method {
	case "ceil":
		return jinja.NewFloat(math.Ceil(f*scale) / scale), nil
	case "floor":
		return jinja.NewFloat(math.Floor(f*scale) / scale), nil
	case "common":
	default:
		return v, pyErr("method must be common, ceil or floor")
	}
	switch {
	case !v.IsFloat() && digits >= 0:
		return bigValue(toBig(v))
	case digits > 323 || math.IsNaN(f) || math.IsInf(f, 0):
		return v, nil
	case digits < 0:
		f = math.RoundToEven(f*scale) / scale
		if !v.IsFloat() {
			return bigValue(floatBig(f))
		}
		return jinja.NewFloat(f), nil
	}
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return jinja.NewFloat(f), nil
}

func filterWordcount(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	n, inWord := int64(0), false
	for _, c := range text {
		isWord := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
		if isWord && !inWord {
			n++
		}
		inWord = isWord
	}
	return jinja.NewInt(n), r.spend(len(text) / 32)
}

func filterURLEncode(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	quoted := func(v jinja.Value, query bool) (string, error) {
		text, err := r.text(v)
		if err != nil {
			return "", err
		}
		if err := r.allocTimes(len(text), 3); err != nil {
			return "", err
		}
		text = strings.ReplaceAll(url.QueryEscape(text), "%7E", "~")
		if !query {
			text = strings.ReplaceAll(strings.ReplaceAll(text, "+", "%20"), "%2F", "/")
		}
		return text, nil
	}
	k := r.kind(v)
	if k != kDict && k != kList && k != kTuple {
		text, err := quoted(v, false)
		return jinja.NewString(text), err
	}
	pairs := v
	if k == kDict {
		var err error
		if pairs, err = dictItems(r, v, nil); err != nil {
			return v, err
		}
	}
	var parts []string
	for _, p := range pairs.AsList().Items {
		pair, err := r.items(p)
		if err != nil || len(pair) != 2 {
			return v, pyErr("pairs are required")
		}
		name, err := quoted(pair[0], true)
		if err != nil {
			return v, err
		}
		value, err := quoted(pair[1], true)
		if err != nil {
			return v, err
		}
		parts = append(parts, name+"="+value)
	}
	return r.joinTexts(parts, "&")
}

package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// builtin is a method, filter or test: Python's parameters and what it does with them.
type builtin struct {
	min    int      // arguments that must be given
	params []string // a last "*" takes any number of further ones
	fn     func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error)
	// raw takes the arguments as they come, for the few that pass them on.
	raw func(r *run, self jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error)
}

// call binds arguments to parameters; one that is not given is undefined.
func (b *builtin) call(r *run, self jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	if b.raw != nil {
		return b.raw(r, self, args, kw)
	}
	n := len(b.params)
	variadic := n > 0 && b.params[n-1] == "*"
	if len(args) > n && !variadic {
		return self, pyErr("takes at most %d arguments, got %d", n, len(args))
	}
	bound := append(make([]jinja.Value, 0, max(n, len(args))), args...)
	for len(bound) < n && !variadic {
		bound = append(bound, jinja.Undefined())
	}
	named := 0
	for i := len(args); i < n; i++ {
		if v, ok := kw[b.params[i]]; ok {
			bound[i] = v
			named++
		}
	}
	if named < len(kw) {
		for name := range kw {
			return self, pyErr("got an unexpected or repeated argument '%s'", name)
		}
	}
	if len(args)+named < b.min {
		return self, pyErr("takes at least %d arguments, got %d", b.min, len(args)+named)
	}
	return b.fn(r, self, bound)
}

// given reports whether an optional argument has a value other than none.
func given(v jinja.Value) bool { return !v.IsUndefined() && !v.IsNone() }

// method returns the method of a value's type.
func (r *run) method(v jinja.Value, name string) (*builtin, bool, error) {
	var table map[string]*builtin
	unsafe := ""
	k := r.kind(v)
	switch k {
	case kStr, kMarkup:
		table = strMethods
	case kList:
		table, unsafe = listMethods, " append clear pop reverse insert sort extend remove "
	case kTuple:
		table = listMethods
	case kDict:
		table, unsafe = dictMethods, " clear pop popitem setdefault update "
	default:
		return nil, false, nil
	}
	if m, ok := table[name]; ok {
		return m, true, nil
	}
	if strings.Contains(unsafe, " "+name+" ") && !(k == kDict && v.AsDict().Has("__call__")) {
		return nil, false, pyErr("access to attribute '%s' of '%s' object is unsafe", name, k)
	}
	return nil, false, nil
}

// defined fails when the object of a site is undefined.
func (s *site) defined(v jinja.Value) error {
	if v.IsUndefined() {
		return pyErr("%s of '%s', which is undefined", s.name, s.of)
	}
	return nil
}

func loAttr(r *run, s *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if err := s.defined(args[0]); err != nil {
		return args[0], err
	}
	return r.attr(args[0], s.name)
}

// attr is jinja2's object.name: a method of the type, else an entry of a dict. What does not exist is undefined; so is an
// attribute of none, but one of undefined is an error.
func (r *run) attr(v jinja.Value, name string) (jinja.Value, error) {
	m, ok, err := r.method(v, name)
	if err != nil {
		return v, err
	}
	if ok {
		return jinja.NewCallable(name, func(args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
			return m.call(r, v, args, kw)
		}), r.alloc(2 * dictBytes)
	}
	switch r.kind(v) {
	case kUndefined:
		return v, pyErr("'%s' is read from an undefined value", name)
	case kDict, kNamespace:
		value, _ := v.AsDict().Get(name)
		return value, nil
	}
	return jinja.Undefined(), nil
}

func loItem(r *run, s *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if err := s.defined(args[0]); err != nil {
		return args[0], err
	}
	return r.item(args[0], args[1])
}

// item is jinja2's object[key]. A missing entry is undefined.
func (r *run) item(v, key jinja.Value) (jinja.Value, error) {
	at, isInt := integer(key)
	switch r.kind(v) {
	case kUndefined:
		return v, pyErr("an item is read from an undefined value")
	case kDict:
		name, err := r.key(key)
		if err != nil {
			return jinja.Undefined(), nil
		}
		if value, ok := v.AsDict().Get(name); ok {
			return value, nil
		}
	case kList, kTuple:
		if isInt {
			return index(v.AsList().Items, at), nil
		}
	case kStr, kMarkup:
		if isInt {
			return r.charAt(v, at)
		}
	}
	if name, ok := str(key); ok {
		return r.attr(v, name)
	}
	return jinja.Undefined(), nil
}

func index(items []jinja.Value, at int64) jinja.Value {
	if at < 0 {
		at += int64(len(items))
	}
	if at < 0 || at >= int64(len(items)) {
		return jinja.Undefined()
	}
	return items[at]
}

func (r *run) charAt(v jinja.Value, at int64) (jinja.Value, error) {
	s, _ := str(v)
	if err := r.spend(len(s) / 32); err != nil {
		return v, err
	}
	if at < 0 {
		at += int64(utf8.RuneCountInString(s))
	}
	if at < 0 || at >= int64(len(s)) {
		return jinja.Undefined(), nil
	}
	for i, c := range s {
		if at == 0 {
			return jinja.NewString(s[i : i+utf8.RuneLen(c)]), nil
		}
		at--
	}
	return jinja.Undefined(), nil
}

// loSlice is object[start:stop:step].
func loSlice(r *run, s *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	v := args[0]
	if err := s.defined(v); err != nil {
		return v, err
	}
	k := r.kind(v)
	switch k {
	case kStr, kMarkup, kList, kTuple:
	default:
		return jinja.Undefined(), nil
	}
	for _, bound := range args[1:] {
		if _, ok := integer(bound); !ok && !bound.IsNone() {
			return v, pyErr("slice indices must be integers or None, not %s", r.kind(bound))
		}
	}
	if isText(k) {
		return r.sliceText(v, args[1:])
	}
	at, err := sliceIndices(args[1:], len(v.AsList().Items))
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(at.count+2, valueBytes); err != nil {
		return v, err
	}
	items := make([]jinja.Value, at.count)
	for i := range items {
		items[i] = v.AsList().Items[at.start+i*at.step]
	}
	if k == kTuple {
		return r.tagged(items, tagTuple), r.alloc(pairBytes)
	}
	return list(items), nil
}

func (r *run) sliceText(v jinja.Value, bounds []jinja.Value) (jinja.Value, error) {
	s, _ := str(v)
	if err := r.spend(len(s) / 32); err != nil {
		return v, err
	}
	n := utf8.RuneCountInString(s)
	at, err := sliceIndices(bounds, n)
	if err != nil {
		return v, err
	}
	var out string
	switch {
	case at.count == 0:
	case at.step == 1:
		from := runeOffset(s, at.start, n)
		out = s[from : from+runeOffset(s[from:], at.count, n-at.start)]
	default:
		if err := r.allocTimes(n+at.count, 4); err != nil {
			return v, err
		}
		runes := []rune(s)
		picked := make([]rune, at.count)
		for i := range picked {
			picked[i] = runes[at.start+i*at.step]
		}
		out = string(picked)
	}
	if r.kind(v) == kMarkup {
		return newMarkup(out), r.alloc(len(out))
	}
	return jinja.NewString(out), nil
}

// runeOffset is the byte offset of rune n of s, which has count runes.
func runeOffset(s string, n, count int) int {
	if count == len(s) {
		return n
	}
	if n == count {
		return len(s)
	}
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// sliceRange is the items start, start+step ... that a slice selects.
type sliceRange struct{ start, step, count int }

// sliceIndices is Python's slice.indices for a sequence of n items.
func sliceIndices(bounds []jinja.Value, n int) (sliceRange, error) {
	step := int64(1)
	if v, ok := integer(bounds[2]); ok {
		step = v
	}
	if step == 0 {
		return sliceRange{}, pyErr("slice step cannot be zero")
	}
	low, high := int64(0), int64(n)
	start, stop := low, high
	if step < 0 {
		low, high = -1, int64(n)-1
		start, stop = high, low
	}
	clamp := func(v int64) int64 {
		if v < 0 {
			v += int64(n)
		}
		return min(max(v, low), high)
	}
	if v, ok := integer(bounds[0]); ok {
		start = clamp(v)
	}
	if v, ok := integer(bounds[1]); ok {
		stop = clamp(v)
	}
	count := int64(0)
	switch {
	case step > 0 && start < stop:
		count = (stop-start-1)/step + 1
	case step < 0 && start > stop:
		count = (start-stop-1)/-max(step, -int64(n)-1) + 1
	}
	return sliceRange{int(start), int(step), int(count)}, nil
}

// items is what iterating over a value gives.
func (r *run) items(v jinja.Value) ([]jinja.Value, error) {
	switch k := r.kind(v); k {
	case kList, kTuple:
		return v.AsList().Items, nil
	case kUndefined:
		return nil, nil
	case kDict:
		keys := v.AsDict().Keys
		if err := r.allocTimes(len(keys), valueBytes+16); err != nil {
			return nil, err
		}
		out := make([]jinja.Value, len(keys))
		for i, key := range keys {
			out[i] = keyValue(key)
		}
		return out, nil
	case kStr, kMarkup:
		s, _ := str(v)
		if err := r.allocTimes(len(s), valueBytes+16); err != nil {
			return nil, err
		}
		out := make([]jinja.Value, 0, len(s))
		for i, c := range s {
			out = append(out, jinja.NewString(s[i:i+max(utf8.RuneLen(c), 1)]))
		}
		return out, nil
	default:
		return nil, pyErr("'%s' object is not iterable", k)
	}
}

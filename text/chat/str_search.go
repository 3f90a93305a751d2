package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

func strJoin(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	sep, _ := str(self)
	items, err := r.items(a[0])
	if err != nil {
		return self, err
	}
	parts := make([]string, 0, min(len(items), 1024))
	for i, item := range items {
		s, ok := str(item)
		if !ok {
			return self, pyErr("sequence item %d: expected str instance, %s found", i, r.kind(item))
		}
		parts = append(parts, s)
	}
	return r.joinTexts(parts, sep)
}

// joinTexts joins strings with a separator and pays for the result first.
func (r *run) joinTexts(parts []string, sep string) (jinja.Value, error) {
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	if err := r.alloc(total + 16*len(parts)); err != nil {
		return jinja.Value{}, err
	}
	if err := r.allocTimes(len(parts), len(sep)); err != nil {
		return jinja.Value{}, err
	}
	return jinja.NewString(strings.Join(parts, sep)), nil
}

func strReplace(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	s, _ := str(self)
	from, err := r.textArg(a[0], "replace() argument 1")
	if err != nil {
		return self, err
	}
	to, err := r.textArg(a[1], "replace() argument 2")
	if err != nil {
		return self, err
	}
	count, err := r.intArg(a[2], "count", -1)
	if err != nil {
		return self, err
	}
	return r.replaceText(s, from, to, count)
}

func (r *run) replaceText(s, from, to string, count int) (jinja.Value, error) {
	n := strings.Count(s, from)
	if count >= 0 {
		n = min(n, count)
	}
	if err := r.alloc(len(s)); err != nil {
		return jinja.Value{}, err
	}
	if err := r.allocTimes(n, len(to)); err != nil {
		return jinja.Value{}, err
	}
	return jinja.NewString(strings.Replace(s, from, to, count)), nil
}

// window cuts s to [start:end] in characters, as the methods with these arguments do. ok is false when start lies beyond
// the end; offset is where the window starts, in characters.
func (r *run) window(s string, start, end jinja.Value) (part string, offset int, ok bool, err error) {
	if !given(start) && !given(end) {
		return s, 0, true, nil
	}
	if err := r.spend(len(s) / 32); err != nil {
		return "", 0, false, err
	}
	n := utf8.RuneCountInString(s)
	from, to := 0, n
	for _, b := range []struct {
		v  jinja.Value
		at *int
	}{{start, &from}, {end, &to}} {
		if !given(b.v) {
			continue
		}
		i, isInt := integer(b.v)
		if !isInt {
			return "", 0, false, pyErr("slice indices must be integers or None, not %s", r.kind(b.v))
		}
		if i < 0 {
			i = max(i+int64(n), 0)
		}
		*b.at = int(min(i, int64(n)+1))
	}
	to = min(to, n)
	if from > to {
		return "", 0, false, nil
	}
	at := runeOffset(s, from, n)
	return s[at : at+runeOffset(s[at:], to-from, n-from)], from, true, nil
}

// affix makes startswith and endswith, which take a string or a tuple of strings.
func affix(has func(s, part string) bool) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		s, _, ok, err := r.window(s, a[1], a[2])
		if err != nil {
			return self, err
		}
		options := []jinja.Value{a[0]}
		if r.kind(a[0]) == kTuple {
			options = a[0].AsList().Items
		}
		for _, o := range options {
			part, err := r.textArg(o, "prefix or suffix")
			if err != nil {
				return self, err
			}
			if ok && has(s, part) {
				return jinja.NewBool(true), nil
			}
			if err := r.spend(len(part) / 32); err != nil {
				return self, err
			}
		}
		return jinja.NewBool(false), nil
	}
}

// finder makes find, rfind, index and rindex.
func finder(find func(s, part string) int, must bool) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		part, err := r.textArg(a[0], "substring")
		if err != nil {
			return self, err
		}
		s, offset, ok, err := r.window(s, a[1], a[2])
		if err != nil {
			return self, err
		}
		at := -1
		if ok {
			at = find(s, part)
		}
		switch {
		case at >= 0:
			return jinja.NewInt(int64(offset + utf8.RuneCountInString(s[:at]))), r.spend(len(s) / 32)
		case must:
			return self, pyErr("substring not found")
		}
		return jinja.NewInt(-1), r.spend(len(s) / 32)
	}
}

func strCount(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	s, _ := str(self)
	part, err := r.textArg(a[0], "substring")
	if err != nil {
		return self, err
	}
	s, _, ok, err := r.window(s, a[1], a[2])
	if err != nil || !ok {
		return jinja.NewInt(0), err
	}
	return jinja.NewInt(int64(strings.Count(s, part))), r.spend(len(s) / 32)
}

func remover(remove func(s, part string) string) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		part, err := r.textArg(a[0], "prefix or suffix")
		return jinja.NewString(remove(s, part)), err
	}
}

// pad makes center, ljust and rjust; left is how much of the padding goes before the text.
func pad(left func(n, width int) int) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		s, _ := str(self)
		width, err := r.intArg(a[0], "width", 0)
		if err != nil {
			return self, err
		}
		fill := " "
		if given(a[1]) {
			if fill, err = r.textArg(a[1], "fill character"); err != nil {
				return self, err
			}
		}
		if utf8.RuneCountInString(fill) != 1 {
			return self, pyErr("the fill character must be exactly one character long")
		}
		n := width - utf8.RuneCountInString(s)
		if n <= 0 {
			return jinja.NewString(s), r.spend(len(s) / 32)
		}
		if err := r.allocTimes(n, len(fill)); err != nil {
			return self, err
		}
		if err := r.alloc(len(s)); err != nil {
			return self, err
		}
		before := left(n, width)
		return jinja.NewString(strings.Repeat(fill, before) + s + strings.Repeat(fill, n-before)), nil
	}
}

func strZfill(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
	s, _ := str(self)
	width, err := r.intArg(a[0], "width", 0)
	if err != nil {
		return self, err
	}
	n := max(width-utf8.RuneCountInString(s), 0)
	if err := r.alloc(n); err != nil {
		return self, err
	}
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	return jinja.NewString(sign + strings.Repeat("0", n) + s), r.alloc(len(s) + n)
}

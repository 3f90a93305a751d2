package chat

import (
	"math/big"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

var tests map[string]*builtin

func init() {
	is := func(kinds ...kind) *builtin {
		return &builtin{fn: func(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
			k := r.kind(v)
			for _, want := range kinds {
				if k == want {
					return jinja.NewBool(true), nil
				}
			}
			return jinja.NewBool(false), nil
		}}
	}
	compare := func(op string) *builtin {
		return &builtin{min: 1, params: []string{"other"}, fn: func(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
			holds, err := r.compare(op, v, a[0])
			return jinja.NewBool(holds), err
		}}
	}
	literal := func(want bool) *builtin {
		return &builtin{fn: func(_ *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
			return jinja.NewBool(v.IsBool() && v.AsBool() == want), nil
		}}
	}
	named := func(has func(name string) bool) *builtin {
		return &builtin{fn: func(_ *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
			name, ok := str(v)
			return jinja.NewBool(ok && has(name)), nil
		}}
	}
	tests = map[string]*builtin{
		"defined": {fn: func(_ *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
			return jinja.NewBool(!v.IsUndefined()), nil
		}},
		"undefined": is(kUndefined), "none": is(kNone), "boolean": is(kBool), "integer": is(kInt, kBig), "float": is(kFloat),
		"number": is(kBool, kInt, kBig, kFloat), "string": is(kStr, kMarkup), "mapping": is(kDict), "escaped": is(kMarkup),
		"sequence": is(kStr, kMarkup, kList, kTuple, kDict, kUndefined), "iterable": is(kStr, kMarkup, kList, kTuple, kDict, kUndefined),
		"callable": is(kFunc, kUndefined), "true": literal(true), "false": literal(false),
		"==": compare("=="), "eq": compare("=="), "equalto": compare("=="), "!=": compare("!="), "ne": compare("!="),
		">": compare(">"), "gt": compare(">"), "greaterthan": compare(">"), ">=": compare(">="), "ge": compare(">="),
		"<": compare("<"), "lt": compare("<"), "lessthan": compare("<"), "<=": compare("<="), "le": compare("<="),
		"in": compare("in"), "odd": {fn: remainder(1)}, "even": {fn: remainder(0)},
		"divisibleby": {min: 1, params: []string{"num"}, fn: isDivisible},
		"sameas":      {min: 1, params: []string{"other"}, fn: isSame},
		"upper":       {fn: isCase(unicode.IsUpper, unicode.IsLower)}, "lower": {fn: isCase(unicode.IsLower, unicode.IsUpper)},
		"filter": named(func(name string) bool { return filters[name] != nil }),
		"test":   named(func(name string) bool { return tests[name] != nil }),
	}
}

func loTest(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	return r.test(s.name, args[0], args[1:], kw)
}

func (r *run) test(name string, v jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	t, ok := tests[name]
	if !ok {
		return v, pyErr("no test named '%s'", name)
	}
	return t.call(r, v, args, kw)
}

// remainder makes odd and even.
func remainder(want int64) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	return func(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		rem, err := r.arith("%", v, jinja.NewInt(2))
		if err != nil {
			return v, err
		}
		f, _ := number(rem)
		return jinja.NewBool(f == float64(want)), nil
	}
}

func isDivisible(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	rem, err := r.arith("%", v, a[0])
	if err != nil {
		return v, err
	}
	same, err := r.equal(rem, jinja.NewInt(0), 0)
	return jinja.NewBool(same), err
}

// isSame is Python's is. Values that the library copies are the same when they are equal and of one type.
func isSame(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	k := r.kind(v)
	if k != r.kind(a[0]) {
		return jinja.NewBool(false), nil
	}
	switch k {
	case kList, kTuple:
		return jinja.NewBool(v.AsList() == a[0].AsList()), nil
	case kDict, kNamespace:
		return jinja.NewBool(v.AsDict() == a[0].AsDict()), nil
	}
	same, err := r.equal(v, a[0], 0)
	return jinja.NewBool(same), err
}

// isCase makes the tests upper and lower, which look at the text of any value.
func isCase(want, other func(rune) bool) func(*run, jinja.Value, []jinja.Value) (jinja.Value, error) {
	check := cased(want, other)
	return func(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		text, err := r.text(v)
		if err != nil {
			return v, err
		}
		return check(r, jinja.NewString(text), nil)
	}
}

// parseInteger is Python's int(text, base): signs, prefixes, underscores between digits.
func parseInteger(text string, base int) (jinja.Value, bool) {
	text = strings.TrimFunc(text, isSpace)
	digits := strings.TrimLeft(text, "+-")
	sign := text[:len(text)-len(digits)]
	if len(sign) > 1 || digits == "" || len(digits) > 600 {
		return jinja.Value{}, false
	}
	if prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; prefix != "" && len(digits) > 2 && strings.EqualFold(digits[:2], prefix) {
		digits = digits[2:]
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") || base < 2 || base > 36 {
		return jinja.Value{}, false
	}
	z, ok := new(big.Int).SetString(sign+strings.ReplaceAll(digits, "_", ""), base)
	if !ok {
		return jinja.Value{}, false
	}
	v, err := bigValue(z)
	return v, err == nil
}

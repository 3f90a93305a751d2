package chat

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// loCompare is a chain a < b <= c: true when every link holds.
func loCompare(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	for i := 1; i < len(args); i += 2 {
		holds, err := r.compare(args[i].AsString(), args[i-1], args[i+1])
		if err != nil || !holds {
			return jinja.NewBool(false), err
		}
	}
	return jinja.NewBool(true), nil
}

func (r *run) compare(op string, a, b jinja.Value) (bool, error) {
	switch op {
	case "==":
		return r.equal(a, b, 0)
	case "!=":
		same, err := r.equal(a, b, 0)
		return !same, err
	case "in":
		return r.contains(b, a)
	case "not in":
		has, err := r.contains(b, a)
		return !has, err
	}
	order, ordered, err := r.order(op, a, b, 0)
	if err != nil || !ordered {
		return false, err
	}
	switch op {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case ">":
		return order > 0, nil
	}
	return order >= 0, nil
}

// equal is Python's ==.
func (r *run) equal(a, b jinja.Value, depth int) (bool, error) {
	if depth > maxValueDepth {
		return false, errNest
	}
	if err := r.spend(0); err != nil {
		return false, err
	}
	ka, kb := r.kind(a), r.kind(b)
	switch {
	case isText(ka) && isText(kb):
		x, _ := str(a)
		y, _ := str(b)
		return x == y, r.spend(min(len(x), len(y)) / 32)
	case isNumber(ka) && isNumber(kb):
		return equalNumbers(a, b, ka, kb), nil
	case ka != kb:
		return false, nil
	}
	switch ka {
	case kList, kTuple:
		return r.equalLists(a.AsList(), b.AsList(), depth)
	case kDict, kNamespace:
		return r.equalDicts(a.AsDict(), b.AsDict(), depth)
	case kFunc:
		return false, nil
	}
	return true, nil // none and undefined
}

func equalNumbers(a, b jinja.Value, ka, kb kind) bool {
	if ka == kFloat || kb == kFloat {
		return compareFloat(a, b, ka, kb) == 0
	}
	return compareInts(a, b) == 0
}

func compareInts(a, b jinja.Value) int {
	x, okX := integer(a)
	y, okY := integer(b)
	if okX && okY {
		return cmp.Compare(x, y)
	}
	return toBig(a).Cmp(toBig(b))
}

// compareFloat orders two numbers of which one is a float; an unordered pair gives 2.
func compareFloat(a, b jinja.Value, ka, kb kind) int {
	x, _ := number(a)
	y, _ := number(b)
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return 2
	case x < y:
		return -1
	case x > y:
		return 1
	}
	// Equal as floats: an integer beyond 2^53 may still differ from the float, and one beyond 2^1024 from infinity.
	switch {
	case ka == kFloat && kb == kFloat:
		return 0
	case math.IsInf(x, 1) == (kb == kFloat) && math.IsInf(x, 0):
		return -1
	case math.IsInf(x, 0):
		return 1
	case ka == kFloat:
		return floatBig(x).Cmp(toBig(b))
	}
	return toBig(a).Cmp(floatBig(y))
}

// floatBig is the integer part of a float, or nil for NaN and the infinities.
func floatBig(f float64) *big.Int {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	z, _ := big.NewFloat(f).Int(nil)
	return z
}

func (r *run) equalLists(a, b *jinja.List, depth int) (bool, error) {
	if a == b {
		return true, nil
	}
	if len(a.Items) != len(b.Items) {
		return false, nil
	}
	for i := range a.Items {
		if same, err := r.equal(a.Items[i], b.Items[i], depth+1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func (r *run) equalDicts(a, b *jinja.Dict, depth int) (bool, error) {
	if a == b {
		return true, nil
	}
	if len(a.Keys) != len(b.Keys) {
		return false, nil
	}
	for _, key := range a.Keys {
		other, ok := b.Get(key)
		if !ok {
			return false, nil
		}
		if same, err := r.equal(a.Data[key], other, depth+1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// order compares two values that Python orders; NaN is not ordered with anything.
func (r *run) order(op string, a, b jinja.Value, depth int) (order int, ordered bool, err error) {
	if depth > maxValueDepth {
		return 0, false, errNest
	}
	if err := r.spend(0); err != nil {
		return 0, false, err
	}
	ka, kb := r.kind(a), r.kind(b)
	switch {
	case isText(ka) && isText(kb):
		x, _ := str(a)
		y, _ := str(b)
		return strings.Compare(x, y), true, r.spend(min(len(x), len(y)) / 32)
	case isNumber(ka) && isNumber(kb) && ka != kFloat && kb != kFloat:
		return compareInts(a, b), true, nil
	case isNumber(ka) && isNumber(kb):
		order := compareFloat(a, b, ka, kb)
		return order, order != 2, nil
	case ka == kb && (ka == kList || ka == kTuple):
		x, y := a.AsList().Items, b.AsList().Items
		for i := range min(len(x), len(y)) {
			if same, err := r.equal(x[i], y[i], depth+1); err != nil {
				return 0, false, err
			} else if !same {
				return r.order(op, x[i], y[i], depth+1)
			}
		}
		return len(x) - len(y), true, nil
	case ka == kUndefined || kb == kUndefined:
		return 0, false, pyErr("operand of %s is undefined", op)
	}
	return 0, false, pyErr("'%s' not supported between instances of '%s' and '%s'", op, ka, kb)
}

// contains is Python's item in container.
func (r *run) contains(container, item jinja.Value) (bool, error) {
	switch k := r.kind(container); k {
	case kStr, kMarkup:
		part, ok := str(item)
		if !ok {
			return false, pyErr("'in <string>' requires string as left operand, not %s", r.kind(item))
		}
		s, _ := str(container)
		return strings.Contains(s, part), r.spend(len(s) / 32)
	case kList, kTuple:
		for _, v := range container.AsList().Items {
			if same, err := r.equal(v, item, 0); err != nil || same {
				return same, err
			}
		}
		return false, nil
	case kDict:
		key, err := r.key(item)
		if err != nil {
			return false, err
		}
		return container.AsDict().Has(key), nil
	case kUndefined:
		return false, nil
	default:
		return false, pyErr("argument of type '%s' is not iterable", k)
	}
}

// sorted returns values in the stable order of their keys.
func (r *run) sorted(values, keys []jinja.Value, reverse bool) ([]jinja.Value, error) {
	if err := r.allocTimes(len(values), 2*valueBytes); err != nil {
		return nil, err
	}
	index := make([]int, len(values))
	for i := range index {
		index[i] = i
	}
	var failed error
	slices.SortStableFunc(index, func(i, j int) int {
		if failed != nil {
			return 0
		}
		order, _, err := r.order("<", keys[i], keys[j], 0)
		if err != nil {
			failed = err
		}
		if reverse {
			return -order
		}
		return order
	})
	out := make([]jinja.Value, len(values))
	for i, at := range index {
		out[i] = values[at]
	}
	return out, failed
}

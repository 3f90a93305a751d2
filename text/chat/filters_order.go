package chat

import (
	"strings"

	"github.com/ardanlabs/jinja"
)

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

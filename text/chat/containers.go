package chat

import (
	"slices"

	"github.com/ardanlabs/jinja"
)

// listMethods are those of lists and tuples that do not change them; the sandbox allows no others.
var listMethods = map[string]*builtin{
	"index": {min: 1, params: []string{"value"}, fn: func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		for i, v := range self.AsList().Items {
			if same, err := r.equal(v, a[0], 0); err != nil {
				return self, err
			} else if same {
				return jinja.NewInt(int64(i)), nil
			}
		}
		return self, pyErr("value is not in list")
	}},
	"count": {min: 1, params: []string{"value"}, fn: func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		n := int64(0)
		for _, v := range self.AsList().Items {
			if same, err := r.equal(v, a[0], 0); err != nil {
				return self, err
			} else if same {
				n++
			}
		}
		return jinja.NewInt(n), nil
	}},
	"copy": {fn: func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		if err := r.allocTimes(len(self.AsList().Items)+2, valueBytes); err != nil {
			return self, err
		}
		return list(slices.Clone(self.AsList().Items)), nil
	}},
}

var dictMethods = map[string]*builtin{
	"get": {min: 1, params: []string{"key", "default"}, fn: func(r *run, self jinja.Value, a []jinja.Value) (jinja.Value, error) {
		key, err := r.key(a[0])
		if err != nil {
			return self, err
		}
		if v, ok := self.AsDict().Get(key); ok {
			return v, nil
		}
		return orNone(a[1]), nil
	}},
	"items": {fn: dictItems},
	"keys": {fn: func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		keys, err := r.items(self)
		return r.tagged(keys, tagKeys), err
	}},
	"values": {fn: func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		d := self.AsDict()
		if err := r.allocTimes(len(d.Keys)+2, valueBytes); err != nil {
			return self, err
		}
		items := make([]jinja.Value, len(d.Keys))
		for i, key := range d.Keys {
			items[i] = d.Data[key]
		}
		return r.tagged(items, tagValues), nil
	}},
	"copy": {fn: func(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		return r.copyDict(self.AsDict())
	}},
}

// dictItems is the list of (key, value) tuples of a dict.
func dictItems(r *run, self jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	d := self.AsDict()
	if err := r.allocTimes(len(d.Keys)+1, pairBytes); err != nil {
		return self, err
	}
	items := make([]jinja.Value, len(d.Keys))
	for i, key := range d.Keys {
		items[i] = r.tagged([]jinja.Value{keyValue(key), d.Data[key]}, tagTuple)
	}
	return r.tagged(items, tagItems), nil
}

func (r *run) copyDict(d *jinja.Dict) (jinja.Value, error) {
	out := jinja.NewDict()
	if err := r.allocTimes(len(d.Keys)+2, dictBytes); err != nil {
		return out, err
	}
	for _, key := range d.Keys {
		out.AsDict().Set(key, d.Data[key])
	}
	return out, nil
}

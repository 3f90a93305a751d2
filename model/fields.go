package model

import (
	"fmt"
	"math"
	"strings"

	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
)

// fields reads hyper-parameters from GGUF metadata or config.json under one set of methods. Each takes the key of both kinds
// of file: GGUF's without the architecture's prefix (or with "." in front for a whole key), and config.json's, where "a.b"
// is field b of object a and "|" separates alternatives of which the first present one counts. An empty key means that this
// kind of file never says. The first error sticks and names file, key, value and what would be right.
type fields struct {
	file   string // for messages
	prefix string // "llama." for GGUF, empty for config.json
	isGGUF bool
	tokens int                          // length of a GGUF file's vocabulary; 0 when it has none
	ends   []int64                      // end tokens that generation_config.json adds
	lookup func(key string) (any, bool) // int64, uint64, float64, bool, string, or a slice of them; null is absent
	err    error
}

// label names the place of a field: "file: key".
func (f *fields) label(ggufKey, hfKey string) string {
	keys := f.keys(ggufKey, hfKey)
	if len(keys) == 0 {
		return f.file
	}
	for _, key := range keys { // of the alternatives, one whose object the file has
		if at := strings.LastIndexByte(key, '.'); at > 0 && !f.isGGUF {
			if _, ok := f.lookup(key[:at]); ok {
				return f.file + ": " + key
			}
		}
	}
	return f.file + ": " + keys[0]
}

func (f *fields) keys(ggufKey, hfKey string) []string {
	switch {
	case f.isGGUF && ggufKey == "", !f.isGGUF && hfKey == "":
		return nil
	case f.isGGUF && strings.HasPrefix(ggufKey, "."):
		return []string{ggufKey[1:]}
	case f.isGGUF:
		return []string{f.prefix + ggufKey}
	}
	return strings.Split(hfKey, "|")
}

// ggufFields reads GGUF metadata.
func ggufFields(g *gguf.File, arch string) *fields {
	vocab, _ := g.Value("tokenizer.ggml.tokens")
	return &fields{file: g.Path(), prefix: arch + ".", isGGUF: true, tokens: vocab.Len(), lookup: func(key string) (any, bool) {
		v, ok := g.Value(key)
		if !ok {
			return nil, false
		}
		return plain(v)
	}}
}

// maxList bounds arrays that hold hyper-parameters; longer ones (the vocabulary) are not read here.
const maxList = 1 << 12

// plain turns a metadata value into the types that config.json has.
func plain(v gguf.Value) (any, bool) {
	if n, ok := v.Int(); ok {
		return n, true
	}
	if u, ok := v.Uint(); ok {
		return u, true
	}
	if x, ok := v.Float(); ok {
		return x, true
	}
	if b, ok := v.Bool(); ok {
		return b, true
	}
	if s, ok := v.Text(); ok {
		return s, true
	}
	list := []any{}
	for e := range v.All() {
		if len(list) == maxList {
			break
		}
		x, _ := plain(e)
		list = append(list, x)
	}
	return list, true
}

// configFields reads config.json.
func configFields(c *safetensors.Checkpoint) *fields {
	f := &fields{file: c.Config().File()}
	f.lookup = func(key string) (any, bool) {
		o, path := c.Config(), ""
		for {
			name, rest, nested := strings.Cut(key, ".")
			v, ok := o.Get(name)
			if !ok || v == nil {
				return nil, false
			}
			if !nested {
				return v, true
			}
			path += name
			if o, ok = v.(*safetensors.Object); !ok {
				f.fail("%s: %s = %v: want an object", f.file, path, v)
				return nil, false
			}
			key, path = rest, path+"."
		}
	}
	if g := c.Generation(); g != nil {
		f.ends, _, f.err = g.Ints("eos_token_id")
	}
	return f
}

func (f *fields) get(ggufKey, hfKey string) (v any, where string, ok bool) {
	for _, key := range f.keys(ggufKey, hfKey) {
		if v, ok := f.lookup(key); ok {
			return v, f.file + ": " + key, true
		}
	}
	return nil, "", false
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// has says whether the file holds the field.
func (f *fields) has(ggufKey, hfKey string) bool {
	_, _, ok := f.get(ggufKey, hfKey)
	return ok
}

// integer reads a whole number in [lo, hi], or def when absent. An array is accepted when all its values are equal.
func (f *fields) integer(ggufKey, hfKey string, def, lo, hi int) int {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return def
	}
	n, ok := asInt(v)
	if list, isList := asInts(v); !ok && isList && len(list) > 0 {
		n, ok = list[0], true
		for _, x := range list {
			if x != n {
				f.fail("%s = %v: varies between layers, which is not supported", where, v)
				return def
			}
		}
	}
	if !ok || n < int64(lo) || n > int64(hi) {
		f.fail("%s = %v: want a whole number from %d to %d", where, v, lo, hi)
		return def
	}
	return int(n)
}

// needInteger is integer for a field that must be present.
func (f *fields) needInteger(ggufKey, hfKey string, lo, hi int) int {
	if !f.has(ggufKey, hfKey) {
		f.fail("%s: missing: want a whole number from %d to %d", f.label(ggufKey, hfKey), lo, hi)
		return lo
	}
	return f.integer(ggufKey, hfKey, lo, lo, hi)
}

// number reads a finite number in [lo, hi], or def when absent.
func (f *fields) number(ggufKey, hfKey string, def, lo, hi float64) float64 {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return def
	}
	x, ok := asFloat(v)
	if !ok || !(x >= lo && x <= hi) {
		f.fail("%s = %v: want a number from %g to %g", where, v, lo, hi)
		return def
	}
	return x
}

// needNumber is number for a field that must be present.
func (f *fields) needNumber(ggufKey, hfKey string, lo, hi float64) float64 {
	if !f.has(ggufKey, hfKey) {
		f.fail("%s: missing: want a number from %g to %g", f.label(ggufKey, hfKey), lo, hi)
		return lo
	}
	return f.number(ggufKey, hfKey, lo, lo, hi)
}

// text reads a string, or def when absent.
func (f *fields) text(ggufKey, hfKey, def string) string {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return def
	}
	s, ok := v.(string)
	if !ok {
		f.fail("%s = %v: want a string", where, v)
		return def
	}
	return s
}

// needText is text for a field that must be present.
func (f *fields) needText(ggufKey, hfKey string) string {
	if !f.has(ggufKey, hfKey) {
		f.fail("%s: missing: want a string", f.label(ggufKey, hfKey))
	}
	return f.text(ggufKey, hfKey, "")
}

// flag reads a boolean, or def when absent.
func (f *fields) flag(ggufKey, hfKey string, def bool) bool {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return def
	}
	b, ok := v.(bool)
	if !ok {
		f.fail("%s = %v: want true or false", where, v)
		return def
	}
	return b
}

// integers reads a list of whole numbers; one number is a list of one. Nil when absent.
func (f *fields) integers(ggufKey, hfKey string, lo, hi int) []int {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return nil
	}
	list, ok := asInts(v)
	if n, one := asInt(v); one {
		list, ok = []int64{n}, true
	}
	out := make([]int, len(list))
	for i, n := range list {
		if out[i] = int(n); n < int64(lo) || n > int64(hi) {
			ok = false
		}
	}
	if !ok {
		f.fail("%s = %v: want whole numbers from %d to %d", where, v, lo, hi)
		return nil
	}
	return out
}

// numbers reads a list of n numbers in [lo, hi]. Nil when absent.
func (f *fields) numbers(ggufKey, hfKey string, n int, lo, hi float64) []float32 {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) != n {
		f.fail("%s = %v: want %d numbers", where, v, n)
		return nil
	}
	out := make([]float32, n)
	for i, e := range list {
		x, ok := asFloat(e)
		if !ok || !(x >= lo && x <= hi) {
			f.fail("%s[%d] = %v: want a number from %g to %g", where, i, e, lo, hi)
			return nil
		}
		out[i] = float32(x)
	}
	return out
}

// texts reads a list of n strings. Nil when absent.
func (f *fields) texts(ggufKey, hfKey string, n int) []string {
	v, where, ok := f.get(ggufKey, hfKey)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) != n {
		f.fail("%s = %v: want %d strings, one a layer", where, v, n)
		return nil
	}
	out := make([]string, n)
	for i, e := range list {
		if out[i], ok = e.(string); !ok {
			f.fail("%s[%d] = %v: want a string", where, i, e)
			return nil
		}
	}
	return out
}

func asInt(v any) (int64, bool) {
	switch x := v.(type) {
	case int64:
		return x, true
	case uint64:
		return int64(x), x <= math.MaxInt64
	case float64:
		return int64(x), x == math.Trunc(x) && math.Abs(x) < 1<<53
	}
	return 0, false
}

func asFloat(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	}
	return 0, false
}

func asInts(v any) ([]int64, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]int64, len(list))
	for i, e := range list {
		if out[i], ok = asInt(e); !ok {
			if b, isBool := e.(bool); isBool {
				out[i], ok = 0, true
				if b {
					out[i] = 1
				}
			}
		}
		if !ok {
			return nil, false
		}
	}
	return out, true
}

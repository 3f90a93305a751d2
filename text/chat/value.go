package chat

import (
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// tag says what a list or dict of the library stands for when it is not a plain one.
type tag uint8

const (
	tagTuple tag = iota + 1
	tagItems     // dict.items()
	tagKeys
	tagValues
	tagNamespace
)

// kind is Python's type of a value.
type kind uint8

const (
	kUndefined kind = iota
	kNone
	kBool
	kInt
	kBig // an integer beyond 64 bits, kept as its digits
	kFloat
	kStr
	kMarkup // a string marked safe, which escapes what is added to it
	kList
	kTuple
	kDict
	kNamespace
	kFunc
)

var kindNames = [...]string{"undefined", "NoneType", "bool", "int", "int", "float", "str", "Markup", "list", "tuple", "dict", "Namespace", "function"}

func (k kind) String() string { return kindNames[k] }

// The library's values have no room for two of Python's types; they travel as functions whose names no template can make.
const (
	markupMark = "\x00markup:"
	bigMark    = "\x00int:"
)

func newMarkup(s string) jinja.Value {
	if s == "" {
		return jinja.NewString("") // as a function it would be true
	}
	return jinja.NewCallable(markupMark+s, nil)
}

func newBig(digits string) jinja.Value { return jinja.NewCallable(bigMark+digits, nil) }

func (r *run) kind(v jinja.Value) kind {
	switch {
	case v.IsString():
		return kStr
	case v.IsUndefined():
		return kUndefined
	case v.IsNone():
		return kNone
	case v.IsBool():
		return kBool
	case v.IsInt():
		return kInt
	case v.IsFloat():
		return kFloat
	case v.IsList():
		if r.tags[v.AsList()] == tagTuple {
			return kTuple
		}
		return kList
	case v.IsDict():
		if r.tags[v.AsDict()] == tagNamespace {
			return kNamespace
		}
		return kDict
	}
	name := v.AsCallable().Name
	switch {
	case strings.HasPrefix(name, markupMark):
		return kMarkup
	case strings.HasPrefix(name, bigMark):
		return kBig
	}
	return kFunc
}

// str returns the text of a string, marked safe or not.
func str(v jinja.Value) (string, bool) {
	if v.IsString() {
		return v.AsString(), true
	}
	if v.IsCallable() {
		return strings.CutPrefix(v.AsCallable().Name, markupMark)
	}
	return "", false
}

// bigDigits returns the digits of an integer beyond 64 bits.
func bigDigits(v jinja.Value) (string, bool) {
	if !v.IsCallable() {
		return "", false
	}
	return strings.CutPrefix(v.AsCallable().Name, bigMark)
}

// integer returns the value of an int or a bool.
func integer(v jinja.Value) (int64, bool) {
	switch {
	case v.IsInt():
		return v.AsInt(), true
	case v.IsBool():
		if v.AsBool() {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// number returns the value of an int, bool or float as a float.
func number(v jinja.Value) (float64, bool) {
	if v.IsFloat() {
		return v.AsFloat(), true
	}
	if i, ok := integer(v); ok {
		return float64(i), true
	}
	if digits, ok := bigDigits(v); ok {
		f, _ := strconv.ParseFloat(digits, 64)
		return f, true
	}
	return 0, false
}

// truthy is Python's truth of a value.
func truthy(v jinja.Value) bool { return v.IsTruthy() }

// valueBytes is what one value takes in a list.
const valueBytes = 24

// list makes a list of items that the caller has paid for.
func list(items []jinja.Value) jinja.Value { return jinja.NewList(items) }

// tagged makes a list with a tag.
func (r *run) tagged(items []jinja.Value, t tag) jinja.Value {
	v := jinja.NewList(items)
	r.mark(v.AsList(), t)
	return v
}

func (r *run) mark(p any, t tag) {
	if r.tags == nil {
		r.tags = make(map[any]tag)
	}
	r.tags[p] = t
}

// pairBytes pays for a tuple of two with its tag.
const pairBytes = 256

// Dict keys. The library's dicts have string keys; a key of another type is kept as a string that starts with keyMark and
// a letter for its type.
const keyMark = "\x00"

func (r *run) key(v jinja.Value) (string, error) {
	if s, ok := str(v); ok {
		return s, nil
	}
	if i, ok := integer(v); ok { // True and 1 are one key
		return keyMark + "i" + strconv.FormatInt(i, 10), nil
	}
	switch k := r.kind(v); k {
	case kNone:
		return keyMark + "n", nil
	case kFloat:
		f := v.AsFloat()
		if f == float64(int64(f)) {
			return keyMark + "i" + strconv.FormatInt(int64(f), 10), nil
		}
		return keyMark + "f" + strconv.FormatFloat(f, 'g', -1, 64), nil
	case kBig:
		digits, _ := bigDigits(v)
		return keyMark + "b" + digits, nil
	default:
		return "", pyErr("unhashable type: '%s'", k)
	}
}

// keyValue is the value that key made a key of.
func keyValue(key string) jinja.Value {
	if len(key) < 2 || key[0] != keyMark[0] {
		return jinja.NewString(key)
	}
	rest := key[2:]
	switch key[1] {
	case 'n':
		return jinja.None()
	case 'i':
		if i, err := strconv.ParseInt(rest, 10, 64); err == nil {
			return jinja.NewInt(i)
		}
	case 'f':
		if f, err := strconv.ParseFloat(rest, 64); err == nil {
			return jinja.NewFloat(f)
		}
	case 'b':
		return newBig(rest)
	}
	return jinja.NewString(key)
}
